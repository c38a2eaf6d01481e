"""coterie run and resume, on embedded data and on user data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie import RunRecord


def test_a_record_goes_to_a_new_folder(coterie, tiny):
    last = [coterie("run", *tiny).stdout.splitlines()[-2] for _ in range(3)]
    assert last == [f"Record: runs/blobs-fedavg-0{more}" for more in ("", "-2", "-3")]


def test_a_folder_with_files_is_an_error(coterie, tiny, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    done = coterie("run", *tiny, "--out", "full")
    assert done.exit_code == 2
    assert (
        done.stderr
        == "Error: full exists and is not empty; choose another folder (--out; out= in Python) or remove it\n"
    )


def test_a_run_shows_its_metrics_and_the_round_chosen_on_validation_examples(coterie, tiny):
    more = ["--set", 'run.metrics=["macro_f1"]', "--set", "run.primary_metric=ece", "--set", "run.patience=9"]
    summary = json.loads(coterie("run", *tiny, *more, "--json").stdout)
    shown = " ".join(coterie("run", *tiny, *more).stdout.split())
    for name in ("macro_f1", "ece"):
        entry = summary["metrics"][name]
        values = f"{entry['value']:.4g} (mean over clients {entry['mean']:.4g}, worst 10 % {entry['worst_tenth']:.4g})"
        assert f"{name} {values}" in shown
    best = summary["best_round"]
    text = f"round {best['t'] + 1}, chosen on validation examples: ece {best['test']:.4g} on test examples"
    assert f"best round {text}; its models are served" in shown
    # Without learning all rounds are equal, and the first of them counts as the best.
    last = coterie("run", *tiny, "--lr", 0, "--set", "run.validate=true").stdout
    assert "; the models of the last round are served" in " ".join(last.split())


def test_a_run_with_noise_shows_epsilon_and_what_it_covers(coterie, tiny):
    noise = ["--set", "privacy.max_update_norm=1", "--set", "privacy.noise_multiplier=2"]
    done = coterie("run", *tiny, *noise)
    assert done.exit_code == 2
    assert "set method.weights = 'uniform'" in done.stderr
    uniform = [*noise, "--set", "method.weights=uniform"]
    entry = json.loads(coterie("run", *tiny, *uniform, "--json").stdout)["privacy"]
    shown = coterie("run", *tiny, *uniform)
    line = next(line for line in shown.stdout.splitlines() if line.startswith("privacy"))
    assert f"ε = {entry['epsilon']:.3g} at δ = {entry['delta']:.2g} for the models, if the server is trusted" in line
    clustered = " ".join(coterie("run", *tiny, *uniform, "--method", "cfl").stdout.split())
    assert "what the method decides from individual replies (fit) is not covered" in clustered


def test_a_run_with_drift_shows_how_the_method_responded(coterie, tiny):
    # The oracle with all clients in every round: in round 1 all eight swap, and it migrates those that moved at once.
    args = ["--method", "oracle", "--clients-per-round", 8, "--set", "shift.name=swap_all"]
    args += ["--set", "shift.probability=1", "--set", "shift.rounds=[1]"]
    shown = {line.split("  ")[0]: line for line in coterie("run", *tiny, *args).stdout.splitlines()}
    kept = json.loads(coterie("run", *tiny, *args, "--json").stdout)["drift"]
    assert (kept["shifts"], kept["delay"], kept["migrations_wrong"]) == (8, 0, 0)
    moved = kept["true_cluster_changes"]
    assert f"{moved} of 8 shifts detected, after 0.0 rounds on average; 0 false alarms" in shown["drift"]
    assert f"{moved}, {moved} correct, 0 wrong" in shown["migrations"]
    assert "drift" not in coterie("run", *tiny).stdout


def test_flags_override_the_file_and_set_overrides_both(coterie, tmp_path):
    (tmp_path / "spec.toml").write_text(
        '[data]\nname = "blobs"\nclients = 8\nsamples = 20\n[run]\nrounds = 9\nclients_per_round = 2\nseed = 7\n'
    )
    done = coterie(
        "run",
        "spec.toml",
        "--rounds",
        2,
        "--set",
        "run.clients_per_round=3",
        "--set",
        "local.learning_rate=0.5",
        "--json",
    )
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["rounds"], summary["seed"], summary["clients"]) == (2, 7, 8)
    from coterie.runs.spec import Spec

    kept = Spec.of(tmp_path / summary["path"] / "spec.toml")
    assert (kept.run.clients_per_round, kept.local.learning_rate, kept.data.options["samples"]) == (3, 0.5, 20)


def test_another_data_set_drops_the_data_settings_of_the_file(coterie, tmp_path):
    (tmp_path / "spec.toml").write_text('[data]\nname = "digits"\npartition = "iid"\n[run]\nrounds = 1\n')
    assert coterie("run", "spec.toml", "--data", "blobs", "--set", "data.clients=8").exit_code == 0


def test_attackers_are_counted_and_recorded(coterie, tmp_path):
    args = ["--data", "blobs", "--set", "data.clients=8", "--rounds", 1, "--out", "kept"]
    done = coterie("run", *args, "--set", "attack.name=sign-flip", "--set", "attack.fraction=0.25")
    assert done.exit_code == 0, done.stderr
    assert "attackers    2 of 8 clients" in done.stdout
    assert len(RunRecord.read(tmp_path / "kept").served["attackers"]) == 2


def write_clients(folder, **sizes):
    """Write one .npz file per client."""
    folder.mkdir()
    draw = np.random.default_rng(0)
    for name, n in sizes.items():
        y = np.arange(n) % 3
        np.savez(folder / f"{name}.npz", x=draw.normal(size=(n, 4)) + y[:, None], y=y)


@pytest.mark.exhaustive
def test_a_folder_of_npz_files(coterie, tmp_path):
    write_clients(tmp_path / "mine", anna=30, ben=20, carl=25)
    done = coterie("run", "--data", "mine/", "--rounds", 3, "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["clients"] == 3
    assert summary["data"] == str(tmp_path / "mine")
    assert summary["path"] == "runs/mine-fedavg-0"
    assert summary["truth"] is None


def test_a_folder_may_have_a_number_as_its_name(coterie, tmp_path):
    write_clients(tmp_path / "15", anna=30, ben=20)
    assert coterie("run", "--data", "15", "--rounds", 1).exit_code == 0


def test_a_csv_table(coterie, tmp_path):
    rows = [f"{client},{n % 2},{n % 2 + 0.1 * n},{n}" for client in "abc" for n in range(12)]
    (tmp_path / "mine.csv").write_text("\n".join(["client,label,height,weight", *rows]))
    done = coterie("run", "--data", "mine.csv", "--rounds", 2, "--method", "ifca", "--set", "method.clusters=2")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-2] == "Record: runs/mine-ifca-0"


def test_a_run_on_user_data_resumes_from_another_folder(coterie, tmp_path, monkeypatch):
    write_clients(tmp_path / "mine", anna=30, ben=20)
    assert coterie("run", "--data", "mine", "--rounds", 2, "--out", "here").exit_code == 0
    (tmp_path / "here" / "summary.json").unlink()
    monkeypatch.chdir("/")
    assert coterie("resume", tmp_path / "here").exit_code == 0


def test_a_client_without_examples_is_kept_with_a_note(coterie, tmp_path):
    write_clients(tmp_path / "mine", anna=30, ben=20)
    np.savez(tmp_path / "mine" / "empty.npz", x=np.zeros((0, 4)), y=np.zeros(0, int))
    done = coterie("run", "--data", "mine", "--rounds", 2)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == "Note: 1 clients have no training examples; they are evaluated but never sampled\n"
    assert "clients without examples  1" in done.stdout
    assert coterie("run", "--data", "mine", "--rounds", 2, "--quiet").stderr == ""


def test_a_diverged_run_exits_with_4_and_keeps_its_record(coterie, tiny):
    done = coterie("run", *tiny, "--rounds", 20, "--set", "local.lr_decay=1e9", "--out", "here")
    assert done.exit_code == 4
    first, second = done.stderr.splitlines()
    assert first.startswith("Error: Round ")
    assert "lower the learning rate" in first
    assert second == "The record of the steps before is in here"
    record = RunRecord.read("here")
    assert record.summary["status"] == "diverged"
    assert 0 < len(record.rounds) == record.summary["rounds"] < 20
    assert coterie("export", "here").exit_code == 0


@pytest.mark.parametrize("way", ["below a file", "in /proc"])
def test_a_folder_that_cannot_be_written_is_an_error(way, coterie, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    out = "file/here" if way == "below a file" else "/proc/here"
    done = coterie("run", *tiny, "--out", out)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: The record in {out} cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_an_operating_system_error_is_one_line(coterie, monkeypatch):
    from coterie.runs import loop

    def fail(*args, **kwargs):
        raise OSError(24, "Too many open files", "data.bin")

    monkeypatch.setattr(loop, "run", fail)
    done = coterie("run")
    assert (done.exit_code, done.stderr) == (2, "Error: data.bin: Too many open files\n")


def test_a_bug_is_two_lines(coterie, monkeypatch):
    from coterie.runs import loop

    def fail(*args, **kwargs):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(loop, "run", fail)
    done = coterie("run")
    message = "Error: ZeroDivisionError: division by zero\nThis is a bug in Coterie; --debug shows the traceback.\n"
    assert (done.exit_code, done.stderr) == (1, message)


def test_names_are_completed(monkeypatch, coterie):
    monkeypatch.setenv("_COTERIE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("COMP_WORDS", "coterie run --method if")
    assert coterie().stdout.split() == ["ifca", "ifca-mig"]
    monkeypatch.setenv("COMP_WORDS", "coterie compare --methods fedavg,fedp")
    assert coterie().stdout.split() == ["fedavg,fedprox"]


def test_a_record_that_another_process_writes_is_refused(coterie, tiny, tmp_path):
    from coterie.runs.record_files import locked

    coterie("run", *tiny, "--out", "here")
    (tmp_path / "here" / "summary.json").unlink()
    with locked(tmp_path / "here"):
        done = coterie("resume", "here")
    assert done.exit_code == 2
    assert "is writing the record in here; wait until it has finished, or stop it\n" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_damaged_checkpoint_is_mentioned_and_the_one_before_it_is_used(coterie, tiny, tmp_path):
    coterie("run", *tiny, "--out", "here")
    (tmp_path / "here" / "summary.json").unlink()
    (tmp_path / "here" / "checkpoint" / "latest.safetensors").write_bytes(b"damaged")
    done = coterie("resume", "here")
    assert done.exit_code == 0
    assert done.stderr.startswith("Note: here/checkpoint/latest.safetensors: The data are damaged")
    assert "The run continues from the checkpoint before it, after " in done.stderr


def test_resuming_a_run_of_a_method_object_names_the_call_that_continues_it(coterie, tmp_path):
    from coterie.clients import LocalSGD
    from coterie.methods.fedavg import FedAvg
    from coterie.runs.loop import run

    run(
        {"data": {"name": "blobs", "clients": 4}, "run": {"rounds": 1}},
        out=tmp_path / "mine",
        method=FedAvg(LocalSGD(epochs=1)),
    )
    assert coterie("resume", "mine").stdout.startswith("FedAvg on blobs with mclr, seed 0: 1 round, 4 clients")
    (tmp_path / "mine" / "summary.json").unlink()
    done = coterie("resume", "mine")
    assert done.exit_code == 2
    assert "coterie.resume(path, method=...)" in done.stderr
