"""Where does the time of a whole run go? FlexCFL on MNIST, with all clients scored after every round.

    python benchmarks/where_does_the_time_go.py [--json] [--tiny] [--rounds 300] [--repeats 2] [--full]

Runs `coterie run` in a process of its own, with the settings of the three MNIST rows of FlexCFL's table 3:
mnist-powerlaw (1,000 clients), logistic regression, MLP and CNN, 3 groups, 10 epochs, batch size 10, 20 clients per
round, which first visit every client once; without these data, digits. A round of the CNN takes seconds, so that it
runs for a twentieth of the rounds; what is done once counts 20 times as much there. With --full it runs for all
rounds, which takes ten minutes or more. The shares come from `seconds` of
the record: training, evaluation, clustering (all else that the method does, with drift detection), recording (lines,
results of clients, checkpoints), setup (loading the data), and other (what is left of the total). `start` is the time
of the process outside of the run: Python, imports, the printed result. Of several runs, that with the shortest total
is reported; the first may compile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from common import finish, progress

from coterie.data.loading import available


class Model(NamedTuple):
    """A model that is measured.

    Attributes:
        settings: Its settings.
        seconds: Roughly the seconds of a round.
        part: It runs for one of this many rounds.
    """

    settings: list[str]
    seconds: float
    part: int = 1


MODELS = {
    "mclr": Model(["--set", "model.name=mclr"], 0.1),
    "mlp": Model(["--set", "model.name=mlp", "--set", "model.widths=[128]"], 0.3),
    "cnn": Model(["--set", "model.name=cnn-mnist"], 8, 20),
}
METHOD = ["--method", "flexcfl", "--set", "method.clusters=3", "--set", "method.pretrain_steps=0"]
TRAINING = ["--epochs", "10", "--batch-size", "10", "--learning-rate", "0.03"]
COHORTS = ["--clients-per-round", "20", "--set", "run.sampler=sweep"]
PARTS = ("training", "evaluation", "clustering", "recording", "setup")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--tiny", action="store_true", help="a small problem, to check that the script runs")
    parser.add_argument("--rounds", type=int, default=300, help="number of rounds")
    parser.add_argument("--repeats", type=int, default=2, help="number of runs of each model")
    parser.add_argument("--full", action="store_true", help="all rounds of all models, also of the CNN")
    return parser.parse_args()


def run(data, model, rounds, folder):
    """The seconds of one run, and of its process."""
    command = [sys.executable, "-c", "from coterie.cli import main; main()", "run", "--data", data]
    command += [*METHOD, *MODELS[model].settings, *TRAINING, *COHORTS, "--rounds", str(rounds)]
    begin = time.perf_counter()
    subprocess.run([*command, "--out", folder, "--json"], check=True, capture_output=True)
    process = time.perf_counter() - begin
    summary = json.loads((folder / "summary.json").read_text())
    return {**summary["seconds"], "process": process, "peak_rss_bytes": summary["peak_rss_bytes"]}


def shares(seconds):
    """Part → seconds, with what is left, and the share of everything but local training."""
    parts = {part: seconds[part] for part in PARTS}
    parts["other"] = seconds["total"] - sum(parts.values())
    row = {
        part: {"seconds": round(value, 3), "share": round(value / seconds["total"], 3)} for part, value in parts.items()
    }
    return {
        "parts": row,
        "total_seconds": round(seconds["total"], 3),
        "start_seconds": round(seconds["process"] - seconds["total"], 3),
        "compile_seconds": seconds["compile"],
        "peak_rss_bytes": seconds["peak_rss_bytes"],
        "share_without_training": round(1 - seconds["training"] / seconds["total"], 3),
    }


def share_of_all(models, all_rounds):
    """The share of everything but local training in the runs of all models, as if each ran for all rounds."""
    rest = total = 0.0
    for found in models.values():
        part = all_rounds / found["rounds"]
        once = found["parts"]["setup"]["seconds"]  # the data are loaded once, however many rounds there are
        whole = once + (found["total_seconds"] - once) * part
        rest += whole - found["parts"]["training"]["seconds"] * part
        total += whole
    return round(rest / total, 3)


def main():
    options = arguments()
    data = "mnist-powerlaw" if available("mnist-powerlaw") and not options.tiny else "digits"
    all_rounds, repeats = (3, 1) if options.tiny else (options.rounds, options.repeats)
    results = {"data": data, "rounds": all_rounds, "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        for model, (_, seconds, part) in MODELS.items():
            if data == "digits" and model == "cnn":
                continue  # it is a model for images of 28 × 28
            runs, rounds = [], all_rounds if options.full else max(1, all_rounds // part)
            for repeat in range(repeats):
                text = f"{model}, run {repeat + 1} of {repeats}, {rounds} rounds"
                progress(text, None if options.tiny else 5 + seconds * rounds)
                runs.append(run(data, model, rounds, Path(folder) / f"{model}-{repeat}"))
            best = min(runs, key=lambda each: each["total"])
            found = {**shares(best), "rounds": rounds, "totals": [round(each["total"], 3) for each in runs]}
            results["models"][model] = found
            start = f"and {found['start_seconds']:.1f} s to start"
            print(f"{model}, {data}, {rounds} rounds: {found['total_seconds']:.1f} s, {start}")
            for part, figure in found["parts"].items():
                print(f"  {part:12}{figure['seconds']:8.2f} s {figure['share']:7.1%}")
            print(f"  everything but local training: {found['share_without_training']:.1%}")
    results["share_without_training"] = share_of_all(results["models"], all_rounds)
    share = results["share_without_training"]
    print(f"everything but local training, {all_rounds} rounds of each model: {share:.1%}")
    finish(results, options)


if __name__ == "__main__":
    main()
