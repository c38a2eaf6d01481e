"""A server that is started again after it was killed."""

import os
import signal
import threading

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

from coterie.errors import FederationError
from coterie.federation.network.channel import Message
from coterie.federation.network.flower import (
    Control,
    FlowerChannel,
    Nodes,
    answer_tasks,
    connection,
    server,
    server_grid,
)
from coterie.federation.network.launch import SuperLink, SuperNode
from coterie.federation.network.loopback import free_port

pytestmark = [pytest.mark.network, pytest.mark.exhaustive]


def test_after_a_killed_superlink_the_next_one_knows_the_keys_and_reaches_the_same_client(
    tmp_path, key, wait_until, monkeypatch
):
    monkeypatch.setattr(server, "_RETRY", 1.0)
    monkeypatch.setattr(connection, "HEARTBEAT", 1.0)
    port, stop = free_port(), threading.Event()
    folder, private = tmp_path / "superlink", key.save(tmp_path / "key")
    link = SuperLink(folder, port=port)
    link.start()
    with Control(link.address, link.root_certificates) as control:
        control.register(key.openssh)
    # Without a gate, the client trusts the certificate of the SuperLink, which the second one must have too.
    node = SuperNode(tmp_path / "node", link.address, private_key=private, root_certificates=link.certificate)
    node.start()
    client = threading.Thread(
        target=answer_tasks, args=(node.address, lambda message: message.own, stop), kwargs={"secret": node.secret}
    )
    client.start()
    try:
        with grid_of(link) as grid:
            nodes = Nodes(grid, {"a": key.fingerprint})
            wait_until(lambda: nodes.of("a"))
            before = nodes.of("a")
            os.kill(link.process.pid, signal.SIGKILL)
            exchange = FlowerChannel(grid, lambda _: before).exchange({"a": Message(b"", b"1")}, 10)
            with pytest.raises(FederationError, match="does not answer"):
                list(exchange)
        link.stop()
        node.stop()  # it would have to be told the new certificate
        link = SuperLink(folder, port=port)
        link.start()
        node.start()
        with Control(link.address, link.root_certificates) as control:
            control.start_run()  # as by a server that was killed before it took the task of its run
        with grid_of(link) as grid:
            nodes = Nodes(grid, {"a": key.fingerprint})
            wait_until(lambda: nodes.of("a"), 90)
            assert nodes.of("a") == before
            assert list(FlowerChannel(grid, nodes.of).exchange({"a": Message(b"", b"2")}, 30)) == [("a", b"2", "")]
    finally:
        stop.set()
        client.join()
        node.stop()
        link.stop()


def grid_of(link):
    return server_grid(link.address, root_certificates=link.root_certificates, secret=link.secret)
