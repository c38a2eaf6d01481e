"""How close are we to the papers? Runs of published settings, the published figures beside them.

    COTERIE_DATA=... python benchmarks/how_close_to_the_papers.py [--json] [--tiny] [--only powerlaw,drift]

The papers give the best test accuracy over the rounds; the mean of the last ten rounds stands beside it. Settings of
`powerlaw` and `drift` are the papers', but for the draw of the data (see there) and fewer rounds. Those of `fashion`
and `rotated` are ours, settled after looking at test results of other settings: read them as what can be reached, not
as an unbiased estimate. Each function says what was tried before.
"""

from __future__ import annotations

import statistics

from common import arguments, finish

import coterie

#: What the papers print, in per cent: FlexCFL, tables 2 and 3 (best over 300 rounds, one seed).
PUBLISHED = {"powerlaw": 89.4, "fashion": 89.2}


def figures(label, spec, seeds, published=None):
    """Run a spec with several seeds, and say what came out."""
    rows = []
    for seed in seeds:
        summary = coterie.run({**spec, "run": {**spec["run"], "seed": seed}}).summary
        accuracy, truth = summary["accuracy"], summary["truth"] or {}
        rows.append(
            {
                "seed": seed,
                "best": accuracy["weighted_best"],
                "last_ten": accuracy["weighted_last_ten"],
                "adjusted_rand": truth.get("adjusted_rand"),
                "seconds": summary["seconds"]["total"],
            }
        )
        print(f"{label}, seed {seed}: " + ", ".join(f"{k} {v:.3f}" for k, v in rows[-1].items() if v is not None))
    means = {key: statistics.fmean(row[key] for row in rows) for key in ("best", "last_ten")}
    print(f"{label}: best {100 * means['best']:.1f} %, last ten {100 * means['last_ten']:.1f} %, published {published}")
    return {"runs": rows, **means, "published_best": published}


def powerlaw(tiny):
    """FedAvg, logistic regression, MNIST in a thousand clients of two digits: K = 20, E = 20, 100 rounds.

    Sizes follow a heavy-tailed law, and a few clients of thousands of examples make the accuracy of a round jump. The
    published draw has a deviation of 106; of the draws 0 to 119, number 74 comes nearest with 121. It was chosen by
    that figure, before anything was trained on it, but after draws 0 to 3 had given 84.1, 86.5, 75.0 and 84.7 % for
    the last ten rounds. Draw 0 (148) stands beside it.
    """
    run = {"rounds": 2 if tiny else 100, "cohort": 20}
    local = {"epochs": 20, "batch": 10, "rate": 0.03}
    spec = {"model": "mclr", "method": "fedavg", "local": local, "run": run}
    return {
        f"draw_{draw}": figures(
            f"powerlaw, draw {draw}",
            {**spec, "data": {"name": "mnist-powerlaw", "seed": draw}},
            range(1 if tiny else 3),
            PUBLISHED["powerlaw"],
        )
        for draw in (74, 0)
    }


def fashion(tiny):
    """FedAvg on Fashion-MNIST in 500 clients, E = 10: a convolutional network against logistic regression.

    Here it is LeNet-5 with PACFL's settings of local training. The published network (dense 1024) is seventy times as
    large, and its figure the best of 300 rounds of 20 clients. Tried before, best and last ten, network against
    regression: cnn-mnist, E = 2, rate 0.01, 40 rounds: 77.6, 70.4 against 80.1, 75.6; LeNet-5 as here for 40 rounds:
    82.2, 78.0 against 81.4, 78.5; cnn, E = 10, rate 0.005 was not finished.
    """
    run = {"rounds": 2 if tiny else 100, "cohort": 10, "evaluate_every": 2 if tiny else 5}
    local = {"epochs": 1 if tiny else 10, "batch": 10, "rate": 0.01, "momentum": 0.5}
    spec = {"data": "fmnist-500", "method": "fedavg", "local": local, "run": run}
    models = {"mclr": None, "lenet5": PUBLISHED["fashion"]}
    return {name: figures(f"fashion {name}", {**spec, "model": name}, [0], known) for name, known in models.items()}


def rotated(tiny):
    """IFCA on MNIST in four rotations: starts redrawn until they are balanced, as in its experiments, three restarts.

    Tried before: a single start with Adam 2e-4, 5 batches and all clients, which collapsed into three clusters.
    """
    method = {"name": "ifca", "clusters": 4, "balanced_share": 0.1, "restarts": 3}
    run = {"rounds": 2 if tiny else 30, "cohort": 20, "evaluate_every": 2 if tiny else 10}
    spec = {
        "data": "mnist-rotated",
        "model": {"name": "mlp", "widths": [200]},
        "method": method,
        "local": {"steps": 10, "batch": 50, "rate": 0.1},
        "run": run,
    }
    return {"ifca": figures("rotated", spec, range(1 if tiny else 3))}


#: FedGroup without a shift is FlexCFL without one; the paper gives both as one figure.
#: FlexCFL, tables 3 and 4, MNIST with logistic regression: without a shift, and when pairs swap all their examples.
DRIFT = {
    "none": {"fedavg": 89.4, "fedgroup": 95.8, "flexcfl": 95.8, "random_assignment": 88.2},
    "swap_all": {"fedavg": 89.9, "fedgroup": 87.1, "flexcfl": 95.1},
}


def drift(tiny):
    """FedGroup and FlexCFL on MNIST in a thousand clients of two digits, E = 10, 100 rounds, with and without drift."""
    settings = {
        "fedavg": {"name": "fedavg"},
        "fedgroup": {"name": "fedgroup", "groups": 3},
        "flexcfl": {"name": "flexcfl", "groups": 3},
        "random_assignment": {"name": "fedgroup", "groups": 3, "assignment": "random"},
    }
    spec = {
        "data": {"name": "mnist-powerlaw", "seed": 74},
        "model": "mclr",
        "local": {"epochs": 1 if tiny else 10, "batch": 10, "rate": 0.03},
        "run": {"rounds": 2 if tiny else 100, "cohort": 20, "evaluate_every": 2},
    }
    return {
        f"{shift} {name}": figures(
            f"{shift}, {name}", {**spec, "method": settings[name], "shift": {"name": shift}}, [0], known
        )
        for shift, published in DRIFT.items()
        for name, known in published.items()
    }


EXPERIMENTS = {"powerlaw": powerlaw, "fashion": fashion, "rotated": rotated, "drift": drift}


def main():
    options = arguments(__doc__.splitlines()[0], only=",".join(EXPERIMENTS))
    finish({name: EXPERIMENTS[name](options.tiny) for name in options.only.split(",")}, options)


if __name__ == "__main__":
    main()
