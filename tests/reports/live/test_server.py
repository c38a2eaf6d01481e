"""The server: who gets an answer, and what the streams say."""

from __future__ import annotations

import socket

import pytest

pytest.importorskip("starlette", reason="needs the extra watch")
pytest.importorskip("uvicorn", reason="needs the extra watch")

from coterie.errors import SpecError
from coterie.reports.live import app, feeds
from coterie.reports.live.server import LiveServer


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """No rest between two pages."""
    monkeypatch.setattr(feeds, "PAUSE", 0.0)
    monkeypatch.setattr(feeds, "REST", 0.0)
    monkeypatch.setattr(feeds, "_SEARCH", 0.0)


@pytest.fixture
def client(growing, serve, tmp_path):
    growing("runs/a").add(0.5)
    return serve(tmp_path / "runs")


def refused(client, **request):
    """Status of each request that differs from an allowed one in one way."""
    ((name, values),) = request.items()
    return {value: client.get(**{name: value})[0] for value in values}


def test_without_the_token_nothing_is_answered(client):
    wrong = [
        "",
        "token=",
        "token=wrong",
        "tokens=x",
        "token=%FF",
        "token=%C3%A9",
        f"{client.query}x",
        f"{client.query}&token=x",
    ]
    assert set(refused(client, query=wrong).values()) == {403}
    assert {client.get(path, query="")[0] for path in ("/", "/events", "/run/a", "/run/a/events", "/nothing")} == {403}
    assert "Use the address that `coterie watch` printed" in client.get(query="")[2]


def test_another_host_is_refused(client):
    hosts = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "[::2]", "127.0.0.1@evil", "x"]
    assert set(refused(client, host=hosts).values()) == {403}


def test_this_machine_is_answered_at_any_port_for_tunnels(client):
    assert set(refused(client, host=["localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]:80"]).values()) == {200}


def test_only_get_is_allowed(client):
    assert set(refused(client, method=["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]).values()) == {405}


def test_answers_may_be_used_by_this_page_only(client):
    _, headers, text = client.get()
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert "connect-src 'self'" in text


def test_an_id_cannot_leave_the_folder(growing, client):
    growing("secret").add(0.5)
    keys = ["..", "../secret", "%2e%2e%2fsecret", "..%5csecret", "/etc/passwd", "a" * 16, "%00", "."]
    assert {client.get(f"/run/{key}")[0] for key in keys} == {404}
    assert {client.get(f"/run/{key}/events")[0] for key in keys} == {404}


def test_a_folder_has_a_list_and_each_run_its_page(client):
    assert "Runs in runs" in client.get()[2]
    (key,) = client.ids().values()
    status, _, text = client.get(f"/run/{key}")
    assert status == 200
    assert f'"events":"/run/{key}/events?{client.query}"' in text


def test_a_run_has_its_page_at_once(growing, serve):
    run = growing("runs/b").add(0.5)
    text = serve(run.folder).get()[2]
    assert '"kind":"run"' in text
    assert '"list":null' in text


def test_names_of_records_cannot_become_markup(growing, serve, tmp_path):
    growing("runs/<img src=x onerror=alert(1)>").add(0.5)
    client = serve(tmp_path / "runs")
    for text in (client.get()[2], client.get(f"/run/{next(iter(client.ids().values()))}")[2]):
        assert "<img" not in text
        assert "\\u003cimg" in text


def test_a_stream_has_a_new_report_after_a_line_was_written(growing, serve):
    run = growing("runs/b").add(0.5)
    client = serve(run.folder)
    path = client.get()[2].split('"events":"')[1].split("?")[0]
    with client.events(path) as events:
        seen = [next(events), next(events)]
        assert [name for name, _ in seen] == ["state", "report"]
        run.add(0.6)
        found = next(data for name, data in events if name == "report")
        assert found["runs"][0]["curves"]["round"] == [1, 2]
        run.end()
        found = next(data for name, data in events if name == "state" and data["status"] != "running")
        assert (found["status"], found["round"]) == ("done", 2)


def test_a_new_run_appears_in_the_list(growing, client):
    with client.events("/events") as events:
        assert [row["name"] for row in next(events)[1]["runs"]] == ["a"]
        growing("runs/new")
        found = next(data for _, data in events if data["total"] == 2)
        assert {row["name"] for row in found["runs"]} == {"a", "new"}


def test_a_listener_gets_the_latest_state_and_then_the_end_when_the_server_ends(growing, serve, monkeypatch):
    run = growing("runs/b").add(0.5)
    client = serve(run.folder)
    path = client.get()[2].split('"events":"')[1].split("?")[0]
    with client.events(path) as events:
        assert next(data for name, data in events if name == "report")
        monkeypatch.setattr(feeds, "PAUSE", 1000.0)
        run.add(0.6).end()
        client.server.stop(last=True)
        rest = list(events)
    assert rest[-1] == ("end", {})
    last = [data for name, data in rest if name == "report"][-1]
    assert (last["runs"][0]["status"], last["runs"][0]["curves"]["round"]) == ("done", [1, 2])


def test_the_number_of_streams_is_bounded(client, monkeypatch):
    monkeypatch.setattr(app, "MAX_STREAMS", 1)
    with client.events("/events") as events:
        next(events)
        status, _, text = client.get("/events")
    assert status == 503
    assert "close some" in text


def test_pages_without_followers_are_dropped(growing, serve, tmp_path, monkeypatch):
    monkeypatch.setattr(app, "MAX_PAGES", 2)
    sites = []
    original = app.Site.__init__
    monkeypatch.setattr(app.Site, "__init__", lambda self, *args: sites.append(self) or original(self, *args))
    for name in "abc":
        growing(f"runs/{name}").add(0.5)
    client = serve(tmp_path / "runs")
    for key in client.ids().values():
        assert client.get(f"/run/{key}")[0] == 200
    assert len(sites[0]._runs) == 2


def test_a_port_in_use_is_an_error(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SpecError, match=f"Port {port} is in use; choose another with --port"):
            LiveServer(tmp_path, port)


def test_two_servers_have_different_tokens(client, serve, tmp_path):
    other = serve(tmp_path / "runs")
    assert other.query != client.query
    assert other.get(query=client.query)[0] == 403
