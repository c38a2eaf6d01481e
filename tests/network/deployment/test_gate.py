"""The gate in front of a fake SuperLink."""

import asyncio
import dataclasses
import json

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

import httpx

from coterie.errors import SpecError
from coterie.federation.network.gate.app import create_app
from coterie.federation.network.gate.config import GateConfig
from coterie.federation.network.gate.keys import AllowedKeys, Refused
from coterie.federation.network.gate.limits import InFlight, Rate

pytestmark = pytest.mark.network


class SuperLink:
    """Remembers requests and answers each with its body."""

    def __init__(self):
        self.requests = []
        self.up = True

    async def __call__(self, request):
        if not self.up:
            raise httpx.ConnectError("refused")
        await request.aread()
        self.requests.append(request)
        headers = {"flwr-note": "yes", "set-cookie": "no", "content-type": "application/protobuf"}
        return httpx.Response(200, content=self._body(request), headers=headers)

    async def _body(self, request):  # streamed, as over a real connection
        yield b"got " + request.content


@pytest.fixture
def link():
    return SuperLink()


@pytest.fixture
def config(tmp_path, key):
    allowed = tmp_path / "allowed"
    allowed.write_text(f"# clients\n\n{key.openssh} a\n")
    return GateConfig(1, "certificate", "key", "127.0.0.1:2", "ca", str(allowed), max_body_bytes=100)


@pytest.fixture
def gate(config, link):
    """Creates clients of a gate: gate(**settings)."""

    def create(**settings):
        upstream = httpx.AsyncClient(transport=httpx.MockTransport(link), base_url="https://127.0.0.1:2")
        return Caller(create_app(dataclasses.replace(config, **settings), upstream))

    return create


class Caller:
    """Sends requests to an application in this process."""

    def __init__(self, app):
        self.app = app

    def get(self, path):
        return self._request("GET", path)

    def post(self, path, headers=None, content=b""):
        return self._request("POST", path, headers=headers, content=content)

    def _request(self, *args, **kwargs):
        async def send():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="https://gate") as client:
                return await client.request(*args, **kwargs)

        return asyncio.run(send())


def test_a_signed_fleet_call_is_passed_on_with_the_headers_of_flower_only(gate, link, key):
    headers = {**key.headers(), "cookie": "c", "x-forwarded-for": "1.2.3.4", "flwr-component-name": "SuperNode"}
    response = gate().post("/v1/fleet/push-object?x=1", content=b"body", headers=headers)
    assert (response.status_code, response.content) == (200, b"got body")
    assert response.headers["flwr-note"] == "yes"
    assert "set-cookie" not in response.headers
    (passed,) = link.requests
    assert passed.url == "https://127.0.0.1:2/v1/fleet/push-object"
    assert passed.headers["flwr-component-name"] == "SuperNode"
    assert passed.headers["content-length"] == "4"
    assert not {"cookie", "x-forwarded-for"} & set(passed.headers)


def test_of_a_repeated_key_the_one_that_was_checked_is_passed_on(gate, link, key, new_key):
    mine, other = key.headers(), new_key().headers()
    response = gate().post("/v1/fleet/pull-messages", headers=[*mine.items(), *other.items()])
    assert response.status_code == 200
    assert link.requests[0].headers["flwr-public-key"] == mine["flwr-public-key"]


@pytest.mark.parametrize("path", ["/", "/v1/fleet", "/v1/fleet/", "/v1/fleet/register-node", "/v1/control/start-run"])
def test_other_paths_are_not_found(gate, link, key, path):
    assert gate().post(path, headers=key.headers()).status_code == 404
    assert link.requests == []


def test_a_key_that_is_not_admitted_is_refused_before_the_body_is_read(gate, link, new_key):
    assert asyncio.run(status_without_body(gate().app, new_key().headers())) == 403
    assert link.requests == []


def test_a_body_that_is_too_large_by_its_length_is_refused_before_it_is_read(gate, link, key):
    headers = {**key.headers(), "content-length": "101"}
    assert asyncio.run(status_without_body(gate().app, headers)) == 413
    assert link.requests == []


async def status_without_body(app, headers):
    """The status of a response to a request whose body is never sent."""
    sent = []

    async def receive():
        raise AssertionError("the body was read")

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": "/v1/fleet/push-object",
        "raw_path": b"/v1/fleet/push-object",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        "client": ("1.2.3.4", 5),
        "server": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return sent[0]["status"]


def test_a_body_of_the_largest_size_passes_and_one_byte_more_is_refused_while_it_is_read(gate, link, key):
    app = gate()

    async def body(size):  # chunked: without a length
        for _ in range(size):
            yield b"x"

    assert app.post("/v1/fleet/push-object", content=body(100), headers=key.headers()).status_code == 200
    assert app.post("/v1/fleet/push-object", content=body(101), headers=key.headers()).status_code == 413
    assert [len(each.content) for each in link.requests] == [100]


@pytest.mark.parametrize("age", [-60.0, 400.0])
def test_a_signature_from_another_time_is_refused_and_the_clocks_are_named(gate, key, age):
    response = gate().post("/v1/fleet/pull-messages", headers=key.headers(age))
    assert response.status_code == 401
    assert f"differ by {abs(age):.0f} seconds" in response.text


def test_the_public_key_of_another_client_is_of_no_use_without_its_private_key(gate, link, key, new_key):
    forged = {**new_key().headers(), "flwr-public-key": key.headers()["flwr-public-key"]}
    assert gate().post("/v1/fleet/pull-messages", headers=forged).status_code == 401
    assert link.requests == []


@pytest.mark.parametrize("name", ["flwr-public-key", "flwr-signature", "flwr-timestamp"])
@pytest.mark.parametrize("text", [None, "", "?", "é", "2020-01-01"])
def test_a_missing_or_malformed_signature_is_refused(gate, key, name, text):
    headers = {key_: value.encode() for key_, value in key.headers().items() if key_ != name}
    if text is not None:
        headers[name] = text.encode("latin-1")
    assert gate().post("/v1/fleet/pull-messages", headers=headers).status_code in (401, 403)


def test_the_allowed_keys_are_read_again_when_the_file_changes(config, tmp_path, key, new_key):
    path, other = tmp_path / "allowed", new_key()
    allowed = AllowedKeys(path)
    assert allowed.check(key.headers()) == key.fingerprint
    path.write_text(f"not a key\n{other.openssh}\n")  # a line that is wrong takes no other with it
    assert allowed.check(other.headers()) == other.fingerprint
    with pytest.raises(Refused, match="not admitted"):
        allowed.check(key.headers())
    path.unlink()
    with pytest.raises(Refused, match="not admitted"):
        allowed.check(other.headers())


def test_a_key_has_its_rate_and_another_key_its_own(config, gate, key, new_key):
    other = new_key()
    with open(config.allowed_keys, "a") as file:
        file.write(other.openssh + "\n")
    app = gate(requests_per_second=0.001, burst=2000.0)  # two at once, then one per thousand seconds
    codes = [app.post("/v1/fleet/pull-messages", headers=key.headers()).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    assert app.post("/v1/fleet/pull-messages", headers=other.headers()).status_code == 200


def test_an_address_has_its_rate_also_for_what_is_not_passed_on(gate):
    app = gate(requests_per_second_per_peer=0.001, burst=2000.0)
    codes = [app.post("/v1/fleet/pull-messages").status_code for _ in range(3)]
    assert codes == [401, 401, 429]


def test_requests_come_back_with_time():
    now = [0.0]
    rate = Rate(2.0, 1.0, clock=lambda: now[0])  # two at once, two per second

    def allowed():
        try:
            rate.check("a")
        except Refused:
            return False
        return True

    assert [allowed(), allowed(), allowed()] == [True, True, False]
    now[0] = 0.5  # half a second: one more
    assert [allowed(), allowed()] == [True, False]
    now[0] = 100.0  # not more than two, however long it was quiet
    assert [allowed(), allowed(), allowed()] == [True, True, False]


def test_a_request_waits_for_room_and_is_refused_if_there_is_none_in_time():
    async def scenario():
        room = InFlight(requests=2, size=100, patience=0.05)
        async with room.room(60):
            with pytest.raises(Refused, match="at once"):
                async with room.room(41):
                    raise AssertionError("60 + 41 bytes are more than 100")
            async with room.room(40):
                with pytest.raises(Refused, match="at once"):
                    async with room.room(0):
                        raise AssertionError("three requests are more than two")
        async with room.room(100):
            return True

    assert asyncio.run(scenario())


def test_the_room_of_a_request_is_free_again_after_its_response_and_after_a_failure(gate, link, key):
    app = gate(max_requests=1, idle_timeout=0.2)
    for _ in range(3):
        assert app.post("/v1/fleet/pull-messages", headers=key.headers()).status_code == 200
    link.up = False
    for _ in range(3):
        assert app.post("/v1/fleet/pull-messages", headers=key.headers()).status_code == 502


def test_health_says_whether_the_superlink_answers(gate, link):
    assert gate().get("/health").json() == {"ok": True, "superlink": True}
    link.up = False
    assert gate().get("/health").json() == {"ok": True, "superlink": False}


def test_health_asks_the_superlink_once_however_often_it_is_asked(gate, link):
    app = gate()
    for _ in range(5):
        app.get("/health")
    assert len(link.requests) == 1


def test_a_body_that_stops_is_refused(gate, link, key):
    async def scenario():
        sent = []

        async def receive():
            if not sent_first:
                sent_first.append(True)
                return {"type": "http.request", "body": b"x", "more_body": True}
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        sent_first = []
        headers = [(name.encode(), text.encode()) for name, text in {**key.headers(), "content-length": "9"}.items()]
        path = "/v1/fleet/push-object"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": headers,
            "query_string": b"",
            "root_path": "",
        }
        await gate(idle_timeout=0.1).app(scope, receive, send)
        return sent[0]["status"]

    assert asyncio.run(scenario()) == 408
    assert link.requests == []


def test_settings_survive_the_file(config, tmp_path):
    config.save(tmp_path / "gate.json")
    assert GateConfig.load(tmp_path / "gate.json") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prot": 1}, "Did you mean 'port'"),
        ({"port": 0}, "port of the gate must be"),
        ({"port": 70000}, "between 1 and 65535"),
        ({"port": "x"}, "port of the gate must be a number"),
        ({"key": ""}, "key of the gate must be a text"),
        ({"max_body_bytes": 1 << 40}, "at least max_body_bytes"),
        ({"key": None}, "key of the gate must be a text"),
    ],
)
def test_wrong_settings_are_named(config, tmp_path, change, message):
    path = tmp_path / "gate.json"
    path.write_text(json.dumps({**dataclasses.asdict(config), **change}))
    with pytest.raises(SpecError, match=message):
        GateConfig.load(path)


def test_missing_settings_are_named(tmp_path):
    path = tmp_path / "gate.json"
    path.write_text('{"port": 1}')
    with pytest.raises(SpecError, match="The gate needs: certificate, key, upstream"):
        GateConfig.load(path)
    with pytest.raises(SpecError, match="cannot be read"):
        GateConfig.load(tmp_path / "none.json")
