"""How close are results to the papers? Runs with published settings, beside the published figures.

    COTERIE_DATA=... python benchmarks/how_close_to_the_papers.py [--json] [--tiny] [--only powerlaw,drift]

The papers report the best test accuracy over the rounds; the mean of the last ten rounds is given too. `drift` has
FlexCFL's settings (10 epochs) with fewer rounds; `powerlaw` has FedGroup's 20 epochs and the same published figure;
`srfca`, `fedsim` and `flag` state theirs. The settings of `fashion` and `rotated` are ours and were chosen after
looking at test results of other settings: they show what can be reached, not an unbiased estimate. Each function says
what was tried.
"""

from __future__ import annotations

import statistics

from common import arguments, finish

import coterie

#: Published figures in percent: FlexCFL, tables 2 and 3 (best over 300 rounds, one seed).
PUBLISHED = {"powerlaw": 89.4, "fashion": 89.2}


#: Figure → the coverage of its rounds.
COVERED = (("best", "best_coverage"), ("last_ten", "coverage"))


def _at(coverage):
    """The coverage beside a figure, if some clients had no model of their own."""
    return f" (coverage {100 * coverage:.0f} %)" if coverage < 1 else ""


def figures(label, spec, seeds, published=None):
    """Run a spec with several seeds and print the results."""
    rows = []
    for seed in seeds:
        summary = coterie.run({**spec, "run": {**spec["run"], "seed": seed}}).summary
        accuracy, truth = summary["accuracy"], summary["truth"] or {}
        rows.append(
            {
                "seed": seed,
                "best": accuracy["weighted_best"],
                "last_ten": accuracy["weighted_last_ten"],
                "best_coverage": accuracy["weighted_best_coverage"],
                "coverage": accuracy["last_ten_coverage"],
                "adjusted_rand": truth.get("adjusted_rand"),
                "seconds": summary["seconds"]["total"],
            }
        )
        print(f"{label}, seed {seed}: " + ", ".join(f"{k} {v:.3f}" for k, v in rows[-1].items() if v is not None))
    means = {key: statistics.fmean(row[key] for row in rows) for pair in COVERED for key in pair}
    best, last = (f"{100 * means[key]:.1f} %{_at(means[cover])}" for key, cover in COVERED)
    print(f"{label}: best {best}, last ten {last}, published {published}")
    return {"runs": rows, **means, "published_best": published}


def powerlaw(tiny):
    """FedAvg, logistic regression, MNIST in a thousand clients of two digits: K = 20, E = 20, 100 rounds.

    Four draws of the data, one run each. Client sizes have the published standard deviation (`mnist-powerlaw` redraws
    them until they do). Without redrawing, the deviation is half as large again, and a few clients with thousands of
    examples make the accuracy jump: 84.1, 86.5, 75.0 and 84.7 % in the last ten rounds (`published_spread = false`).
    """
    run = {"rounds": 2 if tiny else 100, "clients_per_round": 20}
    local = {"epochs": 20, "batch_size": 10, "learning_rate": 0.03}
    spec = {"model": "mclr", "method": "fedavg", "local": local, "run": run}
    draws = range(1 if tiny else 4)
    data = {draw: {"name": "mnist-powerlaw", "seed": draw} for draw in draws}
    return {
        f"draw_{draw}": figures(f"powerlaw, draw {draw}", {**spec, "data": data[draw]}, [0], PUBLISHED["powerlaw"])
        for draw in draws
    }


def fashion(tiny):
    """FedAvg on Fashion-MNIST in 500 clients, E = 10: a convolutional network against logistic regression.

    The network is LeNet-5 with PACFL's settings of local training. The published network (dense 1024) is seventy times
    as large, and its figure is the best of 300 rounds of 20 clients. Tried before, best and last ten, network against
    regression: cnn-mnist, E = 2, learning rate 0.01, 40 rounds: 77.6, 70.4 against 80.1, 75.6; LeNet-5 as here for 40
    rounds: 82.2, 78.0 against 81.4, 78.5; cnn, E = 10, learning rate 0.005 was not finished.
    """
    run = {"rounds": 2 if tiny else 100, "clients_per_round": 10, "evaluate_every": 2 if tiny else 5}
    local = {"epochs": 1 if tiny else 10, "batch_size": 10, "learning_rate": 0.01, "momentum": 0.5}
    spec = {"data": "fmnist-500", "method": "fedavg", "local": local, "run": run}
    models = {"mclr": None, "lenet5": PUBLISHED["fashion"]}
    return {name: figures(f"fashion {name}", {**spec, "model": name}, [0], known) for name, known in models.items()}


def rotated(tiny):
    """IFCA on MNIST in four rotations: initial models redrawn until balanced, as in its experiments, three restarts.

    Tried before: a single start with Adam 2e-4, 5 batches and all clients, which collapsed into three clusters.
    """
    method = {"name": "ifca", "clusters": 4, "balanced_share": 0.1, "restarts": 3}
    run = {"rounds": 2 if tiny else 30, "clients_per_round": 20, "evaluate_every": 2 if tiny else 10}
    spec = {
        "data": "mnist-rotated",
        "model": {"name": "mlp", "widths": [200]},
        "method": method,
        "local": {"steps": 10, "batch_size": 50, "learning_rate": 0.1},
        "run": run,
    }
    return {"ifca": figures("rotated", spec, range(1 if tiny else 3))}


#: Without a shift, FedGroup equals FlexCFL; the paper gives one figure for both.
#: FlexCFL, tables 3 and 4, MNIST with logistic regression: without a shift, and when pairs swap all their examples.
DRIFT = {
    "none": {"fedavg": 89.4, "fedgroup": 95.8, "flexcfl": 95.8, "random_assignment": 88.2},
    "swap_all": {"fedavg": 89.9, "fedgroup": 87.1, "flexcfl": 95.1},
}


def drift(tiny):
    """FedGroup and FlexCFL on MNIST in a thousand clients of two digits, E = 10, 100 rounds, with and without drift."""
    settings = {
        "fedavg": {"name": "fedavg"},
        "fedgroup": {"name": "fedgroup", "clusters": 3},
        "flexcfl": {"name": "flexcfl", "clusters": 3},
        "random_assignment": {"name": "fedgroup", "clusters": 3, "assignment": "random"},
    }
    spec = {
        "data": "mnist-powerlaw",
        "model": "mclr",
        "local": {"epochs": 1 if tiny else 10, "batch_size": 10, "learning_rate": 0.03},
        "run": {"rounds": 2 if tiny else 100, "clients_per_round": 20, "evaluate_every": 2},
    }
    return {
        f"{shift} {name}": figures(
            f"{shift}, {name}", {**spec, "method": settings[name], "shift": {"name": shift}}, [0], known
        )
        for shift, published in DRIFT.items()
        for name, known in published.items()
    }


#: SR-FCA, tables 1, 2 and 4: percent, mean over clients; settings of its published code, λ as a mean loss.
SRFCA = {
    "mnist-rotated": {
        "settings": {"threshold": 1.0, "init_steps": 250, "refine_rounds": 42},
        "clusters": 4,
        "global rate": 7.437e-4,
        "published": {"one shot": 85.55, "refine 1": 91.63, "refine 2": 91.66, "global": 80.88, "k-means": 10.35},
    },
    "mnist-inverted": {
        "settings": {"threshold": 38.5, "init_steps": 280, "refine_rounds": 56},
        "clusters": 2,
        "global rate": 2e-4,
        "published": {"one shot": 76.52, "refine 1": 91.88, "refine 2": 92.03, "global": 88.61, "k-means": 10.56},
    },
}


def srfca(tiny):
    """SR-FCA on rotated and inverted MNIST, stage by stage, with Global and Local-KMeans; `one shot` is Local.

    Settings are those of the published code, with its λ and with the λ of the widest gap. In that code the clients of a
    round share the arrays of their cluster's model and so train it one after the other: fifty sequential batches per
    round instead of five in parallel. Rows "as coded" do the same (`local.in_turn`), and use its trimming and its start
    of each REFINE; the others are the algorithm as printed. Local is not affected. The published Local-KMeans assembles
    its centroids incorrectly.
    """
    rows = {}
    for data, known in SRFCA.items():
        settings = {**known["settings"], **({"threshold": "gap", "init_steps": 5, "refine_rounds": 1} if tiny else {})}
        rounds = 2 * settings["refine_rounds"]
        spec = {
            "data": {"name": data, **({"clients": 8} if tiny else {})},
            "model": {"name": "mlp", "widths": [200], "init": "torch"},
            "local": {"steps": 5, "batch_size": 50, "learning_rate": 2e-4, "optimizer": "adam"},
            "run": {"rounds": rounds, "clients_per_round": 8 if tiny else 10, "evaluate_every": rounds},
        }
        methods = {
            "srfca": {"name": "srfca", **settings},
            "srfca, gap": {"name": "srfca", **settings, "threshold": "gap"},
            "srfca, as coded": {"name": "srfca", **settings, "trimming": "as_coded", "start_from": "new"},
            "global": {"name": "global"},
            "global, as coded": {"name": "global"},
            "localkmeans": {
                "name": "localkmeans",
                "clusters": known["clusters"],
                "init_steps": settings["init_steps"],
            },
        }
        for name, method in methods.items():
            own = {**spec, "method": method, "local": {**spec["local"], "in_turn": name.endswith("as coded")}}
            if method["name"] == "global":
                rounds = 1 if tiny else 50
                own["run"] = {**spec["run"], "rounds": rounds, "evaluate_every": rounds}
                own["local"] = {**own["local"], "learning_rate": known["global rate"]}
            rows[f"{data}, {name}"] = _phases(f"{data}, {name}", own, known["published"], tiny)
    return rows


def _phases(label, spec, published, tiny):
    """Mean client accuracy after each phase of a method and at the end, over several seeds."""
    found = {}
    for seed in range(1 if tiny else 2):
        summary = coterie.run({**spec, "run": {**spec["run"], "seed": seed}}).summary
        phases = {each["phase"]: each["accuracy"]["mean"] for each in summary["phases"]}
        phases |= {spec["method"]["name"]: summary["accuracy"]["mean"]} if not phases else {}
        found[seed] = {**phases, **summary["truth"], "found": summary["clusters"]["count"]}
        print(f"{label}, seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found[seed].items()), flush=True)
    means = {k: statistics.fmean(run[k] for run in found.values()) for k in published if k in found[0]}
    print(f"{label}: " + ", ".join(f"{k} {100 * v:.2f} % (published {published[k]})" for k, v in means.items()))
    return {"seeds": found, "means": means, "published": published}


#: FedSim, table 4 and the curves published with its code, MNIST with logistic regression: gain over FedAvg in
#: percentage points, mean over 30 rounds ± deviation over rounds; percent in the last round, means of 35 seeds.
FEDSIM = {"gain": 7.32, "over_rounds": 2.69, "last": {"fedavg": 81.92, "fedsim": 87.08}}


def fedsim(tiny):
    """FedSim against FedAvg on MNIST in a thousand clients of two digits: K = 20, C = 5, E = 20, 30 rounds, 5 seeds.

    One draw of the data for all seeds, as in the paper, and then one draw per seed. Also the paper's ablation with
    round-robin clusters, the first round of its code, and FedAvg with uniform weights, which separates the effect of
    clusters from that of smaller weights for large clients. Settings are the paper's; nothing was tried before.
    """
    methods = {
        "fedavg": {"name": "fedavg"},
        "fedavg, uniform": {"name": "fedavg", "weights": "uniform"},
        "fedsim": {"name": "fedsim", "clusters": 5},
        "fedsim, first round round-robin": {"name": "fedsim", "clusters": 5, "first_round": "round_robin"},
        "fedsim, round-robin": {"name": "fedsim", "clusters": 5, "clustering": "round_robin"},
    }
    spec = {
        "model": "mclr",
        "local": {"epochs": 1 if tiny else 20, "batch_size": 10, "learning_rate": 0.03},
        "run": {"rounds": 2 if tiny else 30, "clients_per_round": 20},
    }
    results = {}
    for draws in ("one draw", "one draw per seed"):
        curves = {}
        for label, method in methods.items():
            runs = []
            for seed in range(1 if tiny else 5):
                data = {"name": "mnist-powerlaw", **({"seed": 0} if draws == "one draw" else {})}
                record = coterie.run({**spec, "data": data, "method": method, "run": {**spec["run"], "seed": seed}})
                runs.append([row["accuracy"]["weighted"] for row in record.rounds])
            curves[label] = runs
            results[f"{draws}, {label}"] = _gain(f"{draws}, {label}", runs, curves["fedavg"])
    return {**results, "published": FEDSIM}


def _gain(label, curves, baseline):
    """Gain over a baseline in percentage points, as a mean over rounds: of each seed, and of the seeds' mean curve."""
    gains = [[100 * (a - b) for a, b in zip(*pair, strict=True)] for pair in zip(curves, baseline, strict=True)]
    by_round = [statistics.fmean(each) for each in zip(*gains, strict=True)]
    row = {
        "gain": statistics.fmean(by_round),
        "over_rounds": statistics.stdev(by_round),
        "of_seeds": [statistics.fmean(each) for each in gains],
        "mean": 100 * statistics.fmean(statistics.fmean(curve) for curve in curves),
        "last": 100 * statistics.fmean(curve[-1] for curve in curves),
    }
    seeds = ", ".join(f"{each:+.2f}" for each in row["of_seeds"])
    print(
        f"{label}: {row['gain']:+.2f} ± {row['over_rounds']:.2f} points, mean over rounds (seeds {seeds}), "
        f"mean of rounds {row['mean']:.2f} %, last round {row['last']:.2f} %",
        flush=True,
    )
    return row


#: FLAG, table 2, Fashion-MNIST with 20 % of the labels per client and low quantity skew, after 200 rounds.
FLAG = {"fedavg": 57.1, "pacfl": 94.4, "flag": 96.4}


def flag(tiny):
    """FedAvg, PACFL and FLAG on Fashion-MNIST, five clusters of two labels: 30 of 200 rounds, E = 10, default settings.

    The paper states neither model nor learning rate; these are PACFL's, whose test protocol it follows: all test images
    of a client's two labels. No other settings were tried on these data. The choice that PACFL determines its number of
    clusters by the silhouette was made after looking at angles of training images, including draws 0 and 1, never at a
    test image. Clients are scored after rounds 10, 20 and 30: "last ten" is the mean of these three.
    """
    spec = {
        "data": {"name": "fmnist-skew20", "alpha": 1.0},
        "model": "mclr" if tiny else "lenet5",
        "local": {"epochs": 1 if tiny else 10, "batch_size": 10, "learning_rate": 0.01, "momentum": 0.5},
        "run": {"rounds": 2 if tiny else 30, "clients_per_round": 20, "evaluate_every": 10},
    }
    return {
        name: figures(f"flag, {name}", {**spec, "method": name}, range(1 if tiny else 3), known)
        for name, known in FLAG.items()
    }


EXPERIMENTS = {
    "powerlaw": powerlaw,
    "fashion": fashion,
    "rotated": rotated,
    "drift": drift,
    "srfca": srfca,
    "fedsim": fedsim,
    "flag": flag,
}


def main():
    options = arguments(__doc__.splitlines()[0], only=",".join(EXPERIMENTS))
    finish({name: EXPERIMENTS[name](options.tiny) for name in options.only.split(",")}, options)


if __name__ == "__main__":
    main()
