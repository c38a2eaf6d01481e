"""Addresses of servers, as users type them."""

import socket

import pytest

from coterie.errors import SpecError
from coterie.federation.network.address import check_port_is_free, server_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example.org", "example.org:9443"),
        ("example.org:443", "example.org:443"),
        (" 192.0.2.1 ", "192.0.2.1:9443"),
        ("[2001:db8::1]", "[2001:db8::1]:9443"),
        ("[::1]:1", "[::1]:1"),
    ],
)
def test_an_address_without_a_port_has_the_default_one(text, address):
    assert server_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":9443", "::1", "a:b", "a:0", "a:65536", "a:-1", "https://a", "a/b", "a b", "[::1", "a:1:2", "a:\n1"]
)
def test_what_is_not_an_address_is_refused_with_an_example(text):
    with pytest.raises(SpecError, match=r"is not the address of a server.*HOST:PORT"):
        server_address(text)


def test_a_port_in_use_is_noticed_before_the_server_starts():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SpecError, match=f"cannot listen on port {port} of 127.0.0.1"):
            check_port_is_free("127.0.0.1", port)
    check_port_is_free("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 0), ("127.0.0.1", 70_000), ("192.0.2.77", 9443)])
def test_an_address_that_is_not_of_this_machine_is_refused(host, port):
    with pytest.raises(SpecError, match="--port"):
        check_port_is_free(host, port)
