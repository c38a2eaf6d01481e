"""How does it scale? Time and memory of rounds with 1,000 to 1,000,000 clients and cohorts of 20 to 2,000.

    python benchmarks/how_does_it_scale.py [--json] [--tiny]

Each size runs in its own process, so that its peak memory is measured separately. Clients have 20 examples of 64
numbers; they train one epoch with batch size 10. Times are the best of several rounds after the first two; for cohorts
of a thousand, the best of three processes, alternating between few and many clients. These use three methods: FedAvg,
IFCA with four clusters, and FedGroup with four clusters formed from 2,000 initial clients, or all if there are fewer.

A FedGroup client trains 50 more steps when it is first drawn, to find its cluster. Among a million clients nearly every
cohort consists of such clients, and among a thousand none after the first rounds. So FedGroup is measured twice: with
clients that all have a cluster (known), and with clients that have none yet (cold).
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time

import numpy as np
from common import arguments, empty_index, finish, peak_bytes

SAMPLES, FEATURES, CLASSES = 20, 64, 10


def federation(clients, features=FEATURES, widths=()):
    from coterie import models
    from coterie.data import partition
    from coterie.data.federated import FederatedData, Index, aligned
    from coterie.federation import vectorized

    x = aligned(np.empty((clients * SAMPLES, features), np.float32))
    rng = np.random.default_rng(0)
    for first in range(0, len(x), 65536):
        x[first : first + 65536] = rng.random(x[first : first + 65536].shape, dtype=np.float32)
    y = rng.integers(0, CLASSES, len(x)).astype(np.int32)
    index = Index.from_sizes(np.arange(len(x), dtype=np.int32), np.full(clients, SAMPLES))
    data = FederatedData("random", x, y, partition.numbered(clients), index, empty_index(clients), CLASSES)
    task = models.mlp(data.shape, CLASSES, widths=widths) if widths else models.mclr(data.shape, CLASSES)
    return data, vectorized(data, task), task


def build_method(name):
    from coterie.clients import LocalSGD
    from coterie.methods import build

    options = {"ifca": {"clusters": 4}, "fedgroup": {"clusters": 4, "alpha": 500, "assign": "lazy"}}
    return build(name, LocalSGD(epochs=1), {}, **options.get(name, {}))


def forget(state):
    """The same clusters without members."""
    from coterie.client_map import ClientMap

    return dataclasses.replace(state, assignment=ClientMap())


def measure(clients, cohort, rounds, label="fedavg", features=FEATURES, widths=()):
    """Seconds of the fastest round, and the memory of the process.

    With the label "fedgroup:known" each cohort trains twice and the second time counts; with "fedgroup:cold" clusters
    are emptied before each round.
    """
    from coterie.federation.compilation import compilations
    from coterie.runs.sampling import Sampler
    from coterie.seeds import Seed

    begin = peak_bytes()
    data, fed, task = federation(clients, features, widths)
    name, _, variant = label.partition(":")
    method, seed = build_method(name), Seed(0)
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
        if variant == "known":
            state = method.round(state, fed, sampler.cohort(t), seed.fold("round", t)).state
        elif variant == "cold":
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


def in_own_process(*arguments):
    """`measure` in its own process."""
    command = [sys.executable, __file__, "--measure", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = arguments(__doc__.splitlines()[0])
    sizes = (100, 1000) if options.tiny else (1000, 10_000, 100_000, 1_000_000)
    cohorts = (20, 100) if options.tiny else (20, 200, 2000)
    results = {"clients": [], "cohorts": []}
    for clients in sizes:
        row = in_own_process(clients, 20, 30)
        results["clients"].append(row)
        print(
            f"{clients:>7} clients, cohort of 20: {1e3 * row['seconds']:.2f} ms, "
            f"peak {row['peak_bytes'] / 2**20:.0f} MiB, raw arrays {row['raw_bytes'] / 2**20:.0f} MiB"
        )
    results["round_at_most_over_least_clients"] = round(
        results["clients"][-1]["seconds"] / results["clients"][0]["seconds"], 3
    )
    # peak = constant + slope × raw arrays, from the smallest and the largest size
    low, high = results["clients"][0], results["clients"][-1]
    slope = (high["peak_bytes"] - low["peak_bytes"]) / (high["raw_bytes"] - low["raw_bytes"])
    results["peak_per_raw_byte"] = round(slope, 3)
    results["constant_bytes"] = round(low["peak_bytes"] - slope * low["raw_bytes"])
    for cohort in cohorts:
        row = in_own_process(sizes[-2], cohort, 5)
        results["cohorts"].append(row)
        print(
            f"{sizes[-2]:>7} clients, cohort of {cohort}: {1e3 * row['seconds']:.2f} ms, "
            f"{1e6 * row['seconds'] / cohort:.0f} µs per client, recompilations {row['recompilations']}"
        )
    per_client = [row["seconds"] / row["cohort"] for row in results["cohorts"]]
    results["cost_per_client_at_most_over_least_cohort"] = round(per_client[-1] / per_client[0], 3)
    results["methods"] = {}
    for name in ("fedavg", "ifca", "fedgroup:known", "fedgroup:cold"):
        tries = [[in_own_process(clients, sizes[0], 10, name) for clients in (sizes[0], sizes[-1])] for _ in range(3)]
        rows = [min(each, key=lambda row: row["seconds"]) for each in zip(*tries, strict=True)]
        ratio = round(rows[1]["seconds"] / rows[0]["seconds"], 3)
        results["methods"][name] = {"rows": rows, "ratio": ratio}
        print(
            f"{name}, cohort of {sizes[0]}: {1e3 * rows[0]['seconds']:.0f} ms with {sizes[0]} clients, "
            f"{1e3 * rows[1]['seconds']:.0f} ms with {sizes[-1]} ({ratio} ×), "
            f"preparation {rows[1]['preparing_seconds']:.1f} s, peak {rows[1]['peak_bytes'] / 2**20:.0f} MiB"
        )
    wide = in_own_process(cohorts[-1], cohorts[-1], 1, "fedavg", 784, 128)
    results["reduced"] = wide
    print(
        f"reduced, cohort of {cohorts[-1]} × 101,770 parameters: "
        f"{wide['beside_the_data_bytes'] / 1e6:.0f} MB besides the data, {wide['seconds']:.2f} s"
    )
    finish(results, options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        numbers = [int(each) if each.isdigit() else each for each in sys.argv[2:]]
        print(json.dumps(measure(*numbers[:5], widths=tuple(numbers[5:]))))
    else:
        main()
