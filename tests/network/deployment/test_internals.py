"""The parts of flwr that are not public are as they were when this code was written."""

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

from coterie.errors import SpecError
from coterie.federation.network.flower import internals
from coterie.federation.network.gate.app import CALLS
from coterie.federation.network.gate.keys import PUBLIC_KEY, SIGNATURE, TIMESTAMP

pytestmark = pytest.mark.network


def test_every_private_name_is_there_with_its_parameters():
    found = internals.changes()
    assert not found, f"flwr {internals.installed_version()} (supported: {internals.SUPPORTED}) has changed: {found}"


def test_constants_that_are_written_out_are_those_of_flwr():
    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE, ErrorCode, SubStatus
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, NodeStatus, TaskType

    theirs = (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
    assert theirs == (PUBLIC_KEY, SIGNATURE, TIMESTAMP)
    assert (SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE) == (5, 300)
    assert (TaskType.CLIENT_APP, TaskType.SERVER_APP) == ("flwr-clientapp", "flwr-serverapp")
    assert (SubStatus.COMPLETED, SubStatus.FAILED, NodeStatus.UNREGISTERED) == ("completed", "failed", "unregistered")
    assert ErrorCode.CLIENT_APP_RAISED_EXCEPTION == 2


def test_the_gate_knows_every_fleet_call_but_those_for_nodes_without_a_key():
    from flwr.superlink.routers.fleet.router import router

    theirs = {route.path.removeprefix("/v1/fleet/") for route in router.routes}
    assert theirs - CALLS == {"register-node", "unregister-node"}
    assert theirs >= CALLS


def test_a_grid_takes_the_retries_that_it_is_given():
    # `server_grid` replaces Flower's own, which send SIGINT to their process.
    grid = internals.internals().HttpGrid("127.0.0.1:1", insecure=True, token="t")
    assert grid._retry_invoker is not None
    grid._retry_invoker = chosen = object()
    assert grid._runtime_client._retry_invoker is chosen
    grid.close()


def test_another_version_of_flwr_is_refused_with_its_version_and_what_changed(monkeypatch):
    monkeypatch.setitem(internals.NAMES, "Gone", ("flwr.supercore.runtime", ()))
    internals.internals.cache_clear()
    with pytest.raises(
        SpecError, match=rf"flwr {internals.installed_version()} .*runtime\.Gone is missing.*Supported: flwr>=1\.41"
    ):
        internals.internals()


@pytest.fixture(autouse=True)
def fresh_internals():
    yield
    internals.internals.cache_clear()
