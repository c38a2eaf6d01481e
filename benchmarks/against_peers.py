"""How fast is a round, compared with FedJAX, Flower's simulation engine and plain PyTorch loops?

    python benchmarks/against_peers.py --setup       # create the environments of the peers in .venv-peers, once
    python benchmarks/against_peers.py [--json] [--tiny] [--only mclr,mlp,cnn,lenet5,charlstm]

The clients, epochs and batch size are those of how_fast_is_a_round.py, and all train the same twenty clients with the
same networks. Each peer runs in a process of its own that is waiting while the others run; rounds alternate. The time
is that of a whole round: batches, training, the new mean. Coterie uses two threads. FedJAX runs with its defaults,
Flower with one core per client, and each PyTorch loop with one and with two threads, of which the faster counts. The
first round of each, which compiles and loads, is left out.

Ratios above 1 mean that Coterie is faster per SGD step. `best` compares the best rounds, `median` is the median of the
ratios of rounds that followed each other. FedJAX fills batches across epochs and so takes slightly fewer steps.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import cifar_clients, finish, power_law, progress, ratio, seconds_of, shakespeare_clients, spread
from how_fast_is_a_round import BATCH_SIZE, LEARNING_RATE, MODELS
from peers.worker import ANSWER

from coterie.clients import LocalSGD, fit
from coterie.federation import vectorized
from coterie.federation.protocol import Mean
from coterie.seeds import Seed

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-peers"
#: Environment → packages, installed in this order.
PACKAGES = {
    "fedjax": [["jax==0.4.30", "jaxlib==0.4.30", "numpy<2", "dm-haiku==0.0.13", "fedjax==0.0.17"]],
    "flower": [["torch==2.13.0"], ["flwr[simulation]>=1.41,<1.42"]],
}
#: Script in benchmarks/peers → its environment.
SCRIPTS = {"run_fedjax": "fedjax", "run_flower": "flower", "run_pytorch": "flower"}
#: Implementation → its script and its part of the request.
PEERS = {
    "fedjax": ("run_fedjax", {}),
    "flower": ("run_flower", {}),
    **{
        f"pytorch {kind}, {threads} thread{'s' * (threads > 1)}": ("run_pytorch", {"kind": kind, "threads": threads})
        for kind in ("tight", "dataloader")
        for threads in (1, 2)
    },
}
#: Model → seconds that one round of every implementation usually takes, all together.
NAMES = {"mclr": 4, "mlp": 7, "cnn": 9, "lenet5": 3, "charlstm": 25}
#: Packages whose versions are reported, by environment.
REPORTED = {"fedjax": ("fedjax", "jax", "dm-haiku", "numpy"), "flower": ("flwr", "ray", "torch")}


def python(environment):
    return ENVIRONMENTS / environment / "bin" / "python"


def set_up():
    for environment, calls in PACKAGES.items():
        packages = ", ".join(itertools.chain.from_iterable(calls))
        print(f"Installing {packages} in {ENVIRONMENTS.name}/{environment}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENTS / environment], check=True)
        for each in calls:
            subprocess.run([python(environment), "-m", "pip", "install", "--quiet", *each], check=True)


def versions_in(environment):
    """Versions of its packages, or None if the environment does not exist or is not complete."""
    if not python(environment).exists():
        return None
    code = "import json, sys; from importlib.metadata import version; "
    code += "print(json.dumps({package: version(package) for package in sys.argv[1:]}))"
    command = [python(environment), "-c", code, *REPORTED[environment]]
    done = subprocess.run(command, capture_output=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


class Peer:
    """A process that runs rounds on request."""

    def __init__(self, script, folder):
        self._log = folder / f"{script}.log"
        command = [python(SCRIPTS[script]), ROOT / "benchmarks" / "peers" / f"{script}.py"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def run(self, request):
        """Seconds and number of SGD steps of one round."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, as the end of its output shows
            print(json.dumps(request), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer = json.loads(line.removeprefix(ANSWER))
                return answer["seconds"], answer["steps"]
        last = "\n".join(self._log.read_text().splitlines()[-20:])
        raise SystemExit(f"{self._log.stem} ended:\n{last}")

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # the end of its input ends it
        self._process.stdout.read()
        self._process.wait(60)


def write_clients(file, data, cohort):
    arrays = {}
    for i, client in enumerate(cohort):
        arrays[f"x{i}"], arrays[f"y{i}"] = data.examples(client)
    np.savez(file, **arrays)


def compare(name, data, epochs, repeats, peers, folder):
    """All implementations of one model, alternately: seconds of each round, and SGD steps of a round."""
    cohort = [data.clients[i] for i in Seed(1).fold("cohort").sample(len(data.clients), 20)]
    file = folder / f"{name}.npz"
    write_clients(file, data, cohort)
    task = MODELS[name][2]()
    fed, start = vectorized(data, task, threads=2), task.init(Seed(0))
    local = LocalSGD(epochs=epochs, batch_size=BATCH_SIZE, learning_rate=LEARNING_RATE)
    own_steps = epochs * sum(-(-len(data.rows(data.position(client), "fit")) // BATCH_SIZE) for client in cohort)
    request = {"model": name, "clients": str(file), "epochs": epochs}
    request |= {"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}

    def by_coterie():
        return seconds_of(lambda: fed.ask(cohort, fit, Seed(0), start=start, local=local, reduce=Mean())), own_steps

    calls = {"coterie": by_coterie}
    for implementation, (script, own) in PEERS.items():
        if script in peers:
            calls[implementation] = lambda script=script, own=own: peers[script].run(request | own)
    times, steps = {implementation: [] for implementation in calls}, {}
    for repeat in range(repeats + 1):
        for implementation, call in calls.items():
            time.sleep(0.1)  # threads of BLAS and OpenMP keep spinning for a while and would slow down the next call
            took, steps[implementation] = call()
            if repeat:  # the first round compiles and loads
                times[implementation].append(took)
    return times, steps


def rounded(figures, digits):
    return {key: round(value, digits) for key, value in figures.items()}


def row_of(times, steps):
    """The figures of one model: per round and per step, and ratios per step to the best implementation of each peer."""
    per_step = {key: [1e6 * took / steps[key] for took in value] for key, value in times.items()}
    fastest = {key: min(value) for key, value in per_step.items()}
    ratios = {}
    for peer in ("fedjax", "flower", "pytorch tight", "pytorch dataloader"):
        if own := [key for key in fastest if key.startswith(peer)]:
            key = min(own, key=fastest.__getitem__)
            ratios[peer] = {"implementation": key, **rounded(ratio(per_step[key], per_step["coterie"]), 3)}
    return {
        "us_per_step": {key: rounded(spread(value), 2) for key, value in per_step.items()},
        "seconds_per_round": {key: rounded(spread(value), 5) for key, value in times.items()},
        "steps": steps,
        "ratio": ratios,
        "rounds": {key: [round(each, 2) for each in value] for key, value in per_step.items()},
    }


def print_row(name, row):
    print(f"{name}: µs per SGD step, best (median)")
    for implementation, figure in row["us_per_step"].items():
        print(f"  {implementation:32}{figure['best']:>10.1f} ({figure['median']:.1f})")
    for peer, figure in row["ratio"].items():
        print(f"  {figure['best']:.2f} times as fast as {peer} (median {figure['median']:.2f})", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--tiny", action="store_true", help="a small problem, to check that the script runs")
    parser.add_argument("--setup", action="store_true", help="create the environments of the peers, and end")
    parser.add_argument("--only", default=",".join(NAMES), help="models, separated by commas")
    parser.add_argument("--rounds", type=int, default=6, help="timed rounds of each implementation")
    return parser.parse_args()


def main():
    options = arguments()
    if options.setup:
        return set_up()
    found = {environment: versions_in(environment) for environment in PACKAGES}
    missing = [environment for environment, known in found.items() if known is None]
    for environment in missing:
        print(
            f"The environment {ENVIRONMENTS.name}/{environment} is missing or not complete, so what runs in it is left "
            "out; create it with --setup"
        )
    clients = 100 if options.tiny else 1000
    datasets = {
        "mnist": lambda: power_law(clients),
        "cifar10": lambda: cifar_clients(20, 50),
        "shakespeare": lambda: shakespeare_clients(20, 30),
    }
    models = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers = {script: Peer(script, folder) for script, env in SCRIPTS.items() if env not in missing}
        try:
            for name in options.only.split(","):
                dataset, epochs, _ = MODELS[name]
                data = datasets[dataset]()
                epochs, repeats = (1, 1) if options.tiny else (epochs, options.rounds)
                progress(f"{name}, {repeats} rounds of each", None if options.tiny else 20 + repeats * NAMES[name])
                times, steps = compare(name, data, epochs, repeats, peers, folder)
                models[name] = {"data": data.name, **row_of(times, steps)}
                print_row(name, models[name])
        finally:
            for peer in peers.values():
                peer.close()
    finish({"models": models, "versions": found, "missing": missing}, options)


if __name__ == "__main__":
    main()
