"""Which method for which data? Kinds of heterogeneity, numbers of clients and of examples; and what `recommend` says.

    python benchmarks/which_method.py [--json] [--tiny] [--only kinds,sizes,advice]

Seeds of data and runs are 1000 and above; the rule of `coterie recommend` was developed on seeds below 100. Methods
have their default settings, 50 rounds and 10 clients per round; only ifca has five restarts, as in the demonstration.
Scores are test accuracies in percent, means of the evaluations in the last ten rounds. About 25 minutes on one core.
"""

from __future__ import annotations

import re
import statistics
import sys
import time

from common import arguments, finish

import coterie
from coterie.errors import Error

#: Kind of heterogeneity → data set and settings.
KINDS = {
    "none": {"partition": "iid"},
    "quantity": {"partition": "iid", "size_spread": 1.0},
    "label skew, five groups": {"partition": "groups", "alpha": 1.0},
    "label skew, every client": {"partition": "dirichlet"},
    "feature rotation": {"partition": "rotated"},
    "concept shift": {"partition": "permuted_labels"},
    "drift": {"partition": "rotated"},
}
#: Clients exchange all their examples from round 20 on, when clusters are stable.
DRIFT = {"name": "swap_all", "rounds": list(range(20, 50))}
#: Kind → how the clusters of the generated images differ, for other numbers of clients and examples.
RELATIONS = {
    "none": {"clusters": 1},
    "feature rotation": {"relation": "rotated"},
    "concept shift": {"relation": "permuted_labels"},
}

METHODS = ["fedavg", "local", "fedgroup", "flhc", "ifca", "srfca", "pacfl", "cfl", "flag", "oneshotifca", "fesem"]
METHODS += ["fedsoft", "perfedavg"]
#: Methods that follow drifting clients.
MIGRATING = ["flexcfl", "ifca-mig", "fesem-mig"]
FEW = ["fedavg", "local", "fedgroup", "flhc", "ifca", "srfca", "pacfl", "cfl"]
SETTINGS = {"ifca": {"restarts": 5}}
FIRST_SEED = 1000


def kinds(tiny):
    """Handwritten digits, 20 and 80 clients with about 72 and 18 training examples each: accuracy by method."""
    results = {}
    for clients in (8,) if tiny else (20, 80):
        for kind in list(KINDS)[4:5] if tiny else KINDS:
            data = {"name": "digits", "clients": clients, **KINDS[kind]}
            shift = {"shift": DRIFT} if kind == "drift" else {}
            methods = METHODS + (MIGRATING if shift else [])
            results[f"{kind}, {clients} clients"] = _scores({"data": data, **shift}, methods, tiny, seeds=2)
    return results


def sizes(tiny):
    """Generated images, 20 and 80 clients with 16 and 80 training examples each, noise 0.4: accuracy by method."""
    results = {}
    for clients in (8,) if tiny else (20, 80):
        for samples in (20,) if tiny else (20, 100):
            for kind in list(RELATIONS)[1:2] if tiny else RELATIONS:
                data = {"name": "blobs", "clients": clients, "samples": samples, "noise": 0.4, **RELATIONS[kind]}
                label = f"{kind}, {clients} clients, {samples * 4 // 5} examples"
                results[label] = _scores({"data": data}, FEW, tiny, seeds=2)
    return results


def advice(tiny):
    """What `coterie recommend` says on 40 clients of each kind, and what the method then reaches on test examples.

    `loss`: how much less that is than the best of the compared methods reaches, in percentage points.
    """
    results = {}
    for kind in list(KINDS)[4:5] if tiny else KINDS:
        rows = []
        for number in range(1 if tiny else 5 if kind == "none" else 3):
            seed = FIRST_SEED + 100 + 10 * number
            spec = {"data": {"name": "digits", "clients": 8 if tiny else 40, **KINDS[kind]}}
            spec |= {"shift": DRIFT} if kind == "drift" else {}
            spec["run"] = {"rounds": 22 if tiny else 50, "seed": seed}
            started = time.perf_counter()
            methods = ["local", "fedgroup"] if tiny else None
            found = coterie.recommend(spec, methods=methods)
            seconds = time.perf_counter() - started
            tested = {each.method: _tested(spec, each.method, each.settings) for each in found.ranking}
            loss = max(tested.values()) - tested[found.method]
            row = {"seed": seed, "answer": found.answer, "method": found.method, "loss": loss, "seconds": seconds}
            rows.append({**row, "skew": found.data["label_skew"]["skew"], "test": tested})
            print(
                f"{kind}, seed {seed}: {found.answer}, {found.method}; test {tested[found.method]:.1f} %, best method "
                f"{max(tested, key=tested.get)} {max(tested.values()):.1f} %; {seconds:.0f} s",
                flush=True,
            )
        results[kind] = rows
    return results


def _scores(spec, methods, tiny, *, seeds):
    """Method → scores by seed, clusters and costs; None for a method that cannot run."""
    table = {}
    for name in methods[:3] if tiny else methods:
        runs = []
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if tiny else seeds)):
            rounds = 22 if tiny else 50
            run = {"rounds": rounds, "seed": seed, "evaluate_every": 5}
            try:
                runs.append(
                    coterie.run({**spec, "method": {"name": name, **SETTINGS.get(name, {})}, "run": run}).summary
                )
            except Error as fault:
                print(f"{name}: {fault}", file=sys.stderr)
        table[name] = _row(runs)
    best = max(row["accuracy"] for row in table.values() if row)
    shown = ", ".join(f"{name} {row['accuracy']:.1f}" for name, row in table.items() if row)
    print(f"{spec['data']}: best {best:.1f}; {shown}", flush=True)
    return table


def _row(runs):
    if not runs:
        return None
    scores = [100 * run["accuracy"]["weighted_last_ten"] for run in runs]
    truth = [run["truth"]["adjusted_rand"] for run in runs if run["truth"]]
    return {
        "accuracy": statistics.fmean(scores),
        "by_seed": scores,
        "worst_tenth": 100 * statistics.fmean(run["accuracy"]["worst_tenth_last_ten"] for run in runs),
        "clusters": [run["clusters"]["count"] for run in runs],
        "adjusted_rand": statistics.fmean(truth) if truth else None,
        "megabytes": statistics.fmean(_bytes(run) for run in runs) / 1e6,
        "seconds": statistics.fmean(run["seconds"]["total"] for run in runs),
    }


def _tested(spec, name, settings):
    """Test accuracy in percent of a method with all training examples."""
    run = {**spec["run"], "evaluate_every": 5}
    summary = coterie.run({**spec, "method": {"name": name, **settings}, "run": run}).summary
    return 100 * summary["accuracy"]["weighted_last_ten"]


def _bytes(run):
    return run["traffic"]["down_bytes"] + run["traffic"]["up_bytes"]


def markdown(results):
    """The tables of docs/choosing.md: a row per method, a column per kind, a number for each size."""
    lines = []
    for part in ("kinds", "sizes"):
        columns = {}
        for label, rows in (results.get(part) or {}).items():
            kind, _ = re.fullmatch(r"(.*?), (\d+ clients.*)", label).groups()
            columns.setdefault(kind, []).append(rows)
        methods = list(dict.fromkeys(name for each in columns.values() for rows in each for name in rows))
        if columns:
            lines += ["", f"| method | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
        for name in methods:
            cells = [" / ".join(_cell(name, rows) for rows in each) for each in columns.values()]
            lines.append(f"| [{name}](methods/{name}.md) | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name, rows):
    """The accuracy, in bold if it is within one percentage point of the best."""
    if not rows.get(name):
        return "–"
    text = f"{rows[name]['accuracy']:.0f}"
    best = max(row["accuracy"] for row in rows.values() if row)
    return f"**{text}**" if rows[name]["accuracy"] >= best - 1 else text


EXPERIMENTS = {"kinds": kinds, "sizes": sizes, "advice": advice}


def main():
    options = arguments(__doc__.splitlines()[0], only=",".join(EXPERIMENTS))
    started = time.perf_counter()
    results = {name: EXPERIMENTS[name](options.tiny) for name in options.only.split(",")}
    print(markdown(results))
    print(f"{time.perf_counter() - started:.0f} seconds")
    finish(results, options)


if __name__ == "__main__":
    main()
