"""`make bench`: what is run, kept, and skipped."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("benchmarks_bench", ROOT / "benchmarks" / "bench.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    before = list(sys.path)
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    del sys.modules[spec.name]


def test_every_table_of_the_page_has_a_benchmark_and_a_script(bench):
    names = [benchmark.name for benchmark in bench.BENCHMARKS]
    assert set(names) == set(bench.performance.BENCHMARKS)
    assert all((ROOT / "benchmarks" / f"{name}.py").is_file() for name in names)


def test_every_benchmark_is_part_of_a_target_of_make(bench):
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    quality = text.partition("QUALITY := ")[2].partition("\n\n")[0].replace("\\", "").split()
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"common", "bench"}
    # how_fast_is_a_federation needs the environment of Flower, and is run on its own
    assert scripts - {benchmark.name for benchmark in bench.BENCHMARKS} - set(quality) == {"how_fast_is_a_federation"}
    assert set(quality) < scripts


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "Makefile", "benchmarks/bench.py"])
def test_the_stated_duration_of_all_benchmarks_is_that_of_their_sum(bench, name):
    text = (ROOT / name).read_text(encoding="utf-8")
    stated = re.findall(r"(\d+) to (\d+) minutes", text)
    assert len(stated) == 1
    shortest, longest = map(int, stated[0])
    assert shortest <= sum(benchmark.minutes for benchmark in bench.BENCHMARKS) <= longest


def test_the_last_line_of_a_script_is_its_result(bench, capfd):
    found = bench.last_json([sys.executable, "-c", "print('a figure'); print('{\"a\": 1}')"])
    assert found == {"a": 1}
    assert capfd.readouterr().out == "  a figure\n"


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('no JSON')", "print('{}'); raise SystemExit(1)"])
def test_a_script_that_fails_has_no_result(bench, code):
    assert bench.last_json([sys.executable, "-c", code]) is None


def test_a_benchmark_without_its_package_is_skipped(bench, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    missing = bench.Benchmark("how_does_it_scale_out", 5, ".venv-ray", "ray")
    assert bench.run(missing, tmp_path, "abc", tiny=True)
    assert not list(tmp_path.glob("*.json"))
    assert "ray is missing (make bench-setup" in capfd.readouterr().err


def test_an_interrupted_bench_keeps_results_of_the_same_version(bench, tmp_path):
    file = tmp_path / "where_does_the_time_go.json"
    assert not bench.is_measured(file, "abc")
    file.write_text(json.dumps({"code": "abc"}))
    assert bench.is_measured(file, "abc")
    assert not bench.is_measured(file, "abd")


def test_the_share_of_other_programs_is_a_share(bench):
    assert 0 <= bench.busy(0.05) <= 1
