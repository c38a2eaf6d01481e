"""How fast is a round? Twenty clients, compared with two plain PyTorch loops.

    python benchmarks/how_fast_is_a_round.py [--json] [--tiny] [--only mclr,mlp,cnn,lenet5,charlstm,bigru]

Logistic regression and an MLP: twenty of a thousand MNIST clients, 20 epochs, batch size 10. Convolutions: the same
clients, and twenty CIFAR-10 clients, 1 epoch, batch size 10. Recurrent networks: twenty Shakespeare roles with 30
windows of 80 characters, and twenty accounts with 50 tweets of 25 random words, 1 epoch, batch size 10, compared with
nn.LSTM and nn.GRU. All implementations train the same clients, alternately in one process. Times are the best of
several rounds, for PyTorch with the faster of one and two threads. Our time is that of the whole `ask`: planning,
gathering, training, validation, replies as NumPy arrays. The first call, which includes compilation, is reported
separately. Ratios above 1 mean that Coterie is faster.
"""

from __future__ import annotations

import time

import numpy as np
from common import arguments, cifar_clients, finish, power_law, shakespeare_clients, tweet_clients

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


def torch_examples(data, cohort):
    return [] if torch is None else [pytorch_loops.tensors(*data.examples(client)) for client in cohort]


def seconds(fn, *args, **kwargs):
    begin = time.perf_counter()
    fn(*args, **kwargs)
    return time.perf_counter() - begin


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
    ours = {threads: vectorized(data, task, threads=threads) for threads in (1, 2)}
    tensors = torch_examples(data, cohort)
    steps = epochs * sum(-(-len(data.rows(data.position(client), "fit")) // BATCH_SIZE) for client in cohort)

    def by_coterie(threads):
        ours[threads].ask(cohort, fit, Seed(0), start=start, local=local)

    def by_torch(kind, threads):
        torch.set_num_threads(threads)
        pytorch_loops.one_round(kind, name, tensors, epochs, BATCH_SIZE, LEARNING_RATE)

    implementations = {"product": (by_numpy,)} | {f"ours_{threads}": (by_coterie, threads) for threads in (1, 2)}
    if torch is not None:
        for kind in ("dataloader", "tight"):
            implementations |= {f"{kind}_{threads}": (by_torch, kind, threads) for threads in (1, 2)}
    before = compilations()
    first = seconds(by_coterie, 2)
    compiled = compilations()
    best = dict.fromkeys(implementations, np.inf)
    for _ in range(repeats):
        for implementation, call in implementations.items():
            time.sleep(0.1)  # BLAS and OpenMP threads keep spinning for a while and would slow down the next call
            best[implementation] = min(best[implementation], seconds(*call))
    again = compilations()
    scoring = min(seconds(ours[2].ask, data.clients, score, Seed(0), part="test", params=start) for _ in range(3))
    fastest = min(best["ours_1"], best["ours_2"])
    row = {
        "data": data.name,
        "parameters": tree.size(start),
        "steps": steps,
        "seconds": {key: round(value, 5) for key, value in best.items()},
        "first_seconds": round(first, 3),
        "compile_seconds": round(compiled.seconds - before.seconds, 3),
        "us_per_step_one_thread": round(1e6 * best["ours_1"] / steps, 2),
        "us_per_step_two_threads": round(1e6 * best["ours_2"] / steps, 2),
        "us_per_step_of_products_alone": round(
            1e6 * flops_per_step(name) * best["product"] / (2 * len(SQUARE) ** 3), 2
        ),
        "score_all_clients_seconds": round(scoring, 4),
        "recompilations": again.count - compiled.count,
    }
    row["share_of_matrix_product_rate"] = round(row["us_per_step_of_products_alone"] / (1e6 * fastest / steps), 3)
    if torch is not None:
        for kind in ("dataloader", "tight"):
            row[f"vs_{kind}"] = round(min(best[f"{kind}_1"], best[f"{kind}_2"]) / fastest, 2)
    return row


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
        results[name] = compare(
            name, data, cohort, min(epochs, 2) if options.tiny else epochs, 2 if options.tiny else 5
        )
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in results[name].items()))
    finish(results, options)


if __name__ == "__main__":
    main()
