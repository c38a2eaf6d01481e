"""How many exchanges does a round take? Messages between server and clients for every method.

    python benchmarks/how_many_exchanges.py [--json] [--tiny]

Between machines an exchange takes seconds, however small it is, so that their number decides how long a round takes.
Eight clients of `digits` in two clusters, all of them in each round, ten rounds, an evaluation after each, over the
in-process channel. `alone`: each request in an exchange of its own. `merged`: the requests of an evaluation travel with
those of the next rounds, and a work that depends on an answer of the same client travels with the work that gives it.
Per round: mean over the rounds but the last, which also waits for the last evaluation. Before: exchanges of
preparation steps, with the evaluations that wait for nothing else. Total: the whole run.
"""

from __future__ import annotations

import statistics

from common import arguments, finish

from coterie import methods
from coterie.data import load
from coterie.testing import serve_in_process

#: Settings that the run needs.
SETTINGS = {"flhc": {"warm_rounds": 2}}


def exchanges(method, rounds, *, alone):
    """Exchanges of a run: before the first round, in each round but the last, and in all."""
    data = load("digits", clients=8, partition="inverted", clusters=2, seed=1)
    begins = []
    _, sent = serve_in_process(
        {
            "method": {"name": method, **SETTINGS.get(method, {})},
            "local": {"epochs": 1},
            "run": {"rounds": rounds, "clients_per_round": 8, "seed": 1, "threads": 1},
        },
        data,
        alone=alone,
        on_step=lambda t, sent: begins.append((t, sent.exchanges)),
    )
    ends = [count for _, count in begins[1:]] + [sent.exchanges]
    steps = [(t, end - begin) for (t, begin), end in zip(begins, ends, strict=True)]
    in_rounds = [count for t, count in steps[:-1] if t >= 0]
    return {
        "before": sum(count for t, count in steps if t < 0),
        "rounds": in_rounds,
        "per_round": statistics.fmean(in_rounds) if in_rounds else 0.0,
        "total": sent.exchanges,
    }


def main():
    options = arguments(__doc__.splitlines()[0])
    rounds = 3 if options.tiny else 10
    names = ("fedavg", "flexcfl") if options.tiny else methods.names()
    table = {}
    print(f"{'':>12}  {'per round':^15}  {'before':^15}  {'total':^15}")
    print(f"{'method':>12}" + f"  {'alone':>7} {'merged':>7}" * 3)
    for name in names:
        row = {how: exchanges(name, rounds, alone=how == "alone") for how in ("alone", "merged")}
        table[name] = row
        cells = [f"{row[how]['per_round']:7.2f}" for how in row]
        counts = [[f"{row[how][key]:7d}" for how in row] for key in ("before", "total")]
        print(f"{name:>12}  " + "  ".join(" ".join(each) for each in (cells, *counts)), flush=True)
    finish({"exchanges": table, "rounds": rounds}, options)


if __name__ == "__main__":
    main()
