"""What does compression cost? Accuracy and bytes of three methods with compressed updates.

    python benchmarks/what_does_compression_cost.py [--json] [--tiny]

MNIST in 100 equal parts, client i rotated by 90°·(i mod 4) (`mnist-rotated`), logistic regression, 20 clients per
round. IFCA and FedGroup have four clusters, IFCA with five restarts. Accuracy is that of all clients on their own test
examples, in percent, the mean of the last ten rounds and over seeds, with the lowest and the highest seed. `clusters`
is the adjusted Rand index against the rotations. Bytes are those that all clients send in the run, as the ledger counts
them. Without MNIST in $COTERIE_DATA or the cache, the script says so and ends.
"""

from __future__ import annotations

import statistics

from common import arguments, finish

import coterie
from coterie.data.loading import available

DATA = "mnist-rotated"
METHODS = {
    "fedavg": {"name": "fedavg"},
    "ifca": {"name": "ifca", "clusters": 4, "restarts": 5},
    "fedgroup": {"name": "fedgroup", "clusters": 4},
}
COMPRESSIONS = {
    "none": {},
    "int8": {"updates": "int8"},
    "top-k 0.1": {"updates": "top-k", "fraction": 0.1},
    "top-k 0.01": {"updates": "top-k", "fraction": 0.01},
}
SEEDS = (100, 101, 102)
ROUNDS = 100


def result(method, compression, seed, rounds):
    record = coterie.run(
        {
            "data": DATA,
            "model": "mclr",
            "method": METHODS[method],
            "local": {"epochs": 1, "batch_size": 10, "learning_rate": 0.03},
            "run": {"rounds": rounds, "clients_per_round": 20, "seed": seed},
            "compression": COMPRESSIONS[compression],
        }
    )
    summary = record.summary
    return (
        100 * summary["accuracy"]["weighted_last_ten"],
        summary["truth"]["adjusted_rand"],
        summary["traffic"]["up_bytes"],
    )


def main():
    options = arguments(__doc__.splitlines()[0])
    rounds, seeds = (2, SEEDS[:1]) if options.tiny else (ROUNDS, SEEDS)
    if not available(DATA):
        print(f"{DATA} was not found: put MNIST into $COTERIE_DATA; `coterie data {DATA}` says where to get it")
        finish({"results": None}, options)
        return
    table = {}
    for method in METHODS:
        for compression in COMPRESSIONS:
            runs = [result(method, compression, seed, rounds) for seed in seeds]
            accuracy, found, sent = (list(column) for column in zip(*runs, strict=True))
            table[f"{method}, {compression}"] = {"accuracy": accuracy, "clusters": found, "up_bytes": sent}
            print(
                f"{method:>8} {compression:>10}: {statistics.fmean(accuracy):.2f} % "
                f"({min(accuracy):.2f} to {max(accuracy):.2f}), clusters {statistics.fmean(found):.2f}, "
                f"{statistics.fmean(sent) / 1e6:.2f} MB up",
                flush=True,
            )
    finish({"results": table, "rounds": rounds, "seeds": list(seeds)}, options)


if __name__ == "__main__":
    main()
