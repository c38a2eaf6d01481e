"""How fast is a round? Twenty of a thousand clients, E = 20, B = 10, against two plain PyTorch loops.

    python benchmarks/how_fast_is_a_round.py [--json] [--tiny]

All contestants train the same clients from the same start, alternately in one process; the best of several counts, and
for PyTorch the faster of one and two threads. Of ours the whole `ask` counts: planning, gathering, training, checking,
replies as NumPy. The first call, with its compilation, is given beside it. Ratios above 1 mean that ours is faster.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
from common import arguments, finish, power_law

from coterie import models, tree
from coterie.clients import LocalSGD, fit, score
from coterie.federation import vectorised
from coterie.federation.compiling import compilations
from coterie.seeds import Seed

try:
    import torch
except ImportError:
    torch = None

EPOCHS, BATCH, RATE = 20, 10, 0.03
WIDTHS = {"mclr": (), "mlp": (128,)}


def torch_module(widths, start):
    from torch import nn

    sizes = (784, *widths, 10)
    layers = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layer = nn.Linear(inputs, outputs)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(start[f"dense{i}"]["kernel"]))
            layer.bias.copy_(torch.from_numpy(start[f"dense{i}"]["bias"]))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def torch_round(kind, clients, widths, start, epochs):
    """One round by PyTorch: `dataloader` as most libraries do it, `tight` with nothing that could be left out."""
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, TensorDataset

    trained = []
    for x, y in clients:
        model = torch_module(widths, start)
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        if kind == "dataloader":
            loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
        for _ in range(epochs):
            if kind == "dataloader":
                batches = loader
            else:
                order = torch.randperm(len(y))
                batches = ((x[order[i : i + BATCH]], y[order[i : i + BATCH]]) for i in range(0, len(y), BATCH))
            for images, labels in batches:
                optimiser.zero_grad(set_to_none=True)
                cross_entropy(model(images), labels).backward()
                optimiser.step()
        trained.append([p.detach().numpy() for p in model.parameters()])
    return trained


def torch_examples(data, cohort):
    if torch is None:
        return []
    return [(torch.from_numpy(x), torch.from_numpy(y).long()) for x, y in map(data.examples, cohort)]


def seconds(fn, *given, **named):
    begin = time.perf_counter()
    fn(*given, **named)
    return time.perf_counter() - begin


def products(widths):
    """Microseconds that the products of one step take alone, in NumPy."""
    sizes = (784, *widths, 10)
    x = [np.ones((BATCH, inputs), np.float32) for inputs in sizes[:-1]]
    w = [np.ones((outputs, inputs), np.float32) for inputs, outputs in pairwise(sizes)]
    g = [np.ones((BATCH, outputs), np.float32) for outputs in sizes[1:]]

    def step():
        for a, b, c in zip(x, w, g, strict=True):
            a @ b.T
            c.T @ a
        for b, c in zip(w[1:], g[1:], strict=True):
            c @ b

    return 1e6 * min(seconds(lambda: [step() for _ in range(100)]) for _ in range(5)) / 100


def race(data, cohort, widths, steps, epochs, repeats):
    """All contestants on one model, alternately; the figures of that model."""
    task = models.mlp((784,), 10, widths=widths) if widths else models.mclr((784,), 10)
    start, local = task.init(Seed(0)), LocalSGD(epochs=epochs, batch=BATCH, rate=RATE)
    ours = {threads: vectorised(data, task, threads=threads) for threads in (1, 2)}
    tensors = torch_examples(data, cohort)

    def by_us(threads):
        ours[threads].ask(cohort, fit, Seed(0), start=start, local=local)

    def by_torch(kind, threads):
        torch.set_num_threads(threads)
        torch_round(kind, tensors, widths, start, epochs)

    contestants = {f"ours_{threads}": (by_us, threads) for threads in (1, 2)}
    if torch is not None:
        for kind in ("dataloader", "tight"):
            contestants |= {f"{kind}_{threads}": (by_torch, kind, threads) for threads in (1, 2)}
    before = compilations()
    first = seconds(by_us, 2)
    compiled = compilations()
    best = dict.fromkeys(contestants, np.inf)
    for _ in range(repeats):
        for contestant, call in contestants.items():
            best[contestant] = min(best[contestant], seconds(*call))
    again = compilations()
    scoring = min(seconds(ours[2].ask, data.clients, score, Seed(0), params=start) for _ in range(3))
    fastest = min(best["ours_1"], best["ours_2"])
    row = {
        "parameters": tree.size(start),
        "seconds": {key: round(value, 5) for key, value in best.items()},
        "first_seconds": round(first, 3),
        "compile_seconds": round(compiled.seconds - before.seconds, 3),
        "us_per_step_one_thread": round(1e6 * best["ours_1"] / steps, 2),
        "us_per_step_two_threads": round(1e6 * best["ours_2"] / steps, 2),
        "us_per_step_products_in_numpy": round(products(widths), 2),
        "score_all_training_examples_seconds": round(scoring, 4),
        "recompilations": again.count - compiled.count,
    }
    if torch is not None:
        for kind in ("dataloader", "tight"):
            row[f"vs_{kind}"] = round(min(best[f"{kind}_1"], best[f"{kind}_2"]) / fastest, 2)
    return row


def main():
    options = arguments(__doc__.splitlines()[0])
    data = power_law(100 if options.tiny else 1000)
    repeats, epochs = (2, 2) if options.tiny else (5, EPOCHS)
    cohort = [data.clients[i] for i in Seed(1).fold("cohort").sample(len(data.clients), 20)]
    sizes = [len(data.rows(data.position(client), "fit")) for client in cohort]
    steps = epochs * sum(-(-n // BATCH) for n in sizes)
    print(f"20 clients of {len(data.clients)} ({data.name}), {sum(sizes)} examples, {steps} SGD steps of {BATCH}")
    if torch is None:
        print("PyTorch is missing: only our own figures. pip install torch==2.13.0")
    results = {"data": data.name, "steps": steps, "epochs": epochs}
    for name, widths in WIDTHS.items():
        results[name] = race(data, cohort, widths, steps, epochs, repeats)
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in results[name].items()))
    finish(results, options)


if __name__ == "__main__":
    main()
