"""Run the benchmarks of speed one after another, and write docs/performance.md (`make bench`).

    python benchmarks/bench.py                      # all, 30 to 40 minutes on two cores; continues an interrupted one
    python benchmarks/bench.py how_does_it_scale    # this one again, and the page
    python benchmarks/bench.py --tiny               # small problems, to check that all run; writes build/bench-tiny

The result of each is stored in build/bench/NAME.json as soon as it has ended. `all` measures everything again. A
benchmark that needs packages that are missing is skipped, and the page says how to get its tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import performance  # noqa: E402

#: A benchmark that takes longer than this is ended.
LIMIT_SECONDS = 3600
#: Above this share of the processor used by other programs, figures are not reliable.
BUSY = 0.1


@dataclass(frozen=True)
class Benchmark:
    """A script, the minutes that it usually takes on two cores, and the environment in which it runs."""

    name: str
    minutes: float
    environment: str = ".venv"
    package: str | None = None

    def python(self) -> str | None:
        """The interpreter, or None if the environment lacks the package."""
        if self.package is None:
            return sys.executable
        found = ROOT / self.environment / "bin" / "python"
        if not found.exists():
            return None
        done = subprocess.run([found, "-c", f"import {self.package}"], capture_output=True, check=False)
        return str(found) if done.returncode == 0 else None

    @property
    def command(self) -> str:
        return f"{self.environment}/bin/python benchmarks/{self.name}.py"


#: In the order in which they run.
BENCHMARKS = [
    Benchmark("against_peers", 12),
    Benchmark("how_fast_is_a_round", 2.5),
    Benchmark("where_does_the_time_go", 6.5),
    Benchmark("how_fast_is_clustering", 3),
    Benchmark("how_does_it_scale", 6.5),
    Benchmark("how_does_it_scale_out", 7.5, ".venv-ray", "ray"),
]


def code_version() -> str:
    """The last commit that changed what is measured; it marks results of an interrupted bench that are still valid."""
    folders = ["--", "src", "benchmarks"]
    commit = subprocess.run(["git", "log", "-1", "--format=%h", *folders], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", *folders], cwd=ROOT, capture_output=True)
    return commit.stdout.strip() + ("" if changed.returncode == 0 else "+")


def busy(seconds: float = 1.0) -> float:
    """The share of the processor that other programs use, while this one waits; 0 if the system does not say."""

    def ticks() -> list[int]:
        return [int(each) for each in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]

    if not Path("/proc/stat").is_file():
        return 0.0
    before = ticks()
    time.sleep(seconds)
    spent = [after - earlier for after, earlier in zip(ticks(), before, strict=True)]
    return 1 - (spent[3] + spent[4]) / max(1, sum(spent))  # idle and waiting for the disk


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def last_json(command: list[str]) -> dict | None:
    """Run a script, pass on what it prints, and return the object of its last line, or None if it failed."""
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        watchdog = threading.Timer(LIMIT_SECONDS, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                if last:
                    print(f"  {last}", flush=True)
                last = line.rstrip("\n")
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            watchdog.cancel()
    try:
        return json.loads(last) if code == 0 else None
    except ValueError:
        return None


def run(benchmark: Benchmark, folder: Path, version: str, tiny: bool) -> bool:
    """Run one benchmark and store its result; returns whether it succeeded or had to be skipped."""
    python = benchmark.python()
    if python is None:
        say(f"  skipped: {benchmark.package} is missing (make bench-setup installs it)")
        return True
    others = busy()
    if others > BUSY:
        say(f"  other programs use {others:.0%} of the processor: times will be too long")
    begin = time.monotonic()
    found = last_json([python, f"benchmarks/{benchmark.name}.py", "--json", *(["--tiny"] if tiny else [])])
    took = time.monotonic() - begin
    if found is None:
        say(f"  failed after {took:.0f} s")
        return False
    result = {"command": benchmark.command, "code": version, "seconds": took, "busy_before": others, "results": found}
    file = folder / f"{benchmark.name}.json"
    file.with_suffix(".part").write_text(json.dumps(result) + "\n", encoding="utf-8")
    file.with_suffix(".part").replace(file)
    say(f"  took {took / 60:.1f} min")
    return True


def is_measured(file: Path, version: str) -> bool:
    return file.is_file() and json.loads(file.read_text(encoding="utf-8"))["code"] == version


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of: {', '.join(names)}")
    parser.add_argument("--tiny", action="store_true", help="small problems, to check that all benchmarks run")
    options = parser.parse_args()
    unknown = set(options.names) - {*names, "all"}
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))} for the page; known: all, {', '.join(names)}")
    return options


def main() -> int:
    options = arguments()
    folder = ROOT / "build" / ("bench-tiny" if options.tiny else "bench")
    folder.mkdir(parents=True, exist_ok=True)
    version = code_version()
    wanted = [each for each in BENCHMARKS if not options.names or each.name in options.names or "all" in options.names]
    if not options.names:
        wanted = [each for each in wanted if not is_measured(folder / f"{each.name}.json", version)]
        if not wanted:
            say("Everything is measured for this version already; make bench BENCH=all measures it again")
    minutes = sum(each.minutes for each in wanted)
    say(f"{len(wanted)} benchmarks" + ("" if options.tiny else f", about {minutes:.0f} min on two quiet cores"))
    failed = []
    for place, benchmark in enumerate(wanted, 1):
        usually = "" if options.tiny else f", usually {benchmark.minutes} min"
        say(f"[{place}/{len(wanted)}] {benchmark.name}{usually}")
        if not run(benchmark, folder, version, options.tiny):
            failed.append(benchmark.name)
    if options.tiny:
        performance.write(performance.collected(folder), folder / "performance.md")
        say(f"wrote {(folder / 'performance.md').relative_to(ROOT)}")
    else:
        performance.update(folder)
        say("wrote docs/performance.json, docs/performance.md and the table of README.md")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; what was measured is kept, and make bench continues")
        sys.exit(130)
