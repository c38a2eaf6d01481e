"""How far a run is, while its record grows, stops, is resumed and disappears."""

from __future__ import annotations

import shutil

import pytest

from coterie.reports.live.following import Directory, Follower


class Clock:
    """A clock that the test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_rounds_are_seen_as_they_are_written(growing):
    run = growing(rounds=10)
    follower = Follower(run.folder)
    seen = follower.look()
    assert (seen.status, seen.round, seen.rounds, seen.history) == ("running", 0, 10, ())
    assert seen.names == {"method": "ifca", "data": "blobs", "model": "mclr", "seed": 0}
    run.add(0.5)
    assert follower.look().history == (0.5,)
    run.add(0.6, 0.7)
    seen = follower.look()
    assert (seen.round, seen.history) == (3, (0.5, 0.6, 0.7))
    run.end()
    seen = follower.look()
    assert (seen.status, seen.round, seen.resume, seen.seconds_left) == ("done", 3, "", None)


def test_the_stamp_changes_if_and_only_if_the_record_does(growing):
    run = growing().add(0.5)
    follower = Follower(run.folder)
    first = follower.look().stamp
    assert follower.look().stamp == first
    second = (run.add(0.6), follower.look().stamp)[1]
    third = (run.end(), follower.look().stamp)[1]
    assert len({first, second, third}) == 3


def test_the_end_is_estimated_from_the_lines_and_then_from_their_arrival(growing, clock):
    run = growing(rounds=10).add(0.5, 0.5, seconds=2.0)
    follower = Follower(run.folder, clock)
    # The lines say 2 s per round: 8 rounds, 16 s.
    assert (follower.look().seconds_per_round, follower.look().seconds_left) == (2.0, 16.0)
    for _ in range(3):  # with evaluations, they come every 5 s
        clock.now += 5
        run.add(0.5)
        seen = follower.look()
    assert (seen.round, seen.seconds_per_round, seen.seconds_left) == (5, 5.0, 25.0)


def test_a_killed_run_is_interrupted_and_continues_with_fewer_lines(growing):
    run = growing().add(0.1, 0.2, 0.3, 0.4)
    follower = Follower(run.folder)
    assert follower.look().status == "running"
    with (run.folder / "rounds.jsonl").open("ab") as opened:
        opened.write(b'{"t": 4, "sta')  # it was killed in the middle of a line
    run.kill()
    seen = follower.look()
    assert (seen.status, seen.round, seen.resume) == ("interrupted", 4, f"coterie resume {run.folder}")
    assert (seen.seconds_per_round, seen.reason) == (None, "")
    run.resume(2).add(0.8)
    seen = follower.look()
    assert (seen.status, seen.round, seen.history, seen.resume) == ("running", 3, (0.1, 0.2, 0.8), "")


def test_a_failed_run_has_a_reason_and_loses_it_when_it_is_resumed(growing):
    run = growing().add(0.1, 0.2).end("failed", reason="too few replies")
    follower = Follower(run.folder)
    seen = follower.look()
    assert (seen.status, seen.reason, seen.resume) == ("failed", "too few replies", f"coterie resume {run.folder}")
    run.resume(1)
    seen = follower.look()
    assert (seen.status, seen.round, seen.reason) == ("running", 1, "")


def test_the_record_of_a_federation_names_its_own_command(growing):
    run = growing().add(0.1, network={"up": 1}).stop()
    assert Follower(run.folder).look().resume == f"coterie serve --resume {run.folder}"


def test_a_run_of_another_machine_is_running_while_its_lines_grow(growing, clock):
    # Its lock file names a process of the other machine, which does not exist here.
    run = growing().add(0.1).kill()
    follower = Follower(run.folder, clock)
    assert follower.look().status == "interrupted"
    lock = (run.folder / ".lock").read_bytes()
    row = (run.folder / "rounds.jsonl").read_bytes()
    with (run.folder / "rounds.jsonl").open("ab") as opened:
        opened.write(row.replace(b'"t":0', b'"t":1'))
    seen = follower.look()
    assert (seen.status, seen.round) == ("running", 2)
    clock.now += 59
    assert follower.look().status == "running"
    clock.now += 2
    assert follower.look().status == "interrupted"
    assert (run.folder / ".lock").read_bytes() == lock  # nothing was written, no lock was taken


def test_a_record_that_disappears_is_missing_until_it_is_there_again(growing, tmp_path):
    run = growing("runs/a").add(0.1, 0.2)
    follower = Follower(run.folder)
    assert follower.look().round == 2
    run.stop()
    shutil.rmtree(run.folder)
    assert follower.look().status == "missing"
    growing("runs/a", rounds=3).add(0.9)
    seen = follower.look()
    assert (seen.status, seen.round, seen.rounds, seen.history) == ("running", 1, 3, (0.9,))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("spec.toml", "[", "spec.toml"),
        ("spec.toml", "a = 1", "spec.toml is damaged"),
        ("summary.json", "{", "summary.json is damaged"),
        ("rounds.jsonl", '{"t": 0}\n', "rounds.jsonl is damaged in line 1"),
    ],
)
def test_a_damaged_file_is_named(growing, name, content, reason):
    run = growing().add(0.1).end()
    (run.folder / name).write_text(content)
    seen = Follower(run.folder).look()
    assert seen.status == "unreadable"
    assert reason in seen.reason


def test_runs_of_a_folder_come_and_go(growing, tmp_path):
    directory = Directory(tmp_path / "runs")
    assert directory.scan() == {}
    one = growing("runs/a")
    two = growing("runs/deep/b")
    found = directory.scan()
    assert [each.folder for each in found.values()] == [one.folder, two.folder]
    assert directory.scan()[next(iter(found))] is next(iter(found.values()))
    two.stop()
    shutil.rmtree(two.folder)
    assert [each.folder for each in directory.scan().values()] == [one.folder]
    assert directory.only() is None
    assert Directory(one.folder).only() is not None


@pytest.mark.parametrize("key", ["", ".", "..", "../a", "a", "%2e%2e", "/etc", "a" * 16])
def test_an_id_that_is_no_run_finds_nothing(growing, tmp_path, key):
    growing("runs/a")
    growing("secret/b")
    assert Directory(tmp_path / "runs").get(key) is None
