"""The page about performance shows the stored results of `make bench`."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def performance():
    spec = importlib.util.spec_from_file_location("docs_performance", DOCS / "performance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figure(best, median):
    return {"best": best, "median": median}


MACHINE = {
    "date": "2030-01-02",
    "commit": "abc1234",
    "coterie": "1.0",
    "python": "3.11.9",
    "jax": "0.10.2",
    "numpy": "2.4.0",
    "system": "Linux 6.1",
    "cpu": "Some CPU",
    "cores": 2,
    "memory_bytes": 8 * 2**30,
    "load": 0.1,
}


def measured(name, results):
    command = f".venv/bin/python benchmarks/{name}.py"
    bench = {"command": command, "code": "abc", "seconds": 90.0, "busy_before": 0.014}
    return {name: {**bench, "results": {**results, "machine": MACHINE}}}


def peers(**more):
    """Coterie with 10 µs per step, FedJAX with 50, the plain loop with 9; no Flower."""
    row = {
        "data": "mnist",
        "us_per_step": {
            "coterie": figure(10.0, 12.0),
            "fedjax": figure(50.0, 54.0),
            "pytorch tight, 1 thread": figure(9.0, 12.0),
        },
        "seconds_per_round": {
            "coterie": figure(0.01, 0.012),
            "fedjax": figure(0.0495, 0.0535),
            "pytorch tight, 1 thread": figure(0.009, 0.012),
        },
        "steps": {"coterie": 1000, "fedjax": 990, "pytorch tight, 1 thread": 1000},
        "ratio": {
            "fedjax": {"implementation": "fedjax", **figure(5.0, 4.5)},
            "pytorch tight": {"implementation": "pytorch tight, 1 thread", **figure(0.9, 1.0)},
        },
    }
    found = {
        "models": {"mclr": row},
        "versions": {"fedjax": {"fedjax": "0.0.17"}, "flower": None},
        "missing": ["flower"],
    }
    return measured("against_peers", {**found, **more})


def whole_run(data="mnist-powerlaw"):
    parts = {"training": {"seconds": 7.5, "share": 0.3}, "evaluation": {"seconds": 0.4, "share": 0.016}}
    run = {"parts": parts, "total_seconds": 25.0, "start_seconds": 1.25, "share_without_training": 0.7}
    run |= {"totals": [26.0, 25.0], "peak_rss_bytes": 512_000_000, "rounds": 300}
    models = {"mclr": run, "cnn": {**run, "rounds": 30}}
    found = {"data": data, "rounds": 300, "models": models, "share_without_training": 0.25}
    return measured("where_does_the_time_go", found)


# ------------------------------------------------------------------------------------------------------ committed files


def test_page_and_readme_have_the_tables_of_the_stored_results(performance):
    tables = performance.blocks(performance.stored())
    for file in (performance.PAGE, performance.README):
        text = file.read_text(encoding="utf-8")
        assert performance.fill(text, tables) == text, "run: python docs/performance.py"


def test_page_and_readme_have_a_place_for_every_table(performance):
    page, readme = (file.read_text(encoding="utf-8") for file in (performance.PAGE, performance.README))
    names = [match[2] for match in performance.BLOCK.finditer(page)]
    assert sorted(names) == sorted({"machine", "commands", *performance.TABLES})
    assert page.count("<!-- measured:") == page.count("<!-- end of") == len(names)
    assert [match[2] for match in performance.BLOCK.finditer(readme)] == ["readme"]


def test_stored_results_are_not_those_of_tiny_problems(performance):
    stored = performance.stored()
    if "where_does_the_time_go" in stored:
        assert stored["where_does_the_time_go"]["results"]["rounds"] >= 300
    if "how_does_it_scale" in stored:
        assert stored["how_does_it_scale"]["results"]["clients"]["rows"][-1]["clients"] >= 1_000_000


# ----------------------------------------------------------------------------------------------------------- the tables


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9.127, "9.13"), (51.24, "51.2"), (223.4, "223"), (18_240, "18,200"), (0.01234, "0.0123")],
)
def test_numbers_have_three_significant_digits(performance, value, text):
    assert performance.number(value) == text


@pytest.mark.parametrize(("value", "text"), [(4.2e-6, "4.20 µs"), (0.0345, "34.5 ms"), (26.23, "26.2 s")])
def test_a_duration_has_a_unit_that_suits_it(performance, value, text):
    assert performance.duration(value) == text


@pytest.mark.parametrize(("value", "text"), [(-0.2, "0 bytes"), (6300, "6.30 kB"), (5.12e9, "5.12 GB")])
def test_bytes_have_a_unit_that_suits_them(performance, value, text):
    assert performance.size(value) == text


def test_steps_have_best_and_median_and_the_ratio_of_each_peer(performance):
    lines = performance.blocks(peers())["steps"].splitlines()
    assert lines[0] == "|  | Coterie | FedJAX | Flower simulation | PyTorch, plain loop | PyTorch, DataLoader |"
    assert lines[2] == (
        "| logistic regression, MNIST | 10.0 (12.0) | 50.0 (54.0); 5.00 (4.50) × | — | 9.00 (12.0); 0.90 (1.00) × | — |"
    )
    assert "Not installed: Flower's simulation and PyTorch." in lines[4]
    assert "`make bench-setup`, then `make bench BENCH=against_peers`" in lines[4]
    assert lines[6:] == ["Measured on 2030-01-02 with `.venv/bin/python benchmarks/against_peers.py`."]


def test_rounds_have_the_steps_and_the_time_of_each_peer(performance):
    row = performance.blocks(peers())["per-round"].splitlines()[2]
    assert row.startswith("| logistic regression, MNIST | 1,000 | 10.0 ms (12.0 ms) | 49.5 ms (53.5 ms) | — |")


def test_the_readme_shows_the_best_times_of_the_same_results(performance):
    text = performance.blocks({**peers(missing=[]), **whole_run()})["readme"]
    # not bold: the plain loop is faster
    assert text.splitlines()[2] == "| logistic regression, MNIST | 10.0 | 50.0 (5.0×) | — | 9.00 (0.9×) |"
    assert "logistic regression, 300 rounds in 25.0 s (local training 30 %);\nCNN, 30 rounds in 25.0 s (local" in text


def test_the_figures_of_the_readme_stay_if_a_peer_is_missing(performance):
    assert "readme" not in performance.blocks(peers())


def test_without_results_the_page_says_how_to_get_each_table(performance):
    tables = performance.blocks({})
    assert tables["clients"] == "*Not measured yet.* This measures it: `make bench BENCH=how_does_it_scale`.\n"
    assert "It needs Ray. This measures it: `make bench-setup`, then" in tables["projection"]
    assert "readme" not in tables  # its figures stay until there are new ones


def test_a_run_on_other_data_is_named(performance):
    assert "`mnist-powerlaw` was not in" not in performance.blocks(whole_run())["shares"]
    assert "`mnist-powerlaw` was not in" in performance.blocks(whole_run("digits"))["shares"]


def test_shares_have_seconds_and_percent(performance):
    lines = performance.blocks(whole_run())["shares"].splitlines()
    assert lines[0] == "|  | logistic regression | share | CNN | share |"
    assert lines[2:4] == [
        "| training | 7.50 s | 30 % | 7.50 s | 30 % |",
        "| evaluation | 400 ms | 2 % | 400 ms | 2 % |",
    ]
    assert lines[4] == "| **everything but training** |  | **70 %** |  | **70 %** |"
    assert lines[7] == "| peak memory | 512 MB |  | 512 MB |  |"
    assert "the faster of the runs of each model (26.0, 25.0; 26.0, 25.0 s). CNN: 30 rounds." in lines[-4]
    assert lines[-3] == "Extrapolated to 300 rounds of each model, **25 %** of the time is not training."


def test_the_ratio_of_both_runs_with_ray_is_shown(performance):
    def run(best, median):
        seconds = {"vectorized_seconds": figure(2.0, 2.2), "ray_seconds": figure(2.5, 2.6)}
        return {**seconds, "ratio": figure(best, median), "up_bytes_per_round": 2e6}

    row = {
        "what": "CNN",
        "data": "cifar10",
        "clients": 200,
        "models_bytes": 64e6,
        "runs": [run(0.8, 0.85), run(0.9, 1)],
    }
    lines = performance.ray_rounds({"rounds": [row]}).splitlines()[2:]
    times = "2.00 s (2.20 s) | 2.50 s (2.60 s)"
    assert lines == [
        f"| CNN, CIFAR-10 | 200 | 1 | {times} | 0.80 (0.85) | 2.00 MB | 64.0 MB |",
        f"| CNN, CIFAR-10 | 200 | 2 | {times} | 0.90 (1.00) | 2.00 MB | 64.0 MB |",
    ]


def test_the_projection_lists_its_assumptions(performance):
    rows = [{"what": "CNN", "workers": n, "seconds": 10 / n, "speedup": 0.9 * n, "up_bytes": 5e6 * n} for n in (1, 100)]
    about = "Seconds of a round. Assumptions: clients are equal; the driver receives 10 Gbit/s."
    found = {"projection": {"rows": rows, "assumptions": about, "latency_ms": 4.0, "per_share_ms": 1.5}}
    text = performance.projection(found)
    assert "| 100 | 100 ms | 90.0 × | 500 MB |" in text
    assert "- clients are equal\n- the driver receives 10 Gbit/s\n" in text
    assert "4.00 ms more for a request" in text


def test_clusters_of_methods_are_side_by_side(performance):
    def row(clusters, best):
        return {"clusters": clusters, "seconds": figure(best, best), "ratio": figure(1.0, 1.0)}

    found = {"clusters": {"ifca": {"rows": [row(1, 0.1), row(2, 0.2)]}, "fedgroup:known": {"rows": [row(2, 0.3)]}}}
    assert performance.clusters(found).splitlines()[2:] == [
        "| 1 | 100 ms (100 ms) | 1.00 (1.00) × | — | — |",
        "| 2 | 200 ms (200 ms) | 1.00 (1.00) × | 300 ms (300 ms) | 1.00 (1.00) × |",
    ]


def test_machine_versions_date_and_command_are_named(performance):
    tables = performance.blocks(peers())
    assert "Some CPU, 2 cores, 8 GiB of memory, Linux 6.1" in tables["machine"]
    assert "Python 3.11.9, jax 0.10.2, numpy 2.4.0" in tables["machine"]
    assert "fedjax 0.0.17" in tables["machine"]
    assert (
        "| `.venv/bin/python benchmarks/against_peers.py` | 2030-01-02 | abc1234 | 1.5 min | 1 % |"
        in tables["commands"].splitlines()
    )
    assert "| `make bench BENCH=how_does_it_scale` | not measured |" in tables["commands"]


def test_results_of_two_machines_are_told_apart(performance):
    results = {**peers(), **whole_run()}
    other = json.loads(json.dumps(results))
    other["against_peers"]["results"]["machine"]["cpu"] = "Another CPU"
    assert performance.blocks(results)["machine"].count("**Machine") == 1
    assert re.findall(r"\*\*Machine \((\w+)\):\*\* (\w+ CPU)", performance.blocks(other)["machine"]) == [
        ("against_peers", "Another CPU"),
        ("where_does_the_time_go", "Some CPU"),
    ]


def test_a_place_without_a_table_stays(performance):
    text = "a\n<!-- measured: x -->\nold\n<!-- end of x -->\n<!-- measured: y -->\nold\n<!-- end of y -->\nb\n"
    assert performance.fill(text, {"x": "new\n"}) == text.replace("old\n<!-- end of x", "new\n<!-- end of x")
