"""The same through Coterie, and what a model for each kind is worth."""

from __future__ import annotations

import coterie


def main(rounds=30):
    found = {}
    for method in ("fedavg", {"name": "ifca", "clusters": 4, "restarts": 5}, "oracle"):
        record = coterie.run({"data": "digits", "method": method, "run": {"rounds": rounds}})
        name, accuracy = record.summary["method"], record.summary["accuracy"]["weighted"]
        found[name] = accuracy
        print(f"{name}: {100 * accuracy:.0f} %, kinds found: {record.summary['truth']['adjusted_rand']:.2f}")
    return found


if __name__ == "__main__":
    main()
