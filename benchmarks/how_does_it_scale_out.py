"""How does it scale out? Ray workers against threads of one process, what a request costs, and what travels.

    python benchmarks/how_does_it_scale_out.py [--json] [--tiny] [--only rounds,overhead,million,projection]

Needs the extra `ray`. Two workers with one thread each run on the machine on which `vectorized` has two threads; rounds
of both alternate, after rounds that compile. `ratio` is the time of vectorized divided by that of Ray: 1 is equal, less
than 1 is slower; of the best rounds, and the median over rounds that followed each other. Each comparison is made
twice, with new workers.

    rounds      the CNN of the papers with 200 clients per round, logistic regression with 1,000 clients per round
    overhead    a request whose work does nothing
    million     a million synthetic clients, 2,000 per round
    projection  rounds on up to 100 workers, computed from the figures above; a model, not a measurement
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
from common import arguments, cifar_clients, finish, peak_bytes, power_law, progress, ratio, spread, synthetic_clients

from coterie import models, tree
from coterie.aggregation.means import BLOCK
from coterie.clients import LocalSGD, Values, Work, fit
from coterie.federation import Mean, Server, Vectorized
from coterie.federation.ray.actor_pool import RayPool
from coterie.federation.ray.settings import RaySettings
from coterie.federation.ray.transport import RayTransport
from coterie.seeds import Seed

WORKERS = 2
#: Each comparison of rounds is made this often.
RUNS = 2

#: Assumptions of the projection: bytes per second to the driver, and bytes per second that it adds up.
NETWORK, ADDING = 1.25e9, 2e9


def nothing(task, x, y, seed):
    return {"nothing": np.float32(0)}


EMPTY = Work("benchmark.nothing", takes={}, gives={"nothing": Values("float32")}, plain=nothing, trains=False)


def in_turns(fed, other, ask, rounds, warm=2):
    """Seconds of the rounds of two federations, alternating, after some of each that compile."""
    seconds = ([], [])
    for t in range(rounds + warm):
        for place, each in enumerate((fed, other)):
            clock = time.perf_counter()
            ask(each, t)
            if t >= warm:
                seconds[place].append(time.perf_counter() - clock)
    return seconds


def one_run(data, task, cohort, local, rounds):
    """Seconds of the rounds of both backends, and what the workers did."""
    pool = RayPool(RaySettings(workers=WORKERS))
    transport = RayTransport(data, task, pool)
    here, there = Server(Vectorized(data, task, threads=WORKERS)), Server(transport)
    start = task.init(Seed(0))

    def ask(fed, t):
        clients = [data.clients[place] for place in sorted(Seed(t).sample(len(data.clients), cohort))]
        return fed.ask(sorted(clients), fit, Seed(t), start=start, local=local, reduce=Mean())

    assert tree.same(ask(here, 0).mean, ask(there, 0).mean), "results must have the same bytes"
    transport.work_done.row()
    ours, ray = in_turns(here, there, ask, rounds, warm=1)
    load = transport.work_done.row()
    pool.close()
    return {
        "vectorized_seconds": {**spread(ours), "all": ours},
        "ray_seconds": {**spread(ray), "all": ray},
        "ratio": ratio(ours, ray),
        "busy": load["busy"],
        "up_bytes_per_round": load["up_bytes"] / (rounds + 1),
        "shares_per_round": load["shares"] / (rounds + 1),
    }


def compare(name, data, task, cohort, local, rounds):
    """One row of `rounds`: both backends, the ratio, and the bytes that travel, in each of the runs."""
    start = task.init(Seed(0))
    return {
        "what": name,
        "data": data.name,
        "clients": cohort,
        "parameters": tree.size(start),
        "models_bytes": cohort * tree.nbytes(start),
        "runs": [one_run(data, task, cohort, local, rounds) for _ in range(RUNS)],
    }


def rounds(tiny):
    clients, count = (40, 1) if tiny else (200, 4)
    progress("CNN, two runs", None if tiny else 200)
    images = cifar_clients(clients, 20 if tiny else 50)
    task = models.build("cnn", images.shape, images.classes)
    yield compare("CNN", images, task, clients, LocalSGD(epochs=1, batch_size=10, learning_rate=0.01), count)
    clients = 100 if tiny else 1000
    progress("logistic regression, two runs", None if tiny else 60)
    digits = power_law(clients)
    task = models.build("mclr", digits.shape, digits.classes)
    local = LocalSGD(epochs=1 if tiny else 20, batch_size=10, learning_rate=0.01)
    yield compare("logistic regression", digits, task, clients, local, count)


def overhead(tiny):
    """Milliseconds of a request that does nothing, with one share and with many clients; `driver` is processor time."""
    progress("requests that do nothing", None if tiny else 30)
    data = synthetic_clients(100 if tiny else 1000)
    task = models.build("mclr", data.shape, 10)
    pool = RayPool(RaySettings(workers=WORKERS))
    transport = RayTransport(data, task, pool)
    here, there = Server(Vectorized(data, task, threads=WORKERS)), Server(transport)
    found = {}
    for cohort in (2, len(data.clients)):
        driver = []

        def ask(fed, t, cohort=cohort, driver=driver):
            clock = time.process_time()
            fed.ask(data.clients[:cohort], EMPTY, Seed(t))
            if fed is there:
                driver.append(time.process_time() - clock)

        ours, ray = in_turns(here, there, ask, 5 if tiny else 50)
        found[cohort] = {
            "vectorized_ms": 1e3 * statistics.median(ours),
            "vectorized_best_ms": 1e3 * min(ours),
            "ray_ms": 1e3 * statistics.median(ray),
            "ray_best_ms": 1e3 * min(ray),
            "driver_ms": 1e3 * statistics.median(driver),
            "shares": transport.work_done.row()["shares"] / len(driver),
        }
    pool.close()
    return found


def million(tiny):
    clients, cohort = (10_000, 200) if tiny else (1_000_000, 2000)
    progress(f"{clients:,} clients", None if tiny else 60)
    data = synthetic_clients(clients)
    task = models.build("mclr", data.shape, 10)
    pool = RayPool(RaySettings(workers=WORKERS))
    transport = RayTransport(data, task, pool)
    fed, start = Server(transport), task.init(Seed(0))
    seconds = []
    for t in range(2 if tiny else 11):
        chosen = sorted(data.clients[place] for place in Seed(t).sample(clients, cohort))
        began = time.perf_counter()
        fed.ask(chosen, fit, Seed(t), start=start, local=LocalSGD(epochs=1), reduce=Mean())
        seconds.append(time.perf_counter() - began)
    pool.close()
    return {
        "clients": clients,
        "cohort": cohort,
        "first_round_seconds": seconds[0],
        "round_seconds": spread(seconds[1:]),
        "data_bytes": data.x.nbytes,
        "driver_peak_bytes": peak_bytes(),
    }


def projection(measured, empty):
    """Seconds of a round on more workers: compute / workers, shares, and what travels to the driver.

    Assumptions: clients are equal; the work is divided evenly, up to 1/32 of the part of a worker, and a single client
    is not divided; a request takes as long as an empty one, and each share costs the driver as much processor time as a
    share of an empty request, one after another; whole blocks of 32 clients travel as sums of 8 bytes per parameter,
    the last quarter of the cohort as models, all of it if there are fewer than 64 clients per worker; the driver
    receives 10 Gbit/s and adds up 2 GB/s, and does neither while workers compute.
    """
    one = empty[min(empty)]
    latency, per_share = (one["ray_ms"] - one["vectorized_ms"]) / 1e3, one["driver_ms"] / one["shares"] / 1e3
    table = []
    for row in measured:
        compute = WORKERS * statistics.mean(run["ray_seconds"]["median"] * run["busy"] for run in row["runs"])
        for workers in (1, 2, 4, 10, 30, 100):
            shares = min(row["clients"], max(1, round(2 * workers * (1 + math.log(8)))))
            summed = 0.75 * row["clients"] if row["clients"] > 2 * workers * BLOCK else 0.0
            traveling = (summed / BLOCK * 8 + (row["clients"] - summed) * 4) * row["parameters"]
            largest = math.ceil(row["clients"] / workers) / row["clients"]  # a client is not divided
            seconds = latency + compute * max(largest, (1 + 1 / 32) / workers) + shares * per_share
            seconds += traveling * (1 / NETWORK + 1 / ADDING)
            table.append(
                {
                    "what": row["what"],
                    "workers": workers,
                    "seconds": seconds,
                    "speedup": compute / seconds,
                    "up_bytes": traveling,
                }
            )
    assumptions = " ".join(projection.__doc__.split())
    return {"latency_ms": 1e3 * latency, "per_share_ms": 1e3 * per_share, "rows": table, "assumptions": assumptions}


def show_rounds(row):
    for place, run in enumerate(row["runs"]):
        ours, ray = run["vectorized_seconds"], run["ray_seconds"]
        print(
            f"{row['what']}, {row['clients']} clients, run {place + 1}: vectorized {ours['best']:.3f} s (median "
            f"{ours['median']:.3f}), Ray {ray['best']:.3f} s ({ray['median']:.3f}), ratio {run['ratio']['best']:.2f} "
            f"({run['ratio']['median']:.2f}); {run['up_bytes_per_round'] / 1e6:.1f} MB to the driver per round instead "
            f"of {row['models_bytes'] / 1e6:.1f} MB"
        )
        for name, times in (("vectorized", ours["all"]), ("Ray", ray["all"])):
            print(f"  {name:10}", *(f"{seconds:.3f}" for seconds in times), flush=True)


def show_overhead(found):
    for cohort, row in found.items():
        times = f"vectorized {row['vectorized_ms']:.1f} ms, Ray {row['ray_ms']:.1f} ms"
        times += f" (processor time of the driver {row['driver_ms']:.1f} ms)"
        print(f"empty work, {cohort} clients: {times}, {row['shares']:.1f} shares", flush=True)


def show_million(row):
    print(
        f"{row['clients']:,} clients, {row['cohort']:,} per round: {row['round_seconds']['best']:.2f} s per round, the "
        f"first {row['first_round_seconds']:.1f} s; {row['data_bytes'] / 1e9:.2f} GB of examples",
        flush=True,
    )


def show_projection(found):
    print(found["assumptions"])
    for row in found["rows"]:
        print(f"  {row['what']:20} {row['workers']:4} workers  {row['seconds']:8.3f} s  {row['speedup']:6.1f} ×")


def main():
    options = arguments(__doc__.splitlines()[0], only="rounds,overhead,million,projection")
    wanted, results = options.only.split(","), {}
    if "rounds" in wanted or "projection" in wanted:
        results["rounds"] = []
        for row in rounds(options.tiny):
            show_rounds(row)
            results["rounds"].append(row)
    if "overhead" in wanted or "projection" in wanted:
        results["overhead"] = overhead(options.tiny)
        show_overhead(results["overhead"])
    if "million" in wanted:
        results["million"] = million(options.tiny)
        show_million(results["million"])
    if "projection" in wanted:
        results["projection"] = projection(results["rounds"], results["overhead"])
        show_projection(results["projection"])
    finish(results, options)


if __name__ == "__main__":
    main()
