"""A federation on the command line: keys, admissions, `coterie serve`, `coterie join`; and probes from a stranger.

One test makes one federation: its parts would each take as long as all of them.
"""

import http.client
import ssl

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("flwr", reason="needs the extra: pip install 'coterie[network]'")

import httpx

import coterie
from coterie import tree
from coterie.errors import SpecError
from coterie.federation.network.admission_check import check_admission, signed_headers
from coterie.federation.network.gate.config import GateConfig
from coterie.federation.network.presence import read_presence
from coterie.runs.record import RunRecord

pytestmark = pytest.mark.network

RUN = {"rounds": 2, "seed": 1, "backend": "sequential"}


def test_a_federation_on_the_command_line_gives_the_results_of_the_simulator(
    commands, new_key, new_authority, wait_until
):
    made = commands(2)
    record = made.folder / "record"
    server = made.serve(
        *("--method", "fedavg", "--rounds", 2, "--epochs", 1, "--seed", 1, "--clients", 2, "--out", record),
        run__backend="sequential",
    )
    joined = {client: made.join(client, "--once") for client in made.clients}
    server.says("waiting for 2 clients")
    probe(made, new_key, new_authority)
    server.says("running")
    wait_until(lambda: present(made) == set(made.clients))  # the server writes it every two seconds
    assert {row["state"] for row in made.listed().values()} == {"present"}
    assert server.wait() == 0, server.stderr
    assert "2 of 2 clients have received their models" in server.stderr
    assert [command.wait() for command in joined.values()] == [0, 0]
    assert_equal_to_the_simulator(made, RunRecord.read(record))
    after = made.listed()
    assert {(row["state"], row["cluster"], row["answered"]) for row in after.values()} == {(None, 0, 3)}
    for client, command in joined.items():
        assert "the server runs fedavg: agreed" in command.stderr
        assert "received the model of cluster 0" in command.stderr
        # Two rounds; the first evaluation travels with the second round, the last one alone.
        asked = [line["work"] for line in made.log(client) if "work" in line]
        assert asked == ["fit", "fit", "score", "score"]
    assert not made.processes()


def present(made):
    """The clients that are present, as the server has written last."""
    return {client for client, status in read_presence(made.federation).clients.items() if status.state == "present"}


def assert_equal_to_the_simulator(made, record):
    """The record is that of the simulator, and each client has the model of its cluster."""
    spec = {"data": {"name": str(made.data)}, "method": "fedavg", "local": {"epochs": 1}, "run": RUN}
    expected = coterie.run(spec)
    assert record.summary["accuracy"] == expected.summary["accuracy"]
    assert record.summary["traffic"] == expected.summary["traffic"]
    assert record.summary["rejected_replies"] == {}
    assert record.served["row"] == expected.served["row"]
    models = dict(tree.paths(record.served["bank"]))
    for name, models_expected in tree.paths(expected.served["bank"]):
        np.testing.assert_array_equal(models[name], models_expected)
    for client in made.clients:
        (file,) = made.home(client).glob("runs/*/model.safetensors")
        own = load_file(file)
        assert own.keys() == models.keys()
        for name, array in own.items():
            np.testing.assert_array_equal(array, models[name][0])


def probe(made, new_key, new_authority):
    """What a stranger can do: nothing. More probes of the gate are in test_deployment.py."""
    key = new_key()
    trusted = made.federation / "ca.crt"
    context = ssl.create_default_context(cafile=trusted)
    with httpx.Client(base_url=f"https://{made.server}", verify=context, trust_env=False, timeout=20) as stranger:
        assert stranger.get("/health").json() == {"ok": True, "superlink": True}
        assert "about" not in stranger.get("/health", headers=key.headers()).json()
        for path in ("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task"):
            assert stranger.post(path).status_code == 404
        assert stranger.post("/v1/fleet/pull-messages").status_code == 401
        assert stranger.post("/v1/fleet/pull-messages", headers=key.headers()).status_code == 403
    admitted = made.folder / "keys" / f"{made.clients[0]}.key"
    assert oversized(made, admitted, context) == 413
    connection = http.client.HTTPConnection(made.server, timeout=20)
    connection.request("GET", "/health")  # without TLS
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.getresponse()
    connection.close()
    other = new_authority(made.folder / "other").ca
    with pytest.raises(SpecError, match="not signed by the given authority"):
        check_admission(made.server, private_key=admitted, root_certificates=other)


def oversized(made, private_key, context):
    """The status of a request that is too large, from a client that is admitted."""
    limit = GateConfig.load(made.federation / "gate" / "gate.json").max_body_bytes
    connection = http.client.HTTPSConnection(made.server, context=context, timeout=20)
    headers = {**signed_headers(private_key), "Content-Length": str(limit + 1)}
    connection.request("POST", "/v1/fleet/push-object", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status
