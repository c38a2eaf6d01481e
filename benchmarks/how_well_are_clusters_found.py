"""How well are kinds of clients found, counted and followed? Planted rotations, the two measures, drift.

    COTERIE_DATA=... python benchmarks/how_well_are_clusters_found.py [--json] [--tiny]
                                                    [--only defaults,planted,measures,following]

All settings stand here, and all seeds are told. The rule by which the number of groups is chosen was worked out on
seeds 10 to 19, but 0 to 9 were not unseen: older rules had been tried on them, and that EDC needs no noise floor was
decided with their result at hand (9 of 10 with it, 10 of 10 without).
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

#: What is told of each method that follows drift: counts, summed over the seeds.
COUNTS = ("shifts", "detected", "missed", "missed_not_in_cohort", "false_alarms", "early_alarms")
COUNTS += ("migrations", "migrations_correct", "migrations_wrong")
COUNTS += ("true_cluster_changes", "true_cluster_changes_detected")


def defaults(tiny):
    """On how many seeds kinds are found by methods that are not told their number, every setting left alone.

    As `coterie run --data digits --method NAME` has it, seeds 0 to 9 for data and run: digits turned in four ways,
    inverted by every other client, equal clients who are one kind, and five groups with two labels each. FLAG counts
    180° for a class that one of two clients lacks, and with 36 images a fifth of 40 clients lack one by chance. PACFL's
    subspaces have 30 of 64 dimensions, and any two of them nearly touch: it sees labels, not rotations.
    """
    seeds = range(1 if tiny else 10)
    worlds = {
        "rotated, 40 clients": {},
        "rotated, 20 clients": {"clients": 20},
        "inverted, 40 clients": {"partition": "inverted", "clusters": 2},
        "one kind, 40 clients": {"clusters": 1},
        "labels, 20 clients": {"partition": "groups", "alpha": 1.0, "clients": 20},
    }
    results = {}
    for name in ("srfca", "cfl", "flhc", "flag", "pacfl"):
        for label, drifting in worlds.items():
            scores = []
            for seed in seeds:
                spec = {"data": {"name": "digits", "seed": seed, **drifting}, "method": name}
                rounds = coterie.Spec().run.rounds if name in ("srfca", "cfl", "flhc") else 1  # others find kinds first
                run = {"rounds": rounds, "seed": seed, "evaluate_every": rounds}
                scores.append(coterie.run({**spec, "run": run}).summary["truth"]["adjusted_rand"])
            results[f"{name}, {label}"] = {"found": scores.count(1.0), "adjusted_rand": scores}
            told = np.round(scores, 2).tolist()
            print(f"{name}, {label}: found on {scores.count(1.0)} of {len(scores)} seeds; {told}", flush=True)
    return results


def planted(tiny):
    """On how many seeds the four ways in which 40 clients turn their digits are found, and counted.

    With 20 founders, so that half of the clients come in by their direction; then with all 40 and without a number of
    groups, which is to be four, and one where nothing is turned.
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
            results[f"auto, {measure}, {partition}"] = {"right": counts.count(true), "groups": counts}
            print(f"auto, {measure}, {partition}: {true} chosen on {counts.count(true)} of {len(counts)}; {counts}")
    return results


def _clustered(partition, seed, method):
    run = {"rounds": 1, "clients_per_round": 40, "seed": seed}
    return coterie.run({"data": {"name": "digits", "partition": partition}, "method": method, "run": run}).summary


def measures(tiny):
    """EDC against MADC over all pairs of pre-trained MNIST clients of two digits; "nearly linear", says FedGroup.

    Pearson's correlation for 60 founders of 3 groups and 100 of 5, pre-trained for 50 steps with the papers' rate; with
    pixels standardized, as the papers have them, and merely scaled to [0, 1].
    """
    if not os.environ.get("COTERIE_DATA"):
        print("EDC against MADC: needs MNIST in $COTERIE_DATA")
        return None
    clients = data.load("mnist-powerlaw")
    local, results = LocalSGD(steps=50, batch_size=10, learning_rate=0.03), {}
    for pixels, scale in (("standardized", clients.normalize), ("scaled", (0.0, 255.0))):
        task = models.build("mclr", clients.shape, clients.classes, normalize=models.Normalize(*scale))
        fed = vectorized(clients, task)
        for groups in (3,) if tiny else (3, 5):
            found = []
            for number in range(1 if tiny else 5):
                seed = Seed(number)
                founders = [fed.clients[i] for i in seed.sample(len(fed.clients), 20 * groups)]
                got = fed.ask(founders, update, seed, w0=Cached(task.init(seed.fold("init"))), local=local)
                updates = tree.flatten_rows(got["update"])
                pairs = np.triu_indices(len(updates), 1)
                both = clustering.edc(updates, groups)[pairs], clustering.madc(updates)[pairs]
                found.append(round(float(np.corrcoef(*both)[0, 1]), 3))
            results[f"{pixels}, {20 * groups} clients"] = found
            print(f"EDC against MADC, pixels {pixels}, {20 * groups} clients, m = {groups}: Pearson {found}")
    return results


def following(tiny):
    """Who notices which shift, how late, and moves whom where: 40 clients with digits that are turned in four ways.

    The settings of the demonstration, seeds 0 to 2. Shifts begin in round 20, when methods have settled; from then on
    pairs swap and images turn with probability 0.05 in each round. The rest of the data comes in rounds 0, 20, 30, 40,
    the last class in round 30; neither changes anybody's true cluster, nor does an exchange of two classes. FeSEM has
    a warm start. IFCA has a single start, as IFCA-MIG has, which on seeds 0 to 4 finds three of the four ways; the
    oracle, who knows them, notices a move when it next hears of the client.
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
    for shift, drifting in shifts.items():
        for label, method in methods.items():
            runs = []
            for seed in range(1 if tiny else 3):
                run = {"rounds": rounds, "clients_per_round": 10, "evaluate_every": rounds, "seed": seed}
                runs.append(coterie.run({**spec, "method": method, "shift": drifting, "run": run}).summary)
            results[f"{shift}, {label}"] = row = _together(runs)
            told = ", ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
            print(f"{shift}, {label}: {told}", flush=True)
    return results


def _together(runs):
    """Counts of several runs added up, and the mean delay of all that was noticed."""
    drifts = [run["drift"] for run in runs]
    row = {name: sum(each[name] for each in drifts) for name in COUNTS}
    noticed = [each for each in drifts if each["detected"]]
    for name in ("delay", "delay_in_cohort"):
        total = sum(each[name] * each["detected"] for each in noticed)
        row[name] = total / row["detected"] if noticed else None
    row["delay_max"] = max((each["delay_max"] for each in noticed), default=None)
    row["adjusted_rand"] = statistics.fmean(run["truth"]["adjusted_rand"] for run in runs)
    row["accuracy"] = statistics.fmean(run["accuracy"]["weighted"] for run in runs)
    return row


EXPERIMENTS = {"defaults": defaults, "planted": planted, "measures": measures, "following": following}


def main():
    options = arguments(__doc__.splitlines()[0], only=",".join(EXPERIMENTS))
    finish({name: EXPERIMENTS[name](options.tiny) for name in options.only.split(",")}, options)


if __name__ == "__main__":
    main()
