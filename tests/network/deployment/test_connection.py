"""Calls to SuperLink and SuperNode from a process that has other things to do."""

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

import httpx

from coterie.errors import SpecError
from coterie.federation.network.flower.connection import Heartbeat, Retry, check_no_proxy

pytestmark = pytest.mark.network


def status(code):
    request = httpx.Request("POST", "https://127.0.0.1/")
    return httpx.HTTPStatusError("", request=request, response=httpx.Response(code, request=request))


class Calls:
    """A function that fails with these exceptions, one after another, then returns "done"."""

    def __init__(self, *faults):
        self.faults, self.count = list(faults), 0

    def __call__(self, *_):
        self.count += 1
        if self.faults:
            raise self.faults.pop(0)
        return "done"


def test_a_call_is_repeated_while_the_other_side_cannot_be_reached():
    call = Calls(httpx.ConnectError("refused"), status(503))
    assert Retry(10.0).invoke(call) == "done"
    assert call.count == 3


@pytest.mark.parametrize("fault", [status(401), status(404), httpx.ConnectError("certificate verify failed")])
def test_a_call_is_not_repeated_if_that_cannot_help(fault):
    call = Calls(fault)
    with pytest.raises(httpx.HTTPError):  # and no SIGINT, which pytest would report as KeyboardInterrupt
        Retry(10.0).invoke(call)
    assert call.count == 1


def test_a_call_is_not_repeated_for_longer_than_wanted_or_after_a_stop():
    with pytest.raises(httpx.ConnectError):
        Retry(0.0).invoke(Calls(httpx.ConnectError("refused")))
    stop = threading.Event()
    stop.set()
    with pytest.raises(httpx.ConnectError):
        Retry(60.0, stop).invoke(Calls(httpx.ConnectError("refused")))


@pytest.mark.parametrize("answer", [lambda _: SimpleNamespace(success=False), Calls(status(401))])
def test_a_task_that_flower_has_given_up_is_noticed_without_a_signal(answer):
    with Heartbeat(SimpleNamespace(SendTaskHeartbeat=answer)) as heartbeat:
        assert heartbeat.lost.wait(10)


def test_a_heartbeat_that_does_not_arrive_is_not_the_end():
    sent = threading.Event()

    def fails(request):
        sent.set()
        raise httpx.ConnectError("refused")

    with Heartbeat(SimpleNamespace(SendTaskHeartbeat=fails)) as heartbeat:
        assert sent.wait(10)
    assert not heartbeat.lost.is_set()


def test_a_proxy_for_calls_to_this_machine_is_refused(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    check_no_proxy()
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    with pytest.raises(SpecError, match="NO_PROXY"):
        check_no_proxy()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    check_no_proxy()
