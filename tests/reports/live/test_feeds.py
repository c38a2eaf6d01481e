"""What browsers are sent, and how often."""

from __future__ import annotations

import json
import shutil

import pytest

from coterie.reports.live import feeds
from coterie.reports.live.feeds import ListFeed, RunFeed
from coterie.reports.live.following import Directory, Follower


@pytest.fixture
def at_once(monkeypatch):
    """No rest between two pages."""
    monkeypatch.setattr(feeds, "PAUSE", 0.0)
    monkeypatch.setattr(feeds, "REST", 0.0)
    monkeypatch.setattr(feeds, "_SEARCH", 0.0)


def feed_of(run):
    return RunFeed(Follower(run.folder), "/events", "/")


def report(feed, **options):
    return json.loads(feed.look(**options)["report"])


def rounds(data):
    return data["runs"][0]["curves"]["round"]


@pytest.mark.usefixtures("at_once")
def test_the_report_of_a_run_grows_with_it(growing):
    run = growing().add(0.5)
    feed = feed_of(run)
    data = report(feed)
    assert data["live"] == {"events": "/events", "list": "/"}
    assert (rounds(data), data["runs"][0]["status"]) == ([1], "running")
    run.add(0.6)
    assert rounds(report(feed)) == [1, 2]
    run.end()
    assert report(feed)["runs"][0]["status"] == "done"


@pytest.mark.usefixtures("at_once")
def test_a_report_is_made_only_if_the_record_changed(growing, monkeypatch):
    made = []
    original = feeds.page_data
    monkeypatch.setattr(feeds, "page_data", lambda views: made.append(views) or original(views))
    run = growing().add(0.5)
    feed = feed_of(run)
    first = feed.look()
    assert feed.look() == first
    assert len(made) == 1
    run.add(0.6)
    feed.look()
    assert len(made) == 2


def test_between_two_reports_it_rests_but_the_state_goes_on(growing, monkeypatch):
    monkeypatch.setattr(feeds, "PAUSE", 1000.0)
    run = growing().add(0.5)
    feed = feed_of(run)
    feed.look()
    run.add(0.6)
    found = feed.look()
    assert rounds(json.loads(found["report"])) == [1]
    assert json.loads(found["state"])["round"] == 2
    # The end of the server, and the end of the run, do not wait.
    assert rounds(report(feed, last=True)) == [1, 2]
    run.add(0.7).kill()
    assert rounds(report(feed)) == [1, 2, 3]
    assert report(feed)["runs"][0]["status"] == "interrupted"


def test_it_rests_twenty_times_as_long_as_a_report_took(growing, monkeypatch):
    clock = {"thread": 0.0, "now": 50.0}
    monkeypatch.setattr(feeds.time, "thread_time", lambda: clock["thread"])
    monkeypatch.setattr(feeds.time, "monotonic", lambda: clock["now"])
    original = feeds.page_data

    def slow(views):
        clock["thread"] += 0.5  # half a second of processor time: 10 s of rest
        return original(views)

    monkeypatch.setattr(feeds, "page_data", slow)
    run = growing().add(0.5)
    feed = feed_of(run)
    feed.look()
    run.add(0.6)
    clock["now"] = 59.9
    assert rounds(report(feed)) == [1]
    clock["now"] = 60.1
    assert rounds(report(feed)) == [1, 2]


@pytest.mark.usefixtures("at_once")
def test_a_report_that_is_too_large_is_not_sent_but_is_in_the_page(growing, monkeypatch):
    run = growing().add(0.5)
    feed = feed_of(run)
    feed.look()
    monkeypatch.setattr(feeds, "LARGEST", 1000)
    run.add(0.6)
    found = feed.look()
    assert rounds(json.loads(found["report"])) == [1]
    assert "too large" in json.loads(found["state"])["problem"]
    page = feed.page().split('id="report-data">')[1].split("</script>")[0]
    assert rounds(json.loads(page)) == [1, 2]


@pytest.mark.usefixtures("at_once")
def test_a_damaged_record_is_said_and_the_last_report_stays(growing):
    run = growing().add(0.5)
    feed = feed_of(run)
    feed.look()
    run.end()
    lines = run.folder / "rounds.jsonl"
    lines.write_bytes(lines.read_bytes().replace(b"0.5", b"0.9"))  # not what the summary's checksum says
    found = feed.look()
    assert "checksum" in json.loads(found["state"])["problem"]
    assert rounds(json.loads(found["report"])) == [1]


def test_the_page_of_a_run_that_has_not_begun_waits(tmp_path):
    feed = RunFeed(Follower(tmp_path / "later"), "/events")
    assert set(feed.look()) == {"state"}
    assert "Waiting for later" in feed.page()


def listed(feed):
    return json.loads(feed.look()["list"])


@pytest.mark.usefixtures("at_once")
def test_the_list_has_all_runs_with_those_that_go_on_first(growing, tmp_path):
    feed = ListFeed(Directory(tmp_path / "runs"), "/events")
    assert listed(feed)["exists"] is False
    going = growing("runs/a", rounds=4).add(0.5, 0.75)
    growing("runs/b").add(0.1).end()
    growing("runs/c").add(0.1).kill()
    found = listed(feed)
    assert (found["exists"], found["total"], found["single"]) == (True, 3, False)
    assert {row["name"]: row["status"] for row in found["runs"]} == {"a": "running", "b": "done", "c": "interrupted"}
    first = found["runs"][0]
    assert (first["name"], first["round"], first["rounds"], first["value"]) == ("a", 2, 4, 0.75)
    assert first["history"] == [0.5, 0.75]
    going.stop()
    shutil.rmtree(going.folder)
    assert {row["name"] for row in listed(feed)["runs"]} == {"b", "c"}


def test_the_list_is_bounded(growing, tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "MAX_RUNS", 2)
    for name in "abc":
        growing(f"runs/{name}", rounds=100).add(*(n / 100 for n in range(100 if name == "c" else 1))).stop()
    found = listed(ListFeed(Directory(tmp_path / "runs"), "/events"))
    assert (found["total"], len(found["runs"])) == (3, 2)
    history = found["runs"][0]["history"]  # run c changed last
    assert (len(history), history[0], history[-1]) == (feeds.MAX_POINTS, 0.0, 0.99)


@pytest.mark.usefixtures("at_once")
def test_many_runs_are_read_a_few_at_a_time(growing, tmp_path, monkeypatch):
    monkeypatch.setattr(feeds, "_BUDGET", -1.0)  # one run at a time
    for name in "abc":
        growing(f"runs/{name}").add(0.5).stop()
    feed = ListFeed(Directory(tmp_path / "runs"), "/events")
    assert [listed(feed)["reading"] for _ in range(3)] == [2, 1, 0]


def test_a_list_that_took_long_rests(growing, tmp_path, monkeypatch):
    clock = {"thread": 0.0, "now": 50.0}
    monkeypatch.setattr(feeds.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(feeds.time, "thread_time", lambda: clock["thread"])
    run = growing("runs/a").add(0.5)
    feed = ListFeed(Directory(tmp_path / "runs"), "/events")
    original = feed._directory.scan

    def slow():
        clock["thread"] += 0.2  # 4 s of rest
        return original()

    feed._directory.scan = slow
    assert listed(feed)["runs"][0]["round"] == 1
    run.add(0.6)
    clock["now"] = 53.9
    assert listed(feed)["runs"][0]["round"] == 1
    clock["now"] = 54.1
    assert listed(feed)["runs"][0]["round"] == 2
