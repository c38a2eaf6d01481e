"""How fast is a round? Twenty clients, compared with two plain PyTorch loops.

    python benchmarks/how_fast_is_a_round.py [--json] [--tiny] [--only mclr,mlp,cnn,lenet5,charlstm,bigru]

Logistic regression and an MLP: twenty of a thousand MNIST clients, 20 epochs, batch size 10. Convolutions: the same
clients, and twenty CIFAR-10 clients, 1 epoch, batch size 10. Recurrent networks: twenty Shakespeare roles with 30
windows of 80 characters, and twenty accounts with 50 tweets of 25 random words, 1 epoch, batch size 10, compared with
nn.LSTM and nn.GRU. All implementations train the same clients, alternately in one process. Times are the best and the
median of several rounds, for PyTorch with the faster of one and two threads. Our time is that of the whole `ask`:
planning, gathering, training, validation, replies as NumPy arrays. The first call, which includes compilation, is
reported separately. Ratios above 1 mean that Coterie is faster: `best` compares the best rounds, `median` is the median
of the ratios of rounds that followed each other.
"""

from __future__ import annotations

import os
from functools import partial

import numpy as np
from common import (
    alternate,
    arguments,
    cifar_clients,
    finish,
    power_law,
    progress,
    ratio,
    seconds_of,
    shakespeare_clients,
    spread,
    tweet_clients,
)

from coterie import models, tree
from coterie.clients import LocalSGD, fit, score
from coterie.federation import vectorized
from coterie.federation.compilation import compilations
from coterie.seeds import Seed

try:
    import torch
    from peers import pytorch_loops
except ImportError:
    torch = None

BATCH_SIZE, LEARNING_RATE = 10, 0.03
#: Threads that are compared: one, two, and as many as there are cores.
THREADS = sorted({1, 2, len(os.sched_getaffinity(0))})
MNIST_SHAPE, CIFAR_SHAPE = (28, 28), (32, 32, 3)

#: Name → data, epochs, task.
MODELS = {
    "mclr": ("mnist", 20, lambda: models.mclr(MNIST_SHAPE, 10)),
    "mlp": ("mnist", 20, lambda: models.mlp(MNIST_SHAPE, 10, widths=(128,))),
    "cnn": ("mnist", 1, lambda: models.build("cnn", MNIST_SHAPE, 10)),
    "lenet5": ("cifar10", 1, lambda: models.build("lenet5", CIFAR_SHAPE, 10)),
    "charlstm": ("shakespeare", 1, lambda: models.build("char-lstm", (80,), 80)),
    "bigru": ("sent140", 1, lambda: models.build("bigru", (25, 300), 2)),
}


#: Name → seconds that it usually takes without PyTorch.
USUALLY = {"mclr": 8, "mlp": 10, "cnn": 25, "lenet5": 10, "charlstm": 45, "bigru": 15}


def torch_examples(data, cohort):
    return [] if torch is None else [pytorch_loops.tensors(*data.examples(client)) for client in cohort]


def flops_per_step(name):
    """Floating-point operations of one step's matrix products: forward, and twice that backward."""
    shapes = {
        "mclr": [(1, 784, 10)],
        "mlp": [(1, 784, 128), (1, 128, 10)],
        "cnn": [(784, 25, 32), (196, 800, 64), (1, 3136, 10)],
        "lenet5": [(784, 75, 6), (100, 150, 16), (1, 400, 120), (1, 120, 84), (1, 84, 10)],
        "charlstm": [(80, 8, 1024), *[(80, 256, 1024)] * 3, (1, 256, 80)],
        "bigru": [(25, 300, 384), *[(25, 64, 192)] * 2, (25, 128, 192), *[(25, 32, 96)] * 2, (1, 64, 64), (1, 64, 2)],
    }[name]
    passes = [2 if place == 0 else 3 for place in range(len(shapes))]  # no gradient with respect to the images
    return sum(2 * times * BATCH_SIZE * a * b * c for times, (a, b, c) in zip(passes, shapes, strict=True))


SQUARE = np.ones((1024, 1024), np.float32)


def by_numpy():
    """NumPy's product of two square matrices on all cores: the reference rate of the machine."""
    np.matmul(SQUARE, SQUARE)


def compare(name, data, cohort, epochs, repeats):
    """All implementations of one model, alternately; the figures of that model."""
    task = MODELS[name][2]()
    start, local = task.init(Seed(0)), LocalSGD(epochs=epochs, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    ours = {threads: vectorized(data, task, threads=threads) for threads in THREADS}
    tensors = torch_examples(data, cohort)
    steps = epochs * sum(-(-len(data.rows(data.position(client), "fit")) // BATCH_SIZE) for client in cohort)

    def by_coterie(threads):
        ours[threads].ask(cohort, fit, Seed(0), start=start, local=local)

    def by_torch(kind, threads):
        torch.set_num_threads(threads)
        pytorch_loops.one_round(kind, name, tensors, epochs, BATCH_SIZE, LEARNING_RATE)

    calls = {"product": by_numpy} | {f"ours_{n}": partial(by_coterie, n) for n in THREADS}
    if torch is not None:
        calls |= {f"{kind}_{n}": partial(by_torch, kind, n) for kind in ("dataloader", "tight") for n in (1, 2)}
    before = compilations()
    first = seconds_of(partial(by_coterie, 2))
    compiled = compilations()
    times = alternate(repeats, calls, pause=0.1)
    again = compilations()
    best = {key: min(each) for key, each in times.items()}
    evaluation = ours[2].scoring()  # only an evaluation may use test examples

    def by_scoring():
        evaluation.ask(data.clients, score, Seed(0), part="test", params=start)

    scoring = min(alternate(3, {"score": by_scoring})["score"])
    fastest = min((f"ours_{n}" for n in THREADS), key=best.__getitem__)
    product = 1e6 * flops_per_step(name) * best["product"] / (2 * len(SQUARE) ** 3)
    row = {
        "data": data.name,
        "parameters": tree.size(start),
        "steps": steps,
        "seconds": {key: spread(each) for key, each in times.items()},
        "speedup": {str(n): ratio(times["ours_1"], times[f"ours_{n}"]) for n in THREADS[1:]},
        "first_seconds": first,
        "compile_seconds": compiled.seconds - before.seconds,
        "us_per_step_of_products_alone": product,
        "share_of_matrix_product_rate": product / (1e6 * best[fastest] / steps),
        "score_all_clients_seconds": scoring,
        "clients": len(data.clients),
        "recompilations": again.count - compiled.count,
    }
    if torch is not None:
        for kind in ("dataloader", "tight"):
            theirs = min((f"{kind}_{n}" for n in (1, 2)), key=best.__getitem__)
            row[f"vs_{kind}"] = ratio(times[theirs], times[fastest])
    return row


def print_row(name, row):
    steps = row["steps"]
    print(f"{name}: {steps} steps of {row['parameters']:,} parameters, {row['data']}; best (median)")
    for key, figure in row["seconds"].items():
        if key != "product":
            best, middle = figure["best"], figure["median"]
            print(
                f"  {key:14}{1e3 * best:9.1f} ms ({1e3 * middle:.1f}) per round, {1e6 * best / steps:.1f} µs per step"
            )
    for n, figure in row["speedup"].items():
        print(f"  {n} threads are {figure['best']:.2f} ({figure['median']:.2f}) times as fast as one")
    for kind in ("dataloader", "tight"):
        if figure := row.get(f"vs_{kind}"):
            print(f"  {figure['best']:.2f} ({figure['median']:.2f}) times as fast as PyTorch, {kind}")
    print(
        f"  first call {row['first_seconds']:.1f} s, all {row['clients']} clients scored in "
        f"{row['score_all_clients_seconds']:.3f} s, {row['share_of_matrix_product_rate']:.0%} of the rate of a matrix "
        f"product, recompilations {row['recompilations']}",
        flush=True,
    )


def main():
    options = arguments(__doc__.splitlines()[0], only=",".join(MODELS))
    if torch is None:
        print("PyTorch is not installed, so there is no comparison with it: pip install torch==2.13.0")
    clients = 100 if options.tiny else 1000
    datasets = {
        "mnist": lambda: power_law(clients),
        "cifar10": lambda: cifar_clients(20, 50),
        "shakespeare": lambda: shakespeare_clients(20, 30),
        "sent140": lambda: tweet_clients(20, 50),
    }
    results = {}
    for name in options.only.split(","):
        dataset, epochs, _ = MODELS[name]
        data = datasets[dataset]()
        cohort = [data.clients[i] for i in Seed(1).fold("cohort").sample(len(data.clients), 20)]
        epochs, repeats = (min(epochs, 2), 2) if options.tiny else (epochs, 7)
        progress(
            f"{name}, {repeats} rounds of each", None if options.tiny else USUALLY[name] * (1 if torch is None else 2)
        )
        results[name] = compare(name, data, cohort, epochs, repeats)
        print_row(name, results[name])
    finish({"models": results}, options)


if __name__ == "__main__":
    main()
