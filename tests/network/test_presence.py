"""The file in which a running server says who is present."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from coterie.errors import FederationError
from coterie.federation.network.presence import ClientStatus, Presence, read_presence, write_presence

NOON = datetime(2030, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PRESENCE = Presence(
    "runs/one",
    NOON,
    NOON + 60 * SECOND,
    5.0,
    {
        "a": ClientStatus("present", NOON, NOON + 55 * SECOND, 12, 400, 1),
        "b": ClientStatus("away", NOON, reason="no reply within 60 s"),
        "SHA256:abc": ClientStatus("refused", NOON, reason="its key is not admitted"),
    },
)


def test_what_is_written_is_read(tmp_path):
    write_presence(tmp_path, PRESENCE)
    assert read_presence(tmp_path) == PRESENCE
    stopped = replace(PRESENCE, clients={}, stopped=True)
    write_presence(tmp_path, stopped)
    assert read_presence(tmp_path) == stopped
    assert [file.name for file in tmp_path.iterdir()] == ["clients.json"]


def test_without_a_file_there_is_no_presence(tmp_path):
    assert read_presence(tmp_path) is None


def test_a_server_runs_for_three_intervals_after_its_last_write():
    # Written at 12:01:00, every 5 s: running until 12:01:15.
    assert PRESENCE.is_running(NOON + 75 * SECOND)
    assert not PRESENCE.is_running(NOON + 76 * SECOND)
    assert not replace(PRESENCE, stopped=True).is_running(NOON + 60 * SECOND)
    assert replace(PRESENCE, written=datetime.now(UTC)).is_running()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: "",
        lambda content: "[]",
        lambda content: json.dumps({**content, "version": 2}),
        lambda content: json.dumps({**content, "interval": "long"}),
        lambda content: json.dumps({**content, "extra": 1}),
        lambda content: json.dumps({**content, "written": "2030-05-01T12:00:00"}),
        lambda content: json.dumps({**content, "started": 7}),
        lambda content: json.dumps({**content, "clients": {"a": {**content["clients"]["a"], "state": "asleep"}}}),
        lambda content: json.dumps({**content, "clients": {"a": {}}}),
        lambda content: json.dumps(content)[:100],
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(change, tmp_path):
    write_presence(tmp_path, PRESENCE)
    file = tmp_path / "clients.json"
    file.write_text(change(json.loads(file.read_text())))
    with pytest.raises(FederationError, match=r"clients\.json is damaged: "):
        read_presence(tmp_path)


def test_a_reader_finds_a_whole_file_while_the_server_writes(tmp_path):
    write_presence(tmp_path, PRESENCE)
    many = replace(PRESENCE, clients={f"c{n}": ClientStatus("present", NOON) for n in range(200)})

    def write():
        for n in range(50):
            write_presence(tmp_path, (PRESENCE, many)[n % 2])

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(write)
        while not working.done():
            assert read_presence(tmp_path) in (PRESENCE, many)
        working.result()
