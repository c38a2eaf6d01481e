"""Write the measured tables of docs/performance.md and README.md from docs/performance.json (`make bench`).

python docs/performance.py DIR    add the results in DIR to docs/performance.json, and write the tables
python docs/performance.py        write the tables from docs/performance.json
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_suffix(".md")
RESULTS = Path(__file__).with_suffix(".json")
README = PAGE.parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end of \2 -->\n)", re.DOTALL)

Figures = Mapping[str, Any]

#: Name of a model in the benchmarks → in the tables.
MODELS = {
    "mclr": "logistic regression",
    "mlp": "MLP 784-128-10",
    "cnn": "CNN (conv5-32, conv5-64)",
    "lenet5": "LeNet-5",
    "charlstm": "character LSTM",
    "bigru": "BiGRU",
}
DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "shakespeare": "Shakespeare"}
METHODS = {
    "fedavg": "FedAvg",
    "ifca": "IFCA",
    "fedgroup": "FedGroup",
    "fedgroup:known": "FedGroup, clients that have a cluster",
    "fedgroup:cold": "FedGroup, clients that have none yet",
}
#: Peer → its column.
PEERS = {
    "fedjax": "FedJAX",
    "flower": "Flower simulation",
    "pytorch tight": "PyTorch, plain loop",
    "pytorch dataloader": "PyTorch, DataLoader",
}
#: Column of the README's table → the peers of which the fastest is shown.
README_COLUMNS = {
    "FedJAX": ("fedjax",),
    "Flower simulation": ("flower",),
    "PyTorch, the faster of two loops": ("pytorch tight", "pytorch dataloader"),
}
ENVIRONMENTS = {"fedjax": "FedJAX", "flower": "Flower's simulation and PyTorch"}
#: What a benchmark needs besides Coterie.
NEEDS = {"against_peers": "FedJAX, Flower and PyTorch", "how_does_it_scale_out": "Ray"}


# ------------------------------------------------------------------------------------------------------------- numbers


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{number(seconds * factor)} {unit}"
    return f"{number(seconds)} s"


def size(count: float) -> str:
    """Bytes in a unit that suits them."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= factor:
            return f"{number(count / factor)} {unit}"
    return f"{round(count)} bytes"


def both(figure: Figures, text: Callable[[float], str] = number) -> str:
    """Best (median)."""
    return f"{text(figure['best'])} ({text(figure['median'])})"


def times(figure: Figures) -> str:
    """A ratio, best (median)."""
    return f"{figure['best']:.2f} ({figure['median']:.2f})"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def label(name: str, data: str) -> str:
    return f"{MODELS.get(name, name)}, {DATA.get(data, data)}"


# -------------------------------------------------------------------------------------------------------- against peers


def steps(found: Figures) -> str:
    """µs per SGD step of each implementation, with ratios."""
    rows = []
    for name, row in found["models"].items():
        cells = [label(name, row["data"]), both(row["us_per_step"]["coterie"])]
        for peer in PEERS:
            ratio = row["ratio"].get(peer)
            cells.append(f"{both(row['us_per_step'][ratio['implementation']])}; {times(ratio)} ×" if ratio else "—")
        rows.append(cells)
    return table(["", "Coterie", *PEERS.values()], rows) + _peers_missing(found)


def per_round(found: Figures) -> str:
    """Time of a round of each implementation."""
    rows = []
    for name, row in found["models"].items():
        cells = [label(name, row["data"]), f"{row['steps']['coterie']:,}"]
        cells.append(both(row["seconds_per_round"]["coterie"], duration))
        for peer in PEERS:
            ratio = row["ratio"].get(peer)
            cells.append(both(row["seconds_per_round"][ratio["implementation"]], duration) if ratio else "—")
        rows.append(cells)
    return table(["", "SGD steps", "Coterie", *PEERS.values()], rows)


def _peers_missing(found: Figures) -> str:
    names = " and ".join(ENVIRONMENTS[each] for each in found["missing"])
    return f"\nNot installed: {names}. {_command('against_peers', setup=True)}\n" if names else ""


def peer_versions(found: Figures) -> str:
    known = [each for each in found["versions"].values() if each]
    return "; ".join(", ".join(f"{name} {version}" for name, version in each.items()) for each in known)


# -------------------------------------------------------------------------------------------------------------- scaling


def threads(found: Figures) -> str:
    counts = sorted({int(n) for row in found["models"].values() for n in row["speedup"]})
    header = ["", "parameters", "1 thread"]
    for n in counts:
        header += [f"{n} threads", "speedup"]
    rows = []
    for name, row in found["models"].items():
        cells = [label(name, row["data"]), f"{row['parameters']:,}", both(row["seconds"]["ours_1"], duration)]
        for n in counts:
            cells += [both(row["seconds"][f"ours_{n}"], duration), f"{times(row['speedup'][str(n)])} ×"]
        rows.append([*cells, duration(row["first_seconds"]), percent(row["share_of_matrix_product_rate"])])
    return table([*header, "first call", "arithmetic rate, % of a large matrix product"], rows)


def _scaling(rows: Iterable[Figures], key: str, title: str, more: Mapping[str, Callable[[Figures], str]]) -> str:
    cells = [
        [f"{row[key]:,}", both(row["seconds"], duration), f"{times(row['ratio'])} ×", *(f(row) for f in more.values())]
        for row in rows
    ]
    return table([title, "round", "divided by the first", *more], cells)


def clients(found: Figures) -> str:
    return _scaling(
        found["clients"]["rows"], "clients", "clients", {"peak memory": lambda row: size(row["peak_bytes"])}
    )


def cohorts(found: Figures) -> str:
    each = {"per client": lambda row: duration(row["seconds"]["best"] / row["cohort"])}
    return _scaling(found["cohorts"]["rows"], "cohort", "clients per round", each)


def parameters(found: Figures) -> str:
    each = {
        "µs per SGD step": lambda row: both(row["us_per_step"]),
        "ns per step and parameter": lambda row: number(1e3 * row["us_per_step"]["best"] / row["parameters"]),
    }
    return _scaling(found["parameters"]["rows"], "parameters", "parameters", each)


def clusters(found: Figures) -> str:
    """Columns: methods; rows: numbers of clusters."""
    columns = {name: {row["clusters"]: row for row in each["rows"]} for name, each in found["clusters"].items()}
    header = ["clusters"]
    for name in columns:
        header += [METHODS[name], "divided by the first"]
    rows = []
    for count in sorted({count for column in columns.values() for count in column}):
        cells = [str(count)]
        for column in columns.values():
            row = column.get(count)
            cells += [both(row["seconds"], duration), f"{times(row['ratio'])} ×"] if row else ["—", "—"]
        rows.append(cells)
    return table(header, rows)


def methods(found: Figures) -> str:
    rows = []
    sizes: list[str] = []
    for name, each in found["methods"].items():
        few, many = each["rows"]
        sizes = [f"{row['clients']:,} clients" for row in (few, many)]
        preparation = duration(many["preparing_seconds"]) if many["preparing_seconds"] else "—"
        cells = [METHODS[name], both(few["seconds"], duration), both(many["seconds"], duration)]
        rows.append([*cells, f"{times(many['ratio'])} ×", preparation, size(many["peak_bytes"])])
    return table(["", *sizes, "ratio", "preparation of the latter", "peak memory of the latter"], rows)


def memory(found: Figures) -> str:
    """A sentence about the data, and growth over rounds."""
    by_data = found["clients"]
    text = (
        f"Peak memory of a process is {size(by_data['constant_bytes'])} plus {by_data['peak_per_raw_byte']:.2f} times "
        "the size of the data arrays (from the smallest and the largest number of clients above).\n\n"
    )
    rows = [
        [METHODS[row["method"]], f"{row['rounds']:,}", size(row["bytes_per_round"]), size(row["peak_bytes"])]
        for row in found["growth"]["rows"]
    ]
    return text + table(["", "rounds", "growth per round", "peak memory"], rows)


# ------------------------------------------------------------------------------------------------------------------ Ray


def ray_rounds(found: Figures) -> str:
    rows = []
    for row in found["rounds"]:
        for place, run in enumerate(row["runs"], 1):
            cells = [f"{row['what']}, {DATA.get(row['data'], row['data'])}", f"{row['clients']:,}", str(place)]
            cells += [both(run[f"{backend}_seconds"], duration) for backend in ("vectorized", "ray")]
            cells += [times(run["ratio"]), size(run["up_bytes_per_round"]), size(row["models_bytes"])]
            rows.append(cells)
    header = ["", "clients per round", "run", "two threads", "two Ray workers", "speed of Ray / of threads"]
    return table([*header, "to the driver per round", "models of all clients"], rows)


def ray_requests(found: Figures) -> str:
    rows = []
    for cohort, row in found["overhead"].items():
        cells = [f"{int(cohort):,}"]
        for name in ("vectorized", "ray"):
            cells.append(f"{number(row[f'{name}_best_ms'])} ms ({number(row[f'{name}_ms'])} ms)")
        rows.append([*cells, f"{number(row['driver_ms'])} ms", f"{row['shares']:.1f}"])
    return table(["clients", "two threads", "two Ray workers", "processor time of the driver", "shares"], rows)


def ray_million(found: Figures) -> str:
    row = found["million"]
    cells = [f"{row['clients']:,}", f"{row['cohort']:,}", both(row["round_seconds"], duration)]
    cells += [duration(row["first_round_seconds"]), size(row["data_bytes"]), size(row["driver_peak_bytes"])]
    header = ["clients", "clients per round", "round", "first round", "examples", "peak memory of the driver"]
    return table(header, [cells])


def projection(found: Figures) -> str:
    """One row per number of workers, and the assumptions as a list."""
    all_rows = found["projection"]["rows"]
    names = list(dict.fromkeys(row["what"] for row in all_rows))
    cells = {(row["what"], row["workers"]): row for row in all_rows}
    header = ["workers"]
    for name in names:
        header += [f"{name}: round", "speedup", "to the driver"]
    rows = []
    for count in dict.fromkeys(row["workers"] for row in all_rows):
        line = [str(count)]
        for row in (cells[name, count] for name in names):
            line += [duration(row["seconds"]), f"{row['speedup']:.1f} ×", size(row["up_bytes"])]
        rows.append(line)
    assumed = found["projection"]["assumptions"].partition("Assumptions: ")[2].rstrip(".").split("; ")
    text = "\nThis is a computation, not a measurement. Speedups are over one worker without overhead. It assumes:\n\n"
    text += "".join(f"- {each}\n" for each in assumed)
    text += (
        f"\nMeasured: {number(found['projection']['latency_ms'])} ms more for a request than with threads, "
        f"{number(found['projection']['per_share_ms'])} ms of the driver's processor time per share.\n"
    )
    return table(header, rows) + text


# ----------------------------------------------------------------------------------------------- whole runs, clustering


#: Model of a whole run → its name.
RUN_MODELS = {"mclr": "logistic regression", "mlp": "MLP", "cnn": "CNN"}


def shares(found: Figures) -> str:
    models, names = found["models"], RUN_MODELS
    parts = next(iter(models.values()))["parts"]
    rows = [
        [part, *(cell for run in models.values() for cell in _time_and_share(run["parts"][part]))] for part in parts
    ]
    for text, cells in {
        "**everything but training**": [
            ["", f"**{percent(run['share_without_training'])}**"] for run in models.values()
        ],
        "**total**": [[f"**{duration(run['total_seconds'])}**", ""] for run in models.values()],
        "start of the process, besides": [[duration(run["start_seconds"]), ""] for run in models.values()],
        "peak memory": [[size(run["peak_rss_bytes"]), ""] for run in models.values()],
    }.items():
        rows.append([text, *(cell for pair in cells for cell in pair)])
    header = ["", *(cell for model in models for cell in (names[model], "share"))]
    runs = "; ".join(", ".join(number(each) for each in run["totals"]) for run in models.values())
    text = f"\n`{found['data']}`, {found['rounds']} rounds, the faster of the runs of each model ({runs} s)."
    fewer = [
        f"{names[model]}: {run['rounds']} rounds" for model, run in models.items() if run["rounds"] < found["rounds"]
    ]
    text += f" {', '.join(fewer)}.\n" if fewer else "\n"
    share = percent(found["share_without_training"])
    text += f"Extrapolated to {found['rounds']} rounds of each model, **{share}** of the time is not training.\n"
    if found["data"] == "digits":
        text += "\n`mnist-powerlaw` was not in `$COTERIE_DATA`; these are the digits that Coterie includes.\n"
    return table(header, rows) + text


def _time_and_share(part: Figures) -> list[str]:
    return [duration(part["seconds"]), percent(part["share"])]


#: Table of clustering → what a row is called, the reference, and the key of its time.
CLUSTERING = {
    "cold_start": ("EDC and k-means of 100 updates of {d:,} numbers", "scikit-learn on the full matrix", "reference"),
    "madc": ("MADC of {clients:,} clients, from cosines", "", ""),
    "bipartition": ("bipartition of {clients:,} clients", "", ""),
    "means": ("trimmed mean of {models} models of {d:,} numbers", "plain mean", "plain"),
    "rounds": ("FedGroup, round of {cohort} among {clients:,} clients", "FedAvg", "fedavg"),
    "cross_losses": ("losses of {clients} models on {clients} clients", "loop over pairs, jitted", "loop"),
    "class_angles": ("angles of {classes} classes, {clients} clients, p = {p}", "SciPy in a loop over pairs", "loop"),
    "class_subspaces": ("subspaces of {classes} classes of {images} images, {clients} clients", "", ""),
}


def clustering(found: Figures) -> str:
    rows = []
    for name, (what, reference, key) in CLUSTERING.items():
        for row in found[name]:
            if not key:
                rows.append([what.format(**row), both(row["seconds"], duration), "—", "—"])
                continue
            own = next(each for each in ("ours", "trimmed", "fedgroup") if each in row["seconds"])
            compared = f"{reference}: {both(row['seconds'][key], duration)}"
            rows.append([what.format(**row), both(row["seconds"][own], duration), compared, f"{times(row['ratio'])} ×"])
    row = found["cross_losses"][0]
    text = (
        f"\nThe losses of all models on all clients run at {percent(row['share'])} of the rate of a matrix product.\n"
    )
    return table(["", "Coterie", "compared with", "ratio"], rows) + text


# --------------------------------------------------------------------------------------------------------------- README


def readme(results: Figures) -> str:
    """The short table, best rounds only, and sentences for what else was measured."""
    rows = []
    for name, row in results["against_peers"]["results"]["models"].items():
        own = row["us_per_step"]["coterie"]["best"]
        fastest = all(ratio["best"] > 1 for ratio in row["ratio"].values())
        cells = [label(name, row["data"]), f"**{number(own)}**" if fastest else number(own)]
        for peers in README_COLUMNS.values():
            ratios = [row["ratio"][peer] for peer in peers if peer in row["ratio"]]
            if not ratios:
                cells.append("—")
                continue
            fastest_peer = min(ratios, key=lambda ratio: float(ratio["best"]))
            best = number(row["us_per_step"][fastest_peer["implementation"]]["best"])
            cells.append(f"{best} ({_short_ratio(fastest_peer['best'])}×)")
        rows.append(cells)
    text = table(["", "Coterie", *README_COLUMNS], rows)
    text += "\nIn parentheses: the time divided by Coterie's. Bold: Coterie is the fastest.\n"
    return text + "".join(f"\n{sentence}\n" for sentence in _sentences(results))


def _short_ratio(ratio: float) -> str:
    """One decimal; two where one would hide which side is faster."""
    return f"{ratio:.2f}" if 0.95 <= ratio < 1.05 else f"{ratio:.1f}"


def _sentences(results: Figures) -> Iterable[str]:
    if scale := results.get("how_does_it_scale"):
        rows = scale["results"]["clients"]["rows"]
        best = [row["seconds"]["best"] for row in rows]
        few, many = rows[0]["clients"], rows[-1]["clients"]
        yield (
            f"A round of 20 clients with 20 examples each takes {duration(min(best))} to {duration(max(best))},\n"
            f"whether the federation has {few:,} or {many:,} clients."
        )
    if whole := results.get("where_does_the_time_go"):
        found = whole["results"]
        runs = ";\n".join(_whole_run(name, run) for name, run in found["models"].items())
        yield (
            f"Runs of FlexCFL on `{found['data']}`, 20 clients per round, all clients scored after every round:\n"
            f"{runs}."
        )


def _whole_run(model: str, run: Figures) -> str:
    training = percent(run["parts"]["training"]["share"])
    return (
        f"{RUN_MODELS[model]}, {run['rounds']} rounds in {duration(run['total_seconds'])} (local training {training})"
    )


# ------------------------------------------------------------------------------------------------------------- the page

#: Name of a table on the page → benchmark, the option with which it measures only this table, and what renders it.
TABLES: dict[str, tuple[str, str, Callable[[Figures], str]]] = {
    "steps": ("against_peers", "", steps),
    "per-round": ("against_peers", "", per_round),
    "threads": ("how_fast_is_a_round", "", threads),
    "clients": ("how_does_it_scale", " --only clients", clients),
    "cohorts": ("how_does_it_scale", " --only cohorts", cohorts),
    "parameters": ("how_does_it_scale", " --only parameters", parameters),
    "clusters": ("how_does_it_scale", " --only clusters", clusters),
    "methods": ("how_does_it_scale", " --only methods", methods),
    "memory": ("how_does_it_scale", " --only clients,growth", memory),
    "ray-rounds": ("how_does_it_scale_out", " --only rounds", ray_rounds),
    "ray-requests": ("how_does_it_scale_out", " --only overhead", ray_requests),
    "ray-million": ("how_does_it_scale_out", " --only million", ray_million),
    "projection": ("how_does_it_scale_out", " --only projection", projection),
    "shares": ("where_does_the_time_go", "", shares),
    "clustering": ("how_fast_is_clustering", "", clustering),
}
#: In the order of the page.
BENCHMARKS = tuple(dict.fromkeys(benchmark for benchmark, _, _ in TABLES.values()))


def _command(benchmark: str, *, setup: bool) -> str:
    before = "`make bench-setup`, then " if setup else ""
    return f"This measures it: {before}`make bench BENCH={benchmark}`."


def not_measured(benchmark: str) -> str:
    needs = f" It needs {NEEDS[benchmark]}." if benchmark in NEEDS else ""
    return f"*Not measured yet.*{needs} {_command(benchmark, setup=benchmark in NEEDS)}\n"


def machine(results: Figures) -> str:
    """The machines and versions of all results; usually one."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, each in results.items():
        own = each["results"]["machine"]
        versions = [f"{key} {own[key]}" for key in ("jax", "numpy", "scipy", "scikit-learn") if key in own]
        about = f"{own['cpu']}, {own['cores']} cores, {own['memory_bytes'] / 2**30:.0f} GiB of memory, {own['system']}"
        groups.setdefault((about, ", ".join([f"Python {own['python']}", *versions])), []).append(name)
    lines = []
    for (about, versions), names in groups.items():
        which = "" if len(groups) == 1 else f" ({', '.join(names)})"
        lines.append(f"**Machine{which}:** {about}. **Versions:** Coterie with {versions}.\n")
    if peers := results.get("against_peers"):
        lines.append(f"**Peers:** {peer_versions(peers['results']) or 'none installed'}.\n")
    if ray := results.get("how_does_it_scale_out"):
        lines.append(f"**Ray:** {ray['results']['machine'].get('ray', 'unknown')}.\n")
    return "\n".join(lines) or "*Nothing has been measured yet:* `make bench`.\n"


def commands(results: Figures) -> str:
    """When each benchmark ran, for how long, and how busy the machine was before."""
    rows = []
    for name in BENCHMARKS:
        if name not in results:
            rows.append([f"`make bench BENCH={name}`", "not measured", "", "", ""])
            continue
        each = results[name]
        own = each["results"]["machine"]
        took, busy = f"{each['seconds'] / 60:.1f} min", percent(each["busy_before"])
        rows.append([f"`{each['command']}`", own["date"], own["commit"] or "", took, busy])
    return table(["command", "date", "commit", "took", "other programs"], rows)


def blocks(results: Figures) -> dict[str, str]:
    """Every table by name."""
    found = {"machine": machine(results), "commands": commands(results)}
    for name, (benchmark, only, render) in TABLES.items():
        if benchmark in results:
            each = results[benchmark]
            measured = f"Measured on {each['results']['machine']['date']} with `{each['command']}{only}`."
            found[name] = f"{render(each['results'])}\n{measured}\n"
        else:
            found[name] = not_measured(benchmark)
    if "against_peers" in results and not results["against_peers"]["results"]["missing"]:
        found["readme"] = readme(results)
    return found


def fill(text: str, tables: Mapping[str, str]) -> str:
    """The text with these tables in their places; a place for which there is no table stays as it is."""
    return BLOCK.sub(lambda match: match[1] + tables[match[2]] + match[3] if match[2] in tables else match[0], text)


def collected(folder: Path) -> dict[str, Any]:
    """The results in a folder, by benchmark."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def write(results: Figures, page: Path = PAGE, *others: Path) -> None:
    """Write the tables of these results into the page, and into other files that have places for them."""
    tables = blocks(results)
    page.write_text(fill(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    for file in others:
        file.write_text(fill(file.read_text(encoding="utf-8"), tables), encoding="utf-8")


def stored() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def update(folder: Path) -> None:
    """Add the results in a folder to the stored ones, and write page and README."""
    new = {name: each for name, each in collected(folder).items() if name in BENCHMARKS}
    RESULTS.write_text(json.dumps({**stored(), **new}, indent=1) + "\n", encoding="utf-8")
    write(stored(), PAGE, README)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        update(Path(sys.argv[1]))
    else:
        write(stored(), PAGE, README)
