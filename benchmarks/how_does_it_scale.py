"""How does it scale? Rounds among 1,000 to 1,000,000 clients, cohorts of 20 to 2,000, and the memory they take.

    python benchmarks/how_does_it_scale.py [--json] [--tiny]

Each size runs in a process of its own, so that its peak of memory is its own. Clients have 20 examples of 64 numbers,
one epoch, batches of 10; times are the best of several rounds after the first two; with cohorts of a thousand, the best
of three processes, few and many clients in turns. Three methods play in these:
FedAvg, IFCA with four clusters, and FedGroup with four groups founded on 2,000 clients or all there are.

A client of FedGroup trains 50 steps more when it is first drawn, to find its group. Among a million, nearly every
cohort is of such clients, and among a thousand none after the first rounds. So its rounds are measured apart, among few
and among many alike: with clients that all have a group, and with clients of whom none has.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time

import numpy as np
from common import arguments, finish, nothing, peak_bytes

SAMPLES, FEATURES, CLASSES = 20, 64, 10


def federation(clients, features=FEATURES, widths=()):
    from coterie import models
    from coterie.data import partition
    from coterie.data.federated import FederatedData, Index, aligned
    from coterie.federation import vectorized

    x = aligned(np.empty((clients * SAMPLES, features), np.float32))
    draw = np.random.default_rng(0)
    for first in range(0, len(x), 65536):
        x[first : first + 65536] = draw.random(x[first : first + 65536].shape, dtype=np.float32)
    y = draw.integers(0, CLASSES, len(x)).astype(np.int32)
    index = Index.from_sizes(np.arange(len(x), dtype=np.int32), np.full(clients, SAMPLES))
    data = FederatedData("random", x, y, partition.numbered(clients), index, nothing(clients), CLASSES)
    task = models.mlp(data.shape, CLASSES, widths=widths) if widths else models.mclr(data.shape, CLASSES)
    return data, vectorized(data, task), task


def method_of(name):
    from coterie.clients import LocalSGD
    from coterie.methods import build

    options = {"ifca": {"clusters": 4}, "fedgroup": {"clusters": 4, "alpha": 500, "assign": "lazy"}}
    return build(name, LocalSGD(epochs=1), {}, **options.get(name, {}))


def forget(state):
    """The same groups, with nobody in them."""
    from coterie.client_map import ClientMap

    return dataclasses.replace(state, assignment=ClientMap())


def session(clients, cohort, rounds, label="fedavg", features=FEATURES, widths=()):
    """Seconds of the fastest round, and what the process used.

    With the label "fedgroup:known" each cohort is played twice and timed the second time, with "fedgroup:cold" groups
    are emptied before.
    """
    from coterie.federation.compilation import compilations
    from coterie.runs.sampling import Sampler
    from coterie.seeds import Seed

    begin = peak_bytes()
    data, fed, task = federation(clients, features, widths)
    name, _, kind = label.partition(":")
    method, seed = method_of(name), Seed(0)
    state = method.start(task, seed)
    warm = Sampler(fed.clients, min(20, cohort), seed)
    clock = time.perf_counter()
    while method.stage(state) == "prepare":
        state = method.round(state, fed, warm.all_clients(0), seed.fold("prepare", 0)).state
    prepared = time.perf_counter() - clock
    for t in range(2):
        state = method.round(state, fed, warm.cohort(t), seed.fold("round", t)).state
    before, compiled = peak_bytes(), compilations()
    sampler = Sampler(fed.clients, cohort, seed)
    best = np.inf
    for t in range(2, 2 + rounds):
        if kind == "known":
            state = method.round(state, fed, sampler.cohort(t), seed.fold("round", t)).state
        elif kind == "cold":
            state = forget(state)
        clock = time.perf_counter()
        state = method.round(state, fed, sampler.cohort(t), seed.fold("round", t)).state
        best = min(best, time.perf_counter() - clock)
    raw = data.x.nbytes + data.y.nbytes + data.fit.order.nbytes + data.fit.offsets.nbytes
    return {
        "clients": clients,
        "cohort": cohort,
        "method": label,
        "preparing_seconds": prepared,
        "seconds": best,
        "raw_bytes": raw,
        "peak_bytes": peak_bytes(),
        "interpreter_bytes": begin,
        "beside_the_data_bytes": peak_bytes() - before,
        "recompilations": compilations().count - compiled.count,
    }


def apart(*arguments):
    """`play` in a process of its own."""
    command = [sys.executable, __file__, "--play", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = arguments(__doc__.splitlines()[0])
    many = (100, 1000) if options.tiny else (1000, 10_000, 100_000, 1_000_000)
    cohorts = (20, 100) if options.tiny else (20, 200, 2000)
    results = {"clients": [], "cohorts": []}
    for clients in many:
        row = apart(clients, 20, 30)
        results["clients"].append(row)
        print(
            f"{clients:>7} clients, cohort of 20: {1e3 * row['seconds']:.2f} ms, "
            f"peak {row['peak_bytes'] / 2**20:.0f} MiB, raw arrays {row['raw_bytes'] / 2**20:.0f} MiB"
        )
    results["round_at_most_over_least_clients"] = round(
        results["clients"][-1]["seconds"] / results["clients"][0]["seconds"], 3
    )
    # peak = constant + slope × raw arrays, through the two ends
    low, high = results["clients"][0], results["clients"][-1]
    slope = (high["peak_bytes"] - low["peak_bytes"]) / (high["raw_bytes"] - low["raw_bytes"])
    results["peak_per_raw_byte"] = round(slope, 3)
    results["constant_bytes"] = round(low["peak_bytes"] - slope * low["raw_bytes"])
    for cohort in cohorts:
        row = apart(many[-2], cohort, 5)
        results["cohorts"].append(row)
        print(
            f"{many[-2]:>7} clients, cohort of {cohort}: {1e3 * row['seconds']:.2f} ms, "
            f"{1e6 * row['seconds'] / cohort:.0f} µs a client, recompilations {row['recompilations']}"
        )
    per_client = [row["seconds"] / row["cohort"] for row in results["cohorts"]]
    results["cost_per_client_at_most_over_least_cohort"] = round(per_client[-1] / per_client[0], 3)
    results["methods"] = {}
    for name in ("fedavg", "ifca", "fedgroup:known", "fedgroup:cold"):
        tries = [[apart(clients, many[0], 10, name) for clients in (many[0], many[-1])] for _ in range(3)]
        rows = [min(each, key=lambda row: row["seconds"]) for each in zip(*tries, strict=True)]
        ratio = round(rows[1]["seconds"] / rows[0]["seconds"], 3)
        results["methods"][name] = {"rows": rows, "ratio": ratio}
        print(
            f"{name}, cohort of {many[0]}: {1e3 * rows[0]['seconds']:.0f} ms among {many[0]}, "
            f"{1e3 * rows[1]['seconds']:.0f} ms among {many[-1]} ({ratio} ×), "
            f"preparing {rows[1]['preparing_seconds']:.1f} s, peak {rows[1]['peak_bytes'] / 2**20:.0f} MiB"
        )
    wide = apart(cohorts[-1], cohorts[-1], 1, "fedavg", 784, 128)
    results["reduced"] = wide
    print(
        f"reduced, cohort of {cohorts[-1]} × 101,770 parameters: "
        f"{wide['beside_the_data_bytes'] / 1e6:.0f} MB beside the data, {wide['seconds']:.2f} s"
    )
    finish(results, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        numbers = [int(each) if each.isdigit() else each for each in sys.argv[2:]]
        print(json.dumps(session(*numbers[:5], widths=tuple(numbers[5:]))))
    else:
        main()
