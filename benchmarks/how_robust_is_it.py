"""How robust is it? Every aggregation rule under every attack, and without an attack.

    python benchmarks/how_robust_is_it.py [--json] [--tiny]

The 1,797 digits of scikit-learn in four rotations, ten clients each, every client in its true cluster (`oracle`), all
clients in every round. Two of the ten clients of each rotation are malicious: they attack with strength 10, or train on
flipped labels. Accuracy is that of all clients on their own test examples, in percent, the mean over seeds.
"""

from __future__ import annotations

import statistics
from typing import get_args

from common import arguments, finish

import coterie
from coterie.aggregation.robust import Rule
from coterie.federation.attacks import AttackName


def accuracy(seed, rounds, attack, rule):
    record = coterie.run(
        {
            "data": "digits",
            "method": "oracle",
            "run": {"rounds": rounds, "clients_per_round": 40, "evaluate_every": rounds, "seed": seed},
            "attack": {"name": attack, "fraction": 0.2},
            "aggregation": {"rule": rule},
        }
    )
    return 100 * record.summary["accuracy"]["weighted"]


def main():
    options = arguments(__doc__.splitlines()[0])
    rounds, seeds = (2, range(1)) if options.tiny else (30, range(3))
    table = {}
    for attack in get_args(AttackName):
        table[attack] = {}
        for rule in get_args(Rule):
            runs = [accuracy(seed, rounds, attack, rule) for seed in seeds]
            table[attack][rule] = {"mean": statistics.fmean(runs), "runs": runs}
        row = ", ".join(f"{rule} {cell['mean']:.1f}" for rule, cell in table[attack].items())
        print(f"{attack:>10}: {row}", flush=True)
    finish({"accuracy": table}, options)


if __name__ == "__main__":
    main()
