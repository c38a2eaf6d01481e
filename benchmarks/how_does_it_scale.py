"""How does it scale? Time and memory of rounds with more clients, larger cohorts, larger models and more clusters.

    python benchmarks/how_does_it_scale.py [--json] [--tiny] [--only clients,cohorts,parameters,clusters,methods,growth]

Each case runs in a process of its own, so that its peak memory is its own. The processes of a table wait while one of
them runs, and rounds alternate. Clients have 20 examples of 64 numbers; they train one epoch with batch size 10. Ratios
compare with the first case of a table: `best` the best rounds, `median` the rounds that followed each other.

    clients     a cohort of 20 among 1,000 to 1,000,000 clients, FedAvg
    cohorts     20 to 2,000 clients per round among 100,000, FedAvg
    parameters  models of 650 to 3,716,106 parameters, 20 clients per round, FedAvg
    clusters    1 to 32 clusters, 200 clients per round among 10,000, IFCA and FedGroup
    methods     a cohort of 1,000 among 1,000 and 1,000,000 clients: FedAvg, IFCA and FedGroup with four clusters
    growth      memory over 2,000 rounds, after garbage collection: the slope of the last two thirds

A FedGroup client trains 50 more steps when it is first drawn, to find its cluster. Among a million clients nearly every
cohort consists of such clients, and among a thousand none after the first rounds. So FedGroup is measured with clients
that all have a cluster (known), and with clients that have none yet (cold). Its clusters are formed from 2,000 initial
clients, or all if there are fewer. how_fast_is_a_round.py compares numbers of threads.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from common import arguments, finish, peak_bytes, progress, ratio, seconds_of, spread, synthetic_clients

ONLY = "clients,cohorts,parameters,clusters,methods,growth"
MEASURE = "--measure"


# ------------------------------------------------------------------------------------------------ the process of a case


class Case:
    """A federation with a method, of which single rounds are run; the first rounds compile and are not counted."""

    def __init__(self, clients, cohort, method="fedavg", clusters=4, features=64, widths=()):
        from coterie import models
        from coterie.federation import vectorized
        from coterie.federation.compilation import compilations
        from coterie.runs.sampling import Sampler
        from coterie.seeds import Seed

        self._at_start = peak_bytes()
        data = synthetic_clients(clients, features=features)
        self.raw_bytes = data.x.nbytes + data.y.nbytes + data.fit.order.nbytes + data.fit.offsets.nbytes
        task = models.mlp(data.shape, 10, widths=tuple(widths)) if widths else models.mclr(data.shape, 10)
        self._fed, self._seed = vectorized(data, task), Seed(0)
        name, _, self._variant = method.partition(":")
        self._method = build_method(name, clusters, clients)
        self._state = self._method.start(task, self._seed)
        warm = Sampler(self._fed.clients, min(20, cohort), self._seed)
        self.preparing = 0.0
        while self._method.stage(self._state) == "prepare":
            self.preparing += seconds_of(lambda: self._round(warm.all_clients(0), "prepare", 0))
        for t in range(2):
            self._round(warm.cohort(t), "round", t)
        self._sampler, self._t = Sampler(self._fed.clients, cohort, self._seed), 2
        self._before, self._compilations = peak_bytes(), compilations
        self.next_round()
        self._compiled = compilations().count

    def _round(self, cohort, name, t):
        self._state = self._method.round(self._state, self._fed, cohort, self._seed.fold(name, t)).state

    def next_round(self):
        """Seconds of the next round."""
        cohort, t = self._sampler.cohort(self._t), self._t
        if self._variant == "known":
            self._round(cohort, "round", t)  # the second time, all clients have a cluster
        elif self._variant == "cold":
            self._state = forget(self._state)
        self._t += 1
        return seconds_of(lambda: self._round(cohort, "round", t))

    def figures(self):
        return {
            "preparing_seconds": self.preparing,
            "raw_bytes": self.raw_bytes,
            "peak_bytes": peak_bytes(),
            "interpreter_bytes": self._at_start,
            "beside_the_data_bytes": peak_bytes() - self._before,
            "recompilations": self._compilations().count - self._compiled,
        }


def build_method(name, clusters, clients):
    from coterie.clients import LocalSGD
    from coterie.methods import build

    alpha = min(2000, clients) // clusters
    options = {"ifca": {"clusters": clusters}, "fedgroup": {"clusters": clusters, "alpha": alpha, "assign": "lazy"}}
    return build(name, LocalSGD(epochs=1), {}, **options.get(name, {}))


def forget(state):
    """The same clusters without members."""
    from coterie.client_map import ClientMap

    return dataclasses.replace(state, assignment=ClientMap())


def serve(settings):
    """Run a round for each line of standard input; the figures of the process are the last line."""
    case = Case(**settings)
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(case.next_round()), flush=True)
    print(json.dumps(case.figures()), flush=True)


def resident():
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def growth(method, rounds):
    """Bytes that a round leaves behind."""
    case, sizes = Case(1000, 20, method), []
    every = max(1, rounds // 30)  # collecting garbage takes longer than a round
    for t in range(rounds):
        case.next_round()
        if t % every == 0:
            sizes.append(resident())
    kept = sizes[len(sizes) // 3 :]
    slope = np.polyfit(np.arange(len(kept)), kept, 1)[0] / every
    return {"method": method, "rounds": rounds, "bytes_per_round": float(slope), "peak_bytes": peak_bytes()}


# ----------------------------------------------------------------------------------------------------------- the tables


class Process:
    """A case in a process of its own."""

    def __init__(self, settings):
        command = [sys.executable, __file__, MEASURE, json.dumps(settings)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.settings = settings
        self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The process of {self.settings} ended with exit code {self._process.wait()}")
        return json.loads(line)

    def next_round(self):
        print(file=self._process.stdin, flush=True)
        return self._answer()

    def close(self):
        self._process.stdin.close()
        figures = self._answer()
        self._process.wait(60)
        return figures


def compare(cases, rounds):
    """One row per case: its settings, seconds, the ratio to the first case, and memory."""
    processes = [Process(case) for case in cases]
    times = [[] for _ in cases]
    for _ in range(rounds):
        for process, own in zip(processes, times, strict=True):
            own.append(process.next_round())
    return [
        {**case, "seconds": spread(own), "ratio": ratio(own, times[0]), **process.close()}
        for case, own, process in zip(cases, times, processes, strict=True)
    ]


def parameters(features, widths):
    """Number of parameters of a dense network with ten outputs."""
    sizes = (features, *widths, 10)
    return sum((a + 1) * b for a, b in pairwise(sizes))


def by_clients(tiny):
    cases = [{"clients": n, "cohort": 20} for n in ((100, 1000) if tiny else (1000, 10_000, 100_000, 1_000_000))]
    rows = compare(cases, 3 if tiny else 40)
    # peak = constant + slope × raw arrays, from the smallest and the largest size
    low, high = rows[0], rows[-1]
    slope = (high["peak_bytes"] - low["peak_bytes"]) / (high["raw_bytes"] - low["raw_bytes"])
    return {"rows": rows, "peak_per_raw_byte": slope, "constant_bytes": low["peak_bytes"] - slope * low["raw_bytes"]}


def by_cohorts(tiny):
    clients, cohorts = (1000, (20, 100)) if tiny else (100_000, (20, 200, 2000))
    return {"rows": compare([{"clients": clients, "cohort": n} for n in cohorts], 2 if tiny else 10)}


def by_parameters(tiny):
    sizes = [(64, ()), (64, (128,)), (784, (128,)), (784, (1024,)), (784, (2048, 1024))]
    cases = [{"clients": 100, "cohort": 20, "features": n, "widths": widths} for n, widths in sizes[: 2 if tiny else 5]]
    rows = compare(cases, 2 if tiny else 10)
    steps = 20 * 2  # clients × batches
    for row in rows:
        row["parameters"] = parameters(row["features"], row["widths"])
        row["us_per_step"] = {key: 1e6 * value / steps for key, value in row["seconds"].items()}
    return {"rows": rows}


def by_clusters(tiny):
    clients, cohort, counts = (200, 20, (1, 2)) if tiny else (10_000, 200, (1, 2, 4, 8, 16, 32))
    found = {}
    for name in ("ifca", "fedgroup:known"):
        cases = [{"clients": clients, "cohort": cohort, "method": name, "clusters": n} for n in counts]
        if name != "ifca":
            cases = cases[1:]  # FedGroup with one cluster is FedAvg
        found[name] = {"rows": compare(cases, 2 if tiny else 10)}
    return found


def by_methods(tiny):
    few, many = (100, 1000) if tiny else (1000, 1_000_000)
    found = {}
    for name in ("fedavg", "ifca", "fedgroup:known", "fedgroup:cold"):
        cases = [{"clients": n, "cohort": few, "method": name} for n in (few, many)]
        progress(name, None if tiny else 40)
        found[name] = {"rows": compare(cases, 2 if tiny else 10)}
    return found


def by_growth(tiny):
    rounds = 30 if tiny else 2000
    found = []
    for name in ("fedavg", "ifca"):
        command = [sys.executable, __file__, MEASURE, json.dumps({"growth": [name, rounds]})]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {"rows": found}


#: Table → function, and seconds that it usually takes.
TABLES = {
    "clients": (by_clients, 45),
    "cohorts": (by_cohorts, 20),
    "parameters": (by_parameters, 30),
    "clusters": (by_clusters, 60),
    "methods": (by_methods, 160),
    "growth": (by_growth, 25),
}


def show(table):
    """The rows of a table, or of several by method."""
    if "rows" not in table:
        for each in table.values():
            show(each)
        return
    for row in table["rows"]:
        names = ("method", "clients", "cohort", "parameters", "clusters", "rounds")
        what = ", ".join(f"{name} {row[name]}" for name in names if name in row)
        if "seconds" in row:
            times, compared = row["seconds"], row["ratio"]
            what += f": {1e3 * times['best']:.2f} ms (median {1e3 * times['median']:.2f}), "
            what += f"{compared['best']:.2f} ({compared['median']:.2f}) × the first, "
            what += f"raw arrays {row['raw_bytes'] / 2**20:.0f} MiB, recompilations {row['recompilations']}"
        else:
            what += f": {row['bytes_per_round']:.0f} bytes more each"
        print(f"  {what}, peak {row['peak_bytes'] / 2**20:.0f} MiB", flush=True)


def main():
    options = arguments(__doc__.splitlines()[0], only=ONLY)
    results = {}
    for name in options.only.split(","):
        measure, usually = TABLES[name]
        progress(name, None if options.tiny else usually)
        results[name] = measure(options.tiny)
        print(f"{name}:")
        show(results[name])
    if "clients" in results:
        table = results["clients"]
        print(
            f"peak memory: {table['constant_bytes'] / 2**20:.0f} MiB plus {table['peak_per_raw_byte']:.2f} times the "
            "raw arrays"
        )
    finish(results, options)


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        asked = json.loads(sys.argv[2])
        if "growth" in asked:
            print(json.dumps(growth(*asked["growth"])))
        else:
            serve(asked)
    else:
        main()
