"""How big is a report? Size of the page, and seconds to build it, for 1,000 clients × 300 rounds and 10,000 clients.

    python benchmarks/how_big_is_a_report.py [--json] [--tiny] [--keep DIR]

The records are those of real runs of FlexCFL on generated data that drift, with a small model and little local work.
The limit for 1,000 clients × 300 rounds is 5 MB. With --keep, records and pages stay in a folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from common import finish

#: Name → (clients, rounds, clients per round).
SIZES = {"1,000 clients × 300 rounds": (1000, 300, 50), "10,000 clients × 30 rounds": (10_000, 30, 200)}
TINY = {"20 clients × 3 rounds": (20, 3, 5)}


def make_record(folder, clients, rounds, cohort):
    import coterie

    spec = {
        "data": {"name": "blobs", "clients": clients, "clusters": 4, "samples": 20, "side": 5, "classes": 4},
        "model": "mclr",
        "method": {"name": "flexcfl", "clusters": 4, "alpha": 20},
        "local": {"epochs": 1, "learning_rate": 0.1},
        "run": {"rounds": rounds, "clients_per_round": cohort, "checkpoint_every": rounds},
        "shift": {"name": "swap_all", "probability": 0.002},
    }
    coterie.run(spec, out=folder)


def measure(folder, clients, rounds, cohort):
    from coterie.reports.page.build import build_page
    from coterie.reports.page_report import report_data

    if not folder.is_dir():
        make_record(folder, clients, rounds, cohort)
    clock = time.perf_counter()
    data = report_data(folder)
    page = build_page(data).encode()
    seconds = time.perf_counter() - clock
    folder.with_suffix(".html").write_bytes(page)
    return {"clients": clients, "rounds": rounds, "bytes": len(page), "seconds": round(seconds, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--tiny", action="store_true", help="a small problem, to check that the script runs")
    parser.add_argument("--keep", type=Path, help="folder in which records and pages stay, and are used again")
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        for name, (clients, rounds, cohort) in (TINY if options.tiny else SIZES).items():
            found = measure(place / f"{clients}x{rounds}", clients, rounds, cohort)
            results[name] = found
            print(f"{name}: {found['bytes'] / 1e6:.2f} MB, built in {found['seconds']} s")
    finish({"reports": results}, options)


if __name__ == "__main__":
    main()
