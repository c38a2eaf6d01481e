"""A real deployment on the loopback interface: TLS, node keys, gate, two clients; and probes from a stranger."""

import dataclasses
import http.client
import os
import signal
import socket
import ssl
import sys
import threading
from contextlib import ExitStack, suppress

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

import httpx

from coterie.errors import FederationError, SpecError
from coterie.federation.network.admission_check import check_admission
from coterie.federation.network.channel import Message
from coterie.federation.network.flower import Control, answer_tasks
from coterie.federation.network.launch import Gate, SuperNode
from coterie.federation.network.loopback import free_port
from coterie.federation.network.process import Process
from coterie.federation.network.wire import WireError

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def usual_answers(deployment):
    """Tests may change what clients answer; the next one finds it as it was."""
    before = dict(deployment.answers)
    yield
    deployment.answers.update(before)


@pytest.fixture
def stranger(deployment):
    """An HTTP client that knows the authority but has no key."""
    context = ssl.create_default_context(cafile=deployment.tls.ca)
    with httpx.Client(base_url=deployment.url, verify=context, trust_env=False, timeout=20) as client:
        yield client


def replies(deployment, messages, deadline=30.0):
    return {each.client: each for each in deployment.channel.exchange(messages, deadline)}


def test_each_client_answers_its_own_message_and_one_that_is_not_connected_is_named(deployment):
    common = bytes(range(256)) * (20 << 10)  # 5 MiB: more than one piece
    got = replies(deployment, {client: Message(common, client.encode()) for client in "abc"})
    assert got["a"].reply == common + b"|a"
    assert got["b"].reply == common + b"|b"
    assert got["c"] == ("c", None, "not connected")


def test_an_exception_of_a_client_is_named_by_its_type_and_one_about_the_message_by_its_text(deployment):
    def fails(message):
        raise ValueError("an example") if message.own == b"a" else WireError("it has no run")

    deployment.answers.update(a=fails, b=fails)
    got = replies(deployment, {client: Message(b"", client.encode()) for client in "ab"})
    assert got["a"] == ("a", None, "error 2: ValueError")
    assert got["b"] == ("b", None, "error 2: WireError: it has no run")


@pytest.mark.exhaustive
def test_after_its_gate_was_killed_the_deployment_goes_on(deployment, wait_until):
    os.kill(deployment.gate.process.pid, signal.SIGKILL)
    wait_until(lambda: deployment.gate.process.restarts == 1 and deployment.gate.process.is_running)
    deployment.answers.update(a=lambda _: b"still here")
    assert replies(deployment, {"a": Message(b"", b"")})["a"].reply == b"still here"


@pytest.mark.exhaustive
def test_a_client_whose_supernode_was_killed_comes_back_as_itself(deployment, wait_until):
    node, before = deployment.supernodes["a"].process, deployment.nodes.of("a")
    os.kill(node.pid, signal.SIGKILL)
    wait_until(lambda: node.restarts == 1 and node.is_running and "a" in deployment.nodes.of("a"))
    deployment.answers.update(a=lambda _: b"back again")
    assert replies(deployment, {"a": Message(b"", b"")})["a"].reply == b"back again"
    assert deployment.nodes.of("a") == before


def test_an_executor_with_another_secret_is_refused_by_its_supernode(deployment):
    with pytest.raises(FederationError, match="another secret"):
        answer_tasks(deployment.supernodes["b"].address, lambda _: b"", threading.Event(), secret=b"other")


def test_an_executor_without_messages_is_idle_and_ends_when_it_is_stopped(deployment):
    stop = threading.Event()
    node = deployment.supernodes["b"]
    answer_tasks(node.address, lambda _: b"", stop, stop.set, secret=node.secret)
    assert stop.is_set()


def test_an_executor_without_a_supernode_waits_for_it_until_it_is_stopped():
    stop = threading.Event()
    executor = threading.Thread(target=answer_tasks, args=(f"127.0.0.1:{free_port()}", lambda _: b"", stop))
    executor.start()
    executor.join(1.0)
    assert executor.is_alive()
    stop.set()
    executor.join(10)
    assert not executor.is_alive()


def test_the_nodes_are_known_by_their_keys(deployment):
    connected = deployment.nodes.connected()
    assert {each.fingerprint for each in connected.values()} == {each.fingerprint for each in deployment.keys.values()}
    assert all(each.status == "online" and each.last_seen > 0 for each in connected.values())


def test_the_gate_says_that_it_and_the_superlink_answer(stranger, deployment, new_key):
    assert stranger.get("/health").json() == {"ok": True, "superlink": True}
    admitted = stranger.get("/health", headers=deployment.keys["a"].headers()).json()
    assert admitted == {"ok": True, "superlink": True, "admitted": True, "about": {}}
    other = stranger.get("/health", headers=new_key().headers()).json()
    assert other == {"ok": True, "superlink": True, "admitted": False, "reason": "This key is not admitted"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/control/register-node"),
        ("POST", "/v1/control/list-nodes"),
        ("POST", "/v1/runtime/acquire-task"),
        ("POST", "/v1/runtime/get-nodes"),
        ("POST", "/v1/fleet/register-node"),
        ("POST", "/v1/fleet/..%2fcontrol%2flist-nodes"),
        ("POST", "/v1/fleet/pull-messages/"),
        ("GET", "/v1/fleet/pull-messages"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
    ],
)
def test_nothing_but_fleet_calls_is_found_even_with_an_admitted_key(stranger, deployment, method, path):
    assert stranger.request(method, path, headers=deployment.keys["a"].headers()).status_code == 404


def test_a_request_without_an_admitted_key_is_refused(stranger, new_key):
    assert stranger.post("/v1/fleet/pull-messages", content=b"").status_code == 401
    assert stranger.post("/v1/fleet/pull-messages", content=b"", headers=new_key().headers()).status_code == 403


def test_an_oversized_request_is_refused_before_its_body_is_sent(deployment):
    context = ssl.create_default_context(cafile=deployment.tls.ca)
    connection = http.client.HTTPSConnection("127.0.0.1", deployment.config.port, context=context, timeout=20)
    headers = {**deployment.keys["a"].headers(), "Content-Length": str(deployment.config.max_body_bytes + 1)}
    connection.request("POST", "/v1/fleet/push-object", headers=headers)  # not a byte of the body
    assert connection.getresponse().status == 413
    connection.close()


def test_an_oversized_request_without_a_length_is_refused_while_it_is_read(stranger, deployment):
    def body():
        for _ in range(7):
            yield bytes(1 << 20)

    try:
        response = stranger.post("/v1/fleet/push-object", content=body(), headers=deployment.keys["a"].headers())
    except (httpx.WriteError, httpx.ReadError):
        return  # the gate has closed the connection while the client was still sending
    assert response.status_code == 413


def test_plain_http_is_refused(deployment):
    connection = http.client.HTTPConnection("127.0.0.1", deployment.config.port, timeout=20)
    connection.request("GET", "/health")
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.getresponse()
    connection.close()


def test_headers_that_never_end_are_refused(deployment):
    context = ssl.create_default_context(cafile=deployment.tls.ca)
    with (
        socket.create_connection(("127.0.0.1", deployment.config.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * deployment.config.max_header_bytes)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_the_superlink_listens_on_the_loopback_interface_only(deployment):
    port = int(deployment.link.address.rpartition(":")[2])
    with open("/proc/net/tcp") as table:
        local = [line.split()[1] for line in table.readlines()[1:] if line.split()[3] == "0A"]
    assert [each for each in local if each.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


def test_a_supernode_whose_key_is_not_admitted_cannot_join(deployment, new_key, tmp_path, wait_until):
    key = new_key()
    node = SuperNode(
        tmp_path / "node",
        deployment.gate.address,
        private_key=key.save(tmp_path / "key"),
        root_certificates=deployment.tls.ca,
    )
    with_reason(node, wait_until, "403")
    assert key.fingerprint not in deployment.nodes.connected()


def test_a_supernode_that_trusts_another_authority_refuses_the_gate(deployment, new_authority, tmp_path, wait_until):
    other = new_authority(tmp_path / "other")
    private = deployment.keys["a"].save(tmp_path / "key")
    node = SuperNode(tmp_path / "node", deployment.gate.address, private_key=private, root_certificates=other.ca)
    with_reason(node, wait_until, "CERTIFICATE_VERIFY_FAILED")


def with_reason(node, wait_until, reason):
    """Start a SuperNode that cannot join, and wait until its log says why."""
    with suppress(FederationError):  # it may end before it is ready
        node.start()
    try:
        wait_until(lambda: reason in node.process.last_lines(40))
    finally:
        node.stop()


def test_a_client_learns_before_it_joins_whether_it_can(deployment, new_key, new_authority, tmp_path):
    mine, theirs = deployment.keys["a"].save(tmp_path / "mine"), new_key().save(tmp_path / "theirs")
    trusted, other = deployment.tls.ca, new_authority(tmp_path / "other").ca
    check_admission(deployment.gate.address, private_key=mine, root_certificates=trusted)
    with pytest.raises(FederationError, match="does not admit this client: This key is not admitted"):
        check_admission(deployment.gate.address, private_key=theirs, root_certificates=trusted)
    with pytest.raises(SpecError, match="not signed by the given authority"):
        check_admission(deployment.gate.address, private_key=mine, root_certificates=other)
    with pytest.raises(FederationError, match="cannot be reached"):
        check_admission(f"127.0.0.1:{free_port()}", private_key=mine, root_certificates=trusted)
    with pytest.raises(SpecError, match=r"private key .* cannot be read"):
        check_admission(deployment.gate.address, private_key=trusted, root_certificates=trusted)


def test_a_revoked_key_is_refused_at_once_and_comes_back_when_it_is_admitted_again(stranger, deployment, new_key):
    key = new_key()
    before = deployment.allowed.read_text()
    deployment.allowed.write_text(before + key.openssh + "\n")
    assert stranger.get("/health", headers=key.headers()).json()["admitted"]
    deployment.allowed.write_text(before)
    assert stranger.post("/v1/fleet/pull-messages", headers=key.headers()).status_code == 403


def test_a_key_is_registered_once_and_not_again_after_it_was_unregistered(deployment, new_key):
    key = new_key()
    with Control(deployment.link.address, deployment.link.root_certificates) as control:
        control.register(key.openssh, "c")
        control.register(key.openssh, "c")
        assert key.fingerprint in control.registered()
        control.unregister(key.fingerprint)
        control.unregister(key.fingerprint)
        assert key.fingerprint not in control.registered()
        with pytest.raises(SpecError, match="needs a new key pair"):
            control.register(key.openssh, "c")


def test_too_many_requests_from_one_address_are_refused(deployment, stranger, tmp_path):
    # A second gate, which allows three requests per 100 seconds. The first is the look whether it is ready.
    settings = {"requests_per_second_per_peer": 0.03, "burst": 100.0, "port": free_port()}
    gate = Gate(tmp_path, dataclasses.replace(deployment.config, **settings))
    gate.start()
    try:
        codes = [stranger.get(f"https://{gate.address}/health").status_code for _ in range(3)]
    finally:
        gate.stop()
    assert codes == [200, 200, 429]


def test_connections_that_send_nothing_are_closed_and_one_address_has_only_so_many(deployment, tmp_path):
    settings = {"header_timeout": 1.0, "max_connections_per_peer": 2, "port": free_port()}
    gate = Gate(tmp_path, dataclasses.replace(deployment.config, **settings))
    gate.start()
    context = ssl.create_default_context(cafile=deployment.tls.ca)
    with ExitStack() as stack:
        stack.callback(gate.stop)

        def connect(tls=True):
            plain = socket.create_connection(("127.0.0.1", settings["port"]), timeout=20)
            return stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain)

        silent = connect(tls=False)  # it never starts the TLS handshake
        slow, other, third = connect(), connect(), connect()
        assert closed(third)  # before it has sent anything
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        assert closed(slow)
        assert closed(other)
        assert closed(silent)


def closed(connection):
    """Whether the other side closes a connection without having sent anything."""
    with suppress(ConnectionResetError, ssl.SSLError):
        return connection.recv(1) == b""
    return True


def test_a_gate_whose_port_is_taken_says_so(deployment, tmp_path):
    with pytest.raises(FederationError, match="address already in use"):
        Process(
            "Gate",
            [sys.executable, "-m", "coterie.federation.network.gate", str(deployment.folder / "gate" / "gate.json")],
            tmp_path / "log",
            lambda: False,
        ).start()
