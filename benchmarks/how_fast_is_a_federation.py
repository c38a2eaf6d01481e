"""How fast is a federation between machines? Seconds, bytes and memory of real processes on the loopback interface.

    .venv-network/bin/python benchmarks/how_fast_is_a_federation.py [--json] [--tiny]      # make test creates it

Four clients, each with 500 MNIST images (random ones without MNIST in $COTERIE_DATA), FedAvg, one local epoch, every
round evaluated: logistic regression (31 kB) and an MLP of 1.6 MB. Gate, SuperLink and SuperNodes run with TLS and keys,
as `coterie serve` and `coterie join` start them. Per round: seconds, the part in which clients worked and the rest,
which is Flower's polling and this machine; real bytes, and bytes as the ledger counts them. Memory of a client is that
of its two processes: Coterie's and Flower's SuperNode.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from common import arguments, finish, images

CLIENTS = 4
MODELS = {"mclr": {"name": "mclr"}, "mlp 1.6 MB": {"name": "mlp", "widths": [504]}}
COMMAND = [sys.executable, "-c", "from coterie.cli import main; main()"]


def prepare(folder):
    """Keys, certificates, admissions and data of all clients."""
    from coterie.federation.network.admissions import Admissions
    from coterie.federation.network.certificates import create_ca, create_server_certificate
    from coterie.federation.network.keys import create_client_key

    federation = folder / "federation"
    create_ca(federation)
    create_server_certificate(federation, ["127.0.0.1"])
    x, y, source = images("mnist", (28, 28), 500 * CLIENTS)
    for place in range(CLIENTS):
        pair = create_client_key(folder, f"client{place}")
        Admissions(federation).admit(pair.public_key)
        mine = slice(500 * place, 500 * (place + 1))
        np.savez(folder / f"client{place}.npz", x=x[mine], y=y[mine])
    return federation, source


def memory(process):
    """Resident bytes of a process and its children: (all, by name)."""
    found = {}
    listed = subprocess.run(["ps", "-eo", "pid,ppid,rss,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()[1:]]
    for pid, parent, rss, command in rows:
        if int(pid) == process.pid:
            found["coterie"] = int(rss) * 1024
        elif int(parent) == process.pid and "supernode" in command:
            found["supernode"] = int(rss) * 1024
    return found


def measure(folder, federation, model, port, rounds):
    from coterie.deployment import Place, serve

    spec = {
        "model": model,
        "method": "fedavg",
        "data": {"name": "mnist"},
        "local": {"epochs": 1},
        "run": {"rounds": rounds, "clients_per_round": CLIENTS},
        "network": {"clients": CLIENTS, "wait": 120, "deadline": 120},
    }
    clients, samples, idle, ended = [], [], {}, threading.Event()

    def watch():
        while not ended.wait(0.5):
            samples.append([memory(each) for each in clients])

    def on_status(text):
        if text.startswith("waiting"):
            for place in range(CLIENTS):
                name = f"client{place}"
                arguments = ["join", "--server", f"127.0.0.1:{port}", "--key", f"{name}.key", "--data", f"{name}.npz"]
                more = ["--ca", "federation/ca.crt", "--folder", f"{name}-{port}", "--yes", "--once", "--quiet"]
                clients.append(subprocess.Popen([*COMMAND, *arguments, *more], cwd=folder, stderr=subprocess.DEVNULL))
        if text == "running":
            idle.update(memory(clients[0]))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    times = [time.perf_counter()]
    try:
        record = serve(
            spec,
            Place(federation, "127.0.0.1", port),
            on_status=on_status,
            on_round=lambda row: times.append(time.perf_counter()),
        )
        for client in clients:
            client.wait(30)
    finally:
        ended.set()
        thread.join()
        for client in clients:
            if client.poll() is None:
                client.terminate()
    rows = [row["network"] for row in record.rounds[1:-1]]  # without compilation, and without the last evaluation
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    peak = {name: max((s[0].get(name, 0) for s in samples if s), default=0) for name in ("coterie", "supernode")}
    traffic = record.summary["traffic"]
    ledger = {way: traffic[f"{way}_bytes"] + traffic["by_purpose"]["evaluate"][way] for way in ("down", "up")}
    network = record.summary["network"]
    return {
        "parameters": record.summary["parameters"],
        "seconds_per_round": mean["seconds"],
        "work_per_round": mean["work"],
        "rest_per_round": mean["seconds"] - mean["work"],
        "exchanges_per_round": mean["exchanges"],
        "down_bytes_per_round": mean["down"],
        "up_bytes_per_round": mean["up"],
        "framing": {way: network[way] / ledger[way] - 1 for way in ledger},
        "client_bytes_idle": idle,
        "client_bytes_peak": peak,
        "accuracy": record.summary["accuracy"]["weighted"],
    }


def main():
    options = arguments(__doc__.splitlines()[0])
    try:
        import flwr  # noqa: F401
    except ImportError:
        print("Flower is not installed: run this script with .venv-network/bin/python, which `make test` creates")
        finish({"skipped": "flwr"}, options)
        return
    rounds = 3 if options.tiny else 12
    results = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        federation, source = prepare(folder)
        for place, (name, model) in enumerate(MODELS.items()):
            got = results[name] = measure(folder, federation, model, 9600 + place, rounds)
            print(
                f"{name}: {got['seconds_per_round']:.1f} s per round, of which clients worked "
                f"{got['work_per_round']:.2f} s; {got['exchanges_per_round']:.1f} exchanges, "
                f"{got['down_bytes_per_round'] / 1e6:.2f} MB down, {got['up_bytes_per_round'] / 1e6:.2f} MB up"
            )
            sizes = {
                when: {part: round(size / 1e6) for part, size in got[f"client_bytes_{when}"].items()}
                for when in ("idle", "peak")
            }
            print(f"    memory of a client in MB: {sizes}; {source}")
    finish({"federation": results}, options)


if __name__ == "__main__":
    main()
