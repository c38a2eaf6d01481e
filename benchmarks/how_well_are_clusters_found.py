"""How well are clusters found, counted and tracked? Planted clusters, the two distance measures, drift.

    COTERIE_DATA=... python benchmarks/how_well_are_clusters_found.py [--json] [--tiny]
                                                    [--only unseen,defaults,planted,measures,tracking] [--first-seed N]

All settings and all seeds are reported. `unseen` is the report: its seeds, from 1000 on, were run once, after all rules
and defaults were fixed (decision 0086); those of FLAG's newer rule are from 1005 on (`--first-seed 1005`, decision
0091). The others use seeds below 100, which were seen. The rule that chooses the number of clusters was developed on
seeds 10 to 19, but seeds 0 to 9 were not unseen: older rules had been tried on them, and the decision that EDC needs no
noise floor was made with their results known (9 of 10 with it, 10 of 10 without).
"""

from __future__ import annotations

import os
import statistics

import numpy as np
from common import arguments, finish

import coterie
from coterie import clustering, data, models, tree
from coterie.clients import LocalSGD
from coterie.clients.directions import update
from coterie.federation import Cached, vectorized
from coterie.seeds import Seed

#: Drift counts reported for each method, summed over the seeds.
COUNTS = ("shifts", "detected", "missed", "missed_not_in_cohort", "false_alarms", "early_alarms")
COUNTS += ("migrations", "migrations_correct", "migrations_wrong")
COUNTS += ("true_cluster_changes", "true_cluster_changes_detected")


#: Data of `unseen`, with their number of seeds.
UNSEEN = {
    "rotated, 20 clients": ({"name": "digits", "clients": 20}, 5),
    "rotated, 40 clients": ({"name": "digits"}, 5),
    "rotated, 80 clients": ({"name": "digits", "clients": 80}, 5),
    "inverted, 40 clients": ({"name": "digits", "partition": "inverted", "clusters": 2}, 5),
    "one cluster, 40 clients": ({"name": "digits", "clusters": 1}, 5),
    "one cluster, 80 clients": ({"name": "digits", "clusters": 1, "clients": 80}, 5),
    "labels, 20 clients": ({"name": "digits", "partition": "groups", "alpha": 1.0, "clients": 20}, 5),
    "labels, 40 clients": ({"name": "digits", "partition": "groups", "alpha": 1.0}, 5),
    "blobs, 40 clients": ({"name": "blobs"}, 5),
    "MNIST rotated, 40 clients": ({"name": "mnist", "partition": "rotated", "clients": 40}, 1),
}

#: Methods of `unseen`, with the rounds that they need to find their clusters; 0: the default number.
FINDERS = {"srfca": 0, "cfl": 0, "flhc": 11, "flag": 1, "flag, elbow": 1, "pacfl": 1, "fedgroup": 1, "flexcfl": 1}

#: Methods of `unseen` with a setting that is not the default.
VARIANTS = {"flag, elbow": {"name": "flag", "rule": "elbow"}}


def unseen(tiny, first_seed):
    """Number of seeds on which methods find the true clusters, without being told how many."""
    results = {}
    datasets = UNSEEN if os.environ.get("COTERIE_DATA") else {k: v for k, v in UNSEEN.items() if "MNIST" not in k}
    for label, (options, number) in list(datasets.items())[: 1 if tiny else None]:
        for name, rounds in FINDERS.items():
            scores, clusters = [], []
            for seed in range(first_seed, first_seed + (1 if tiny else number)):
                count = rounds or coterie.Spec().run.rounds
                run = {"rounds": count, "seed": seed, "evaluate_every": count}
                spec = {"data": {**options, "seed": seed}, "method": VARIANTS.get(name, name), "run": run}
                try:
                    found = coterie.run(spec).summary
                except coterie.Error as fault:  # such as a threshold at which no clients form a cluster
                    print(f"{name}, {label}, seed {seed}: {fault}")
                    scores.append(0.0)
                    clusters.append(0)
                    continue
                scores.append(found["truth"]["adjusted_rand"])
                clusters.append(len(found["clusters"]["sizes"]))
            results[f"{name}, {label}"] = {"found": scores.count(1.0), "adjusted_rand": scores, "clusters": clusters}
            shown = f"{scores.count(1.0)} of {len(scores)}; {np.round(scores, 2).tolist()}, clusters {clusters}"
            print(f"{name}, {label}: found on {shown}", flush=True)
    return results


def defaults(tiny):
    """Number of seeds on which methods that choose the number of clusters find the true ones, with default settings.

    As in `coterie run --data digits --method NAME`, seeds 0 to 9 for data and run: digits in four rotations, inverted
    for every other client, one cluster of equal clients, and five clusters with two labels each.
    """
    seeds = range(1 if tiny else 10)
    datasets = {
        "rotated, 40 clients": {},
        "rotated, 20 clients": {"clients": 20},
        "inverted, 40 clients": {"partition": "inverted", "clusters": 2},
        "one cluster, 40 clients": {"clusters": 1},
        "labels, 20 clients": {"partition": "groups", "alpha": 1.0, "clients": 20},
    }
    results = {}
    for name in ("srfca", "cfl", "flhc", "flag", "pacfl"):
        for label, options in datasets.items():
            scores = []
            for seed in seeds:
                spec = {"data": {"name": "digits", "seed": seed, **options}, "method": name}
                rounds = (
                    coterie.Spec().run.rounds if name in ("srfca", "cfl", "flhc") else 1
                )  # others cluster before round 0
                run = {"rounds": rounds, "seed": seed, "evaluate_every": rounds}
                scores.append(coterie.run({**spec, "run": run}).summary["truth"]["adjusted_rand"])
            results[f"{name}, {label}"] = {"found": scores.count(1.0), "adjusted_rand": scores}
            shown = np.round(scores, 2).tolist()
            print(f"{name}, {label}: found on {scores.count(1.0)} of {len(scores)} seeds; {shown}", flush=True)
    return results


def planted(tiny):
    """Number of seeds on which the four rotations of 40 clients are found, and their number is chosen correctly.

    First with 20 initial clients, so that the other half is assigned by update direction; then with all 40 and
    `clusters = "auto"`, which should choose four clusters, and one cluster without rotations.
    """
    seeds = range(2 if tiny else 10)
    settings = {f"fedgroup, {name}": {"name": "fedgroup", "measure": name} for name in ("edc", "madc")}
    settings["flexcfl"] = {"name": "flexcfl"}
    results = {}
    for label, method in settings.items():
        runs = [_clustered("rotated", seed, {**method, "clusters": 4, "alpha": 5}) for seed in seeds]
        scores = [run["truth"]["adjusted_rand"] for run in runs]
        results[label] = {"found": scores.count(1.0), "adjusted_rand": scores}
        print(f"{label}: all four found on {scores.count(1.0)} of {len(scores)} seeds; {np.round(scores, 2).tolist()}")
    for measure in ("edc", "madc"):
        for partition, true in (("rotated", 4), ("iid", 1)):
            method = {"name": "fedgroup", "clusters": "auto", "measure": measure}
            counts = [len(_clustered(partition, seed, method)["clusters"]["sizes"]) for seed in seeds]
            results[f"auto, {measure}, {partition}"] = {"right": counts.count(true), "clusters": counts}
            print(f"auto, {measure}, {partition}: {true} chosen on {counts.count(true)} of {len(counts)}; {counts}")
    return results


def _clustered(partition, seed, method):
    run = {"rounds": 1, "clients_per_round": 40, "seed": seed}
    return coterie.run({"data": {"name": "digits", "partition": partition}, "method": method, "run": run}).summary


def measures(tiny):
    """EDC against MADC over all pairs of pre-trained MNIST clients of two digits; FedGroup calls it "nearly linear".

    Pearson correlation for 60 initial clients of 3 clusters and 100 of 5, pre-trained for 50 steps with the papers'
    learning rate; with standardized pixels, as in the papers, and with pixels scaled to [0, 1].
    """
    if not os.environ.get("COTERIE_DATA"):
        print("EDC against MADC: needs MNIST in $COTERIE_DATA; skipped")
        return None
    clients = data.load("mnist-powerlaw")
    local, results = LocalSGD(steps=50, batch_size=10, learning_rate=0.03), {}
    for pixels, scale in (("standardized", clients.normalize), ("scaled", (0.0, 255.0))):
        task = models.build("mclr", clients.shape, clients.classes, normalize=models.Normalize(*scale))
        fed = vectorized(clients, task)
        for clusters in (3,) if tiny else (3, 5):
            correlations = []
            for number in range(1 if tiny else 5):
                seed = Seed(number)
                initial = [fed.clients[i] for i in seed.sample(len(fed.clients), 20 * clusters)]
                got = fed.ask(initial, update, seed, w0=Cached(task.init(seed.fold("init"))), local=local)
                updates = tree.flatten_rows(got["update"])
                pairs = np.triu_indices(len(updates), 1)
                both = clustering.edc(updates, clusters)[pairs], clustering.madc(updates)[pairs]
                correlations.append(round(float(np.corrcoef(*both)[0, 1]), 3))
            results[f"{pixels}, {20 * clusters} clients"] = correlations
            print(f"EDC against MADC, pixels {pixels}, {20 * clusters} clients, m = {clusters}: Pearson {correlations}")
    return results


def tracking(tiny):
    """Which shifts are detected, how late, and whether clients migrate correctly: 40 clients, digits in four rotations.

    The settings of the demonstration, seeds 0 to 2. Shifts begin in round 20, when clusters are stable; from then on
    pairs of clients swap data and images rotate with probability 0.05 per round. `incremental` releases data in rounds
    0, 20, 30 and 40, `new_class` the last class in round 30; neither changes true clusters, and neither does
    `swap_part`. FeSEM has a warm start. IFCA has a single start, like IFCA-MIG, which finds three of the four rotations
    on seeds 0 to 4. The oracle knows the true clusters and registers a move when the client next takes part.
    """
    methods = {
        "flexcfl": {"name": "flexcfl", "clusters": 4},
        "ifca": {"name": "ifca", "clusters": 4},
        "ifca-mig": {"name": "ifca-mig", "clusters": 4},
        "fesem": {"name": "fesem", "clusters": 4, "warm_start": True},
        "fesem-mig": {"name": "fesem-mig", "clusters": 4, "warm_start": True},
        "oracle": {"name": "oracle"},
    }
    rounds, settled = (6, 3) if tiny else (60, 20)
    every = list(range(settled, rounds))
    shifts = {name: {"name": name, "rounds": every} for name in ("swap_all", "swap_part", "rotate")}
    shifts["incremental"] = {"name": "incremental", "rounds": [0, 3, 4, 5] if tiny else [0, 20, 30, 40]}
    shifts["new_class"] = {"name": "new_class", "rounds": [4 if tiny else 30]}
    spec = {"data": "digits"}
    results = {}
    for shift, settings in shifts.items():
        for label, method in methods.items():
            runs = []
            for seed in range(1 if tiny else 3):
                run = {"rounds": rounds, "clients_per_round": 10, "evaluate_every": rounds, "seed": seed}
                runs.append(coterie.run({**spec, "method": method, "shift": settings, "run": run}).summary)
            results[f"{shift}, {label}"] = row = _combined(runs)
            shown = ", ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
            print(f"{shift}, {label}: {shown}", flush=True)
    return results


def _combined(runs):
    """Counts summed over runs, and the mean delay of all detected shifts."""
    drifts = [run["drift"] for run in runs]
    row = {name: sum(each[name] for each in drifts) for name in COUNTS}
    detecting = [each for each in drifts if each["detected"]]
    for name in ("delay", "delay_in_cohort"):
        total = sum(each[name] * each["detected"] for each in detecting)
        row[name] = total / row["detected"] if detecting else None
    row["delay_max"] = max((each["delay_max"] for each in detecting), default=None)
    row["adjusted_rand"] = statistics.fmean(run["truth"]["adjusted_rand"] for run in runs)
    row["accuracy"] = statistics.fmean(run["accuracy"]["weighted"] for run in runs)
    return row


EXPERIMENTS = {"unseen": unseen, "defaults": defaults, "planted": planted, "measures": measures, "tracking": tracking}


def main():
    options = arguments(__doc__.splitlines()[0], only=",".join(EXPERIMENTS), first_seed=1000)
    results = {}
    for name in options.only.split(","):
        seeds = [options.first_seed] if name == "unseen" else []  # the others use seeds below 100
        results[name] = EXPERIMENTS[name](options.tiny, *seeds)
    finish(results, options)


if __name__ == "__main__":
    main()
