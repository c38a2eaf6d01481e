"""Shared by the benchmarks: command-line arguments, test clients, and the JSON result."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
from pathlib import Path

import numpy as np

import coterie
from coterie.data import load, partition
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.loading import available
from coterie.seeds import Seed


def arguments(text: str, only: str | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--tiny", action="store_true", help="a small problem, to check that the script runs")
    if only is not None:
        parser.add_argument("--only", default=only, help="experiments to run, separated by commas")
    return parser.parse_args()


def machine() -> dict:
    """Versions and machine, which the figures depend on."""
    import jax

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip() or None,
        "coterie": coterie.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }


def finish(results: dict, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({**results, "machine": machine()}))


def peak_bytes() -> int:
    """Peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def images(name: str, shape: tuple[int, ...], count: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Images from $COTERIE_DATA if found, otherwise random images of that shape; pixels in [0, 1]."""
    file = Path(os.environ.get("COTERIE_DATA", "")) / f"{name}.npz"
    if file.is_file():
        with np.load(file) as archive:
            x = np.concatenate([archive["x_train"], archive["x_test"]])[:count]
            y = np.concatenate([archive["y_train"], archive["y_test"]])[:count]
        return x.reshape(-1, *shape).astype(np.float32) / 255, y.astype(np.int32), name
    rng = Seed(0).fold("images").generator()
    x = rng.random((count, *shape), dtype=np.float32)
    return x, rng.integers(0, 10, count).astype(np.int32), "random images"


def power_law(clients: int, seed: int = 0) -> FederatedData:
    """FedProx's partition of MNIST: two digits per client, power-law sizes, a tenth for testing."""
    x, y, source = images("mnist", (28, 28), 70 * clients)
    index = partition.by_classes(y, clients, per_client=2, seed=seed)
    return partition.assemble(source, (aligned(x), y), index, test_share=0.1, classes=10)


def cifar_clients(clients: int, samples: int) -> FederatedData:
    """CIFAR-10 clients with `samples` images each."""
    x, y, source = images("cifar10", (32, 32, 3), clients * samples)
    return partition.assemble(source, (aligned(x), y), partition.iid(len(x), clients), test_share=0.1, classes=10)


def shakespeare_clients(clients: int, samples: int) -> FederatedData:
    """Shakespeare roles with `samples` training windows each if found, otherwise random characters."""
    if available("shakespeare"):
        return load("shakespeare", clients=clients, max_samples=samples)
    x = Seed(0).fold("characters").generator().integers(0, 80, (clients * samples, 80)).astype(np.uint8)
    index = partition.iid(len(x), clients)
    return partition.assemble("random characters", (x, x[:, 0]), index, test_share=0.1, classes=80, tokens=80)


def tweet_clients(clients: int, samples: int) -> FederatedData:
    """Accounts with `samples` tweets each: 25 random words out of 20,000, with random vectors of 300 numbers."""
    rng = Seed(0).fold("words").generator()
    x = rng.integers(0, 20_000, (clients * samples, 25)).astype(np.uint16)
    table = rng.standard_normal((20_000, 300), np.float32)
    index = partition.iid(len(x), clients)
    pool = (x, (x[:, 0] % 2).astype(np.int32))
    return partition.assemble("random words", pool, index, test_share=0.1, classes=2, tokens=len(table), table=table)


def empty_index(clients: int) -> Index:
    """An index without examples, for clients that have no test data."""
    return Index.from_sizes(np.zeros(0, np.int64), np.zeros(clients, np.int64))
