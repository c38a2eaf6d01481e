"""Damaged records: flipped bits, truncated, swapped, missing and extended files are not read as if they were intact."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import coterie
from coterie import RunRecord, codec
from coterie.errors import Error, RecordError
from coterie.runs.client_facts import RecordedFacts

pytestmark = pytest.mark.slow

SPEC = {
    "data": {"name": "blobs", "clients": 8, "samples": 20, "side": 4},
    "method": {"name": "fedgroup", "clusters": 2, "alpha": 2},
    "local": {"epochs": 1, "learning_rate": 0.1},
    "run": {"rounds": 5, "clients_per_round": 4, "checkpoint_every": 2},
}


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished record."""
    return coterie.run(SPEC, out=tmp_path_factory.mktemp("damage") / "whole").path


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The record of a run that was killed after its fourth round, with two checkpoints."""

    def kill(row):
        if row["t"] == 3:
            raise Killed

    folder = tmp_path_factory.mktemp("damage") / "killed"
    with pytest.raises(Killed):
        coterie.run(SPEC, out=folder, on_round=kill)
    return folder


def files(folder: Path, *patterns: str) -> list[Path]:
    """Files of a record, relative to it."""
    return sorted(file.relative_to(folder) for pattern in patterns for file in folder.glob(pattern) if file.is_file())


def damaged(content: bytes, others: list[bytes], draw: random.Random) -> bytes | None:
    """The content of a file after an accident; None: the file is gone."""
    place = draw.randrange(len(content)) if content else 0
    return draw.choice(
        (
            lambda: content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :],
            lambda: content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :],
            lambda: content[:place],
            lambda: content[:place] + bytes(min(512, len(content) - place)) + content[place + 512 :],
            lambda: content + draw.randbytes(draw.choice((1, 8, 512))),
            lambda: content[:place] + content[place + draw.choice((1, 8, 512)) :],
            lambda: content + content,
            lambda: draw.choice(others),
            lambda: b"",
            lambda: None,
        )
    )()


def damage(folder: Path, file: Path, draw: random.Random) -> None:
    """Damage a file of a record."""
    others = [each.read_bytes() for each in folder.rglob("*") if each.is_file() and each.suffix == file.suffix]
    content = damaged((folder / file).read_bytes(), others, draw) if (folder / file).stat().st_size else b"x"
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)


def values(folder: Path) -> dict[str, bytes]:
    """Everything that the binary files of a finished record contain, as a reader gets it."""
    record = RunRecord.read(folder)
    steps = [number for number, row in enumerate(record.rounds) if "accuracy" in row]
    read = {f"results {step}": codec.encode(vars(record.client_results(step))) for step in steps}
    read |= {
        f"evidence {file.stem}": codec.encode(record.evidence(int(file.stem))) for file in files(folder, "evidence/*")
    }
    if (facts := RecordedFacts.read(folder)) is not None:
        read["facts"] = codec.encode(vars(facts))
    assert record.models()
    return {**read, "models": codec.encode(record.served)}


def test_a_damaged_binary_file_is_named_or_read_as_it_was(campaign, bounded, tally, message, whole, tmp_path):
    counts = tally("damage", "models, results, evidence")
    expected = values(whole)
    for number in range(campaign.damages // 2):
        draw = random.Random(f"binary {campaign.seed} {number}")
        folder = shutil.copytree(whole, tmp_path / str(number))
        file = draw.choice(files(folder, "*.safetensors", "clients/*", "evidence/*"))
        damage(folder, file, draw)
        try:
            with bounded():
                found = values(folder)
        except RecordError as fault:
            text, found = message(fault), None
        if found is None:
            assert file.name in text or not (folder / file).exists()
            counts.add("rejected")
        else:
            missing = expected.keys() - found.keys()
            assert found == {name: value for name, value in expected.items() if name not in missing}
            assert not missing or not (folder / file).exists(), f"case {number}: {file}"
            counts.add("read, same values" if not missing else "missing")
        shutil.rmtree(folder)


def timeless(value):
    """A JSON value without durations and memory."""
    if isinstance(value, dict):
        return {
            key: timeless(each) for key, each in value.items() if key not in ("seconds", "peak_rss_bytes", "checksums")
        }
    return [timeless(each) for each in value] if isinstance(value, list) else value


def result(folder: Path) -> object:
    """What a finished run reports, but for durations."""
    record = RunRecord.read(folder)
    return timeless(record.summary), timeless(record.rounds), codec.encode(record.served)


def test_a_damaged_record_is_not_resumed_or_ends_as_without_damage(
    campaign, bounded, tally, message, whole, killed, tmp_path
):
    counts = tally("damage", "resumed records")
    expected = result(whole)
    for number in range(campaign.damages // 3):
        draw = random.Random(f"resume {campaign.seed} {number}")
        folder = shutil.copytree(killed, tmp_path / str(number))
        file = draw.choice(files(folder, "spec.toml", "rounds.jsonl", "checkpoint/*", "checkpoint/*", "*/*", ".lock"))
        damage(folder, file, draw)
        try:
            with bounded():
                coterie.resume(folder)
        except Error as fault:
            message(fault)
            counts.add("rejected")
        else:
            assert result(folder) == expected, f"case {number}: {file}"
            counts.add("resumed, same result")
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["summary.json", "rounds.jsonl", "spec.toml"])
def test_a_damaged_text_file_of_a_finished_record_is_rejected_or_read_with_the_same_values(
    name, campaign, bounded, tally, message, whole, tmp_path
):
    # The checksum of a summary is over its values: another space changes nothing.
    counts = tally("damage", name)
    folder = shutil.copytree(whole, tmp_path / "copy")
    before, intact = RunRecord.read(folder), (folder / name).read_bytes()
    for number in range(campaign.damages // 10):
        damage(folder, Path(name), random.Random(f"{name} {campaign.seed} {number}"))
        try:
            with bounded():
                record = RunRecord.read(folder)
        except RecordError as fault:
            text, record = message(fault), None
        if record is None:
            assert name in text
            counts.add("rejected")
        elif not (folder / "summary.json").exists():
            assert record.summary == {}
            counts.add("read as an unfinished run, without summary.json")
        else:
            assert (record.summary, record.rounds) == (before.summary, before.rounds), f"case {number}"
            counts.add("read, same values")
        (folder / name).write_bytes(intact)
