"""A server without data and clients with their own files, over a channel in this process."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import coterie
from coterie import tree
from coterie.errors import DataError, RecordError, SpecError, TimedOut
from coterie.federation.network.channel import Delivery, InProcessChannel
from coterie.federation.network.roster import Roster
from coterie.reports.page.page_data import run_data
from coterie.reports.view import RunView
from coterie.runs.joining import Membership, leave
from coterie.runs.serving import Serving, check_resumable

RUN = {"rounds": 3, "clients_per_round": 4, "seed": 1, "backend": "sequential"}


class Federation:
    """Clients with a .npz file each, and a server that can be started again and again."""

    def __init__(self, folder, data) -> None:
        self.folder, self.files = folder, folder / "data"
        self.files.mkdir()
        for client in data.clients:
            self.write(client, data)
        self.connected = set(data.clients)
        self.admitted = {client: f"key of {client}" for client in data.clients}
        self.members = {}
        self.channel = InProcessChannel({})
        for client in data.clients:
            self.start(client)

    def write(self, client, data) -> None:
        x, y = data.examples(client, "fit")
        x_test, y_test = data.examples(client, "test")
        np.savez(self.files / f"{client}.npz", x=x, y=y, x_test=x_test, y_test=y_test)

    def start(self, client, consent=lambda terms: True) -> Membership:
        """Start a client; its earlier process is gone."""
        member = Membership(
            self.files / f"{client}.npz", self.folder / client, consent=consent, threads=1, options={"seed": 1}
        )
        self.members[client] = member
        self.channel.sites[client] = member.answer
        return member

    def server(self, spec, wait=5.0, **more) -> Serving:
        roster = Roster(
            lambda: dict(self.admitted),
            lambda: [self.admitted[client] for client in sorted(self.connected) if client in self.admitted],
            wait=wait,
            sleep=lambda seconds: None,
        )
        self.roster = roster
        return Serving(spec, self.channel, roster, **more)


@pytest.fixture
def federation(tmp_path):
    data = coterie.data.load("digits", clients=6, partition="inverted", clusters=2, seed=1)
    return Federation(tmp_path, data)


def spec_of(method, clients=6, **sections):
    plain = {
        "data": {"name": "ours"},
        "method": method,
        "local": {"epochs": 1},
        "run": dict(RUN),
        "network": {"clients": clients},
    }
    for name, given in sections.items():
        plain[name] = {**plain.get(name, {}), **given}
    return plain


def simulated(federation, spec):
    plain = {**spec, "data": {"name": str(federation.files)}}
    del plain["network"]
    return coterie.run(plain)


def compared(row):
    """What must be equal of a line: everything but times, and what a simulation has not."""
    return {key: value for key, value in row.items() if "second" not in key and key != "network"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        *("fedavg", "flexcfl", "srfca", "local"),
        *(pytest.param(method, marks=pytest.mark.exhaustive) for method in ("ifca", "perfedavg", "flag", "fedsoft")),
    ],
)
def test_a_server_without_data_gives_the_results_of_the_simulator(federation, method):
    spec = spec_of(method)
    served = federation.server(spec).start(None)
    expected = simulated(federation, spec)
    assert served.summary["accuracy"] == expected.summary["accuracy"]
    assert [compared(row) for row in served.rounds] == [compared(row) for row in expected.rounds]
    assert served.summary["traffic"] == expected.summary["traffic"]
    assert not served.summary["rejected_replies"]


@pytest.mark.parametrize("rule", ["none", "auto", "unit", "standard"])
def test_normalization_comes_from_sums_of_the_clients(federation, rule):
    spec = spec_of("fedavg", model={"name": "mclr", "normalize": rule}, run={"rounds": 1})
    served, expected = federation.server(spec).start(None), simulated(federation, spec)
    assert served.summary["accuracy"] == expected.summary["accuracy"]
    assert served.summary["test_loss"] == expected.summary["test_loss"]


class Tables(Federation):
    """Clients with a CSV file each, with columns of very different magnitudes."""

    def write(self, client, data) -> None:
        lines = ["client,label,split,age,income"]
        for part, word in (("fit", "train"), ("test", "test")):
            for (age, income), y in zip(*data.examples(client, part), strict=True):
                lines.append(f"{client},{y},{word},{age},{income}")
        (self.files / f"{client}.csv").write_text("\n".join(lines) + "\n")

    def start(self, client, consent=lambda terms: True) -> Membership:
        member = Membership(self.files / f"{client}.csv", self.folder / client, consent=consent, threads=1)
        self.members[client] = member
        self.channel.sites[client] = member.answer
        return member


@pytest.fixture
def tables(tmp_path):
    draw = np.random.default_rng(0)
    clients = {}
    for client in ("a", "b"):
        x = draw.normal((50, 40_000), (10, 9_000), (20, 2)).round(2)
        clients[client] = (x, (x[:, 0] > 50).astype(int))
    return Tables(tmp_path, coterie.data.from_arrays(clients))


def test_tables_of_clients_are_standardized_by_their_sums(tables):
    terms = []
    for client in tables.admitted:
        tables.start(client, consent=lambda given: terms.append(given) or True)
    spec = spec_of("fedavg", clients=2, run={"rounds": 1, "clients_per_round": 2})
    served = tables.server(spec).start(None)
    assert all(each.moments for each in terms)  # the owners have agreed to state the sums
    training = np.concatenate([tables.members[client]._data.examples(client, "fit")[0] for client in "ab"])
    np.testing.assert_allclose(served.served["input"]["mean"], training.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(served.served["input"]["deviation"], training.std(axis=0), rtol=1e-4)


def test_a_client_whose_table_has_other_columns_is_refused(tables):
    file = tables.files / "b.csv"
    file.write_text(file.read_text().replace("age,income", "income,age"))
    tables.start("b")
    with pytest.raises(TimedOut, match="the columns of its table, their order or their categories differ"):
        tables.server(spec_of("fedavg", clients=2, run={"rounds": 1, "clients_per_round": 2}), wait=0.1).start(None)


def test_other_data_are_not_asked_for_sums_by_default(federation):
    terms = []
    for client in federation.admitted:
        federation.start(client, consent=lambda given: terms.append(given) or True)
    federation.server(spec_of("fedavg", run={"rounds": 1})).start(None)
    assert terms
    assert not any(each.moments for each in terms)


def test_a_server_computes_the_metrics_of_the_simulator_and_averages_the_others_over_clients(federation):
    names = ["balanced_accuracy", "macro_f1", "log_loss", "brier", "ece", "auroc"]
    spec = spec_of("fedavg", run={"rounds": 2, "metrics": names, "validate": True})
    served, expected = federation.server(spec).start(None), simulated(federation, spec)
    assert [row["accuracy"] for row in served.rounds] == [row["accuracy"] for row in expected.rounds]
    assert served.summary["validation"]["accuracy"] == expected.summary["validation"]["accuracy"]
    assert served.summary["best_round"] == expected.summary["best_round"]
    for one, other in zip(served.rounds, expected.rounds, strict=True):
        auroc, pooled = one["metrics"].pop("auroc"), other["metrics"].pop("auroc")
        assert one["metrics"] == other["metrics"]
        assert (auroc["how"], pooled["how"]) == ("client mean", "pooled")
        # The values of clients are the same; here their mean is the value, there that of all examples together.
        assert auroc["value"] == auroc["mean"] == pytest.approx(pooled["mean"], rel=1e-6)
    assert not served.summary["rejected_replies"]


def test_with_patience_evaluations_are_not_merged_with_rounds(federation):
    # With learning rate 0 the second evaluation is no better than the first.
    spec = spec_of("fedavg", run={"rounds": 9, "patience": 1}, local={"epochs": 1, "learning_rate": 0.0})
    record = federation.server(spec).start(None)
    assert (record.summary["rounds"], record.summary["stopped_early"]) == (2, True)
    assert record.served["spec"]["network"]["merge"] is False


def test_metrics_whose_code_clients_do_not_have_are_refused(federation):
    for run in ({"metrics": ["mine"]}, {"primary_metric": "mine"}):
        with pytest.raises(
            SpecError, match="'mine' is not built in, and clients on other machines do not have its code"
        ):
            federation.server(spec_of("fedavg", run=run))


def test_an_owner_is_told_which_metrics_are_computed(federation):
    seen = []

    def consent(terms):
        seen.append(terms)
        return True

    federation.start("0", consent=consent)
    federation.server(spec_of("fedavg", run={"rounds": 1, "metrics": ["ece"], "validate": True})).start(None)
    sentences = " ".join(seen[0].sentences())
    assert "For the metrics ece it also states: its numbers of examples" in sentences
    assert "on validation examples" in sentences


def test_each_setting_that_only_a_simulation_has_is_refused(federation):
    for section in (
        {"shift": {"name": "swap_all"}},
        {"attack": {"name": "noise"}},
        {"faults": {"drop": 0.1}},
        {"run": {"newcomers": 0.5}},
        {"run": {"final_model": "best"}},
    ):
        with pytest.raises(SpecError, match="simulated"):
            federation.server(spec_of("fedavg", **section))
    with pytest.raises(SpecError, match="classes, held_share"):
        federation.server(spec_of("fedavg", data={"name": "digits", "clients": 6}))


def test_too_few_clients_end_the_wait_with_the_reasons(federation):
    federation.start("0", consent=lambda terms: False)
    with pytest.raises(TimedOut, match=r"5 clients .* 6 are needed \(0: refused: its owner has not agreed"):
        federation.server(spec_of("fedavg"), wait=0.0).start(None)


def test_an_owner_who_has_not_decided_keeps_the_server_waiting(federation):
    answers = iter([None, None, True])
    member = federation.start("0", consent=lambda terms: next(answers))
    record = federation.server(spec_of("fedavg", run={"rounds": 1})).start(None)
    assert record.summary["clients"] == 6
    assert not member.refused
    assert next(answers, "asked three times") == "asked three times"


def test_consent_is_asked_once_for_the_same_method_and_again_for_another(federation):
    asked = []

    def consent(terms):
        asked.append(terms.method)
        return True

    for method in ("fedavg", "fedavg", "ifca"):
        federation.start("0", consent=consent)
        federation.server(spec_of(method, run={"rounds": 1})).start(None)
    assert asked == ["fedavg", "ifca"]


def test_what_a_client_is_asked_and_answers_is_in_its_log(federation):
    federation.server(spec_of("ifca", run={"rounds": 2, "clients_per_round": 6})).start(None)
    lines = [json.loads(line) for line in (federation.folder / "0" / "log.jsonl").read_text().splitlines()]
    assert lines[0]["consent"] is True
    assert lines[-1]["model"].endswith("model.safetensors")
    asked = lines[1:-1]
    assert [line["work"] for line in asked].count("fit_closest") == 2
    assert all(line["sent"] > 0 and len(line["reply"]) == 32 for line in asked)


def test_a_work_that_the_owner_has_not_agreed_to_is_not_run(federation):
    # The owner agrees to FedAvg; the server then asks for works of IFCA.
    for client in federation.members:
        federation.members[client].greeted(_greeting("fedavg"))
    member = federation.members["0"]
    answer = member.answer
    site = member._site
    site.allow({"fit", "score"})
    member.greeted = None
    site._on_hello = lambda greeting: {"facts": member.facts.to_dict()}
    federation.channel.sites["0"] = answer
    record = federation.server(spec_of("ifca", run={"rounds": 1, "clients_per_round": 6})).start(None)
    assert record.summary["rejected_replies"]["not allowed: fit_closest"] == 1


def _greeting(method):
    spec = {"method": {"name": method}, "model": {"name": "mclr"}}
    return {"data": "ours", "rounds": 1, "spec": spec, "task": None}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x, y: (x[:, :4], y), "inputs have shape (4, 8)"),
        (lambda x, y: (x, y.astype(np.float32) / 2), "targets are real numbers"),
    ],
)
def test_a_client_whose_data_do_not_fit_is_refused_with_the_reason(federation, change, reason):
    odd = "0"  # the first client does not decide for the others
    file = federation.files / f"{odd}.npz"
    with np.load(file) as stored:
        x, y = change(stored["x"], stored["y"])
        x_test, y_test = change(stored["x_test"], stored["y_test"])
    np.savez(file, x=x, y=y, x_test=x_test, y_test=y_test)
    federation.start(odd)
    record = federation.server(spec_of("fedavg", clients=5, run={"rounds": 1})).start(None)
    assert record.summary["clients"] == 5
    assert reason in federation.roster.entries[odd].problem
    assert federation.roster.entries[odd].state == "refused"


def test_data_of_several_clients_need_the_name_of_one(federation):
    with pytest.raises(DataError, match="name one of them with --client"):
        Membership(federation.files, federation.folder / "x", consent=lambda terms: True)
    one = Membership(federation.files, federation.folder / "x", consent=lambda terms: True, client="3")
    assert one.facts.fit == len(np.load(federation.files / "3.npz")["y"])


# ------------------------------------------------------------------------------------------------------- life of a run


class Stop(Exception):
    """A server that is killed."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        *("fedavg", "flexcfl", "local"),
        *(pytest.param(method, marks=pytest.mark.exhaustive) for method in ("ifca", "fedsoft")),
    ],
)
@pytest.mark.parametrize("exchange", [2, pytest.param(4, marks=pytest.mark.exhaustive), 5])
def test_a_server_killed_at_any_exchange_resumes_with_the_results_of_an_uninterrupted_one(
    federation, tmp_path, method, exchange
):
    spec = spec_of(method, run={"rounds": 4})
    expected = simulated(federation, spec)
    original, count = federation.channel.exchange, [0]

    def killed(messages, deadline):
        count[0] += 1
        if count[0] == exchange + 1:  # the first one is the greeting
            raise Stop
        return original(messages, deadline)

    federation.channel.exchange = killed
    with pytest.raises(Stop):
        federation.server(spec).start(tmp_path / "record")
    federation.channel.exchange = original
    record = federation.server(spec).resume(tmp_path / "record")
    assert record.summary["accuracy"] == expected.summary["accuracy"]
    assert [compared(row) for row in record.rounds] == [compared(row) for row in expected.rounds]


def test_the_models_of_a_finished_run_are_sent_again(federation, tmp_path):
    federation.server(spec_of("fedavg", run={"rounds": 1})).start(tmp_path / "record")
    (model,) = (federation.folder / "0" / "runs").glob("*/model.safetensors")
    sent = model.read_bytes()
    model.unlink()  # as if the server had been killed before it sent the model
    record = federation.server(spec_of("fedavg")).resume(tmp_path / "record")
    assert record.summary["rounds"] == 1
    assert model.read_bytes() == sent


def test_the_record_of_a_simulated_run_is_not_continued_by_a_server(federation, tmp_path):
    spec = spec_of("fedavg", run={"rounds": 1, "checkpoint_every": 1}, data={"name": str(federation.files)})
    del spec["network"]
    coterie.run(spec, out=tmp_path / "record")
    for attempt in (check_resumable, federation.server(spec_of("fedavg")).resume):
        with pytest.raises(SpecError, match="record of a simulated run"):
            attempt(tmp_path / "record")


def test_a_folder_without_a_record_is_not_continued(tmp_path):
    with pytest.raises(RecordError, match="record"):
        check_resumable(tmp_path)


def test_a_client_that_was_restarted_is_greeted_again_and_takes_part(federation):
    spec = spec_of("fedavg", run={"rounds": 8, "clients_per_round": 6})

    def on_round(row):
        if row["t"] == 0:
            federation.start("0")  # the server does not notice: it is connected all the time

    record = federation.server(spec).start(None, on_round)
    # One message with two requests: the evaluation of a round travels with the next round.
    assert record.summary["rejected_replies"] == {"not allowed: fit": 1, "not allowed: score": 1}
    assert federation.roster.entries["0"].state == "present"
    asked = [json.loads(line) for line in (federation.folder / "0" / "log.jsonl").read_text().splitlines()]
    assert [line["problem"] for line in asked if line.get("work") == "fit"][-1] is None


def test_a_client_that_does_not_state_the_sums_that_the_model_needs_is_refused(federation):
    member = federation.members["0"]
    member._site._on_hello = lambda greeting: {"facts": member.facts.to_dict()}  # without sums
    spec = spec_of("fedavg", clients=5, model={"name": "mclr", "normalize": "standard"}, run={"rounds": 1})
    record = federation.server(spec).start(None)
    assert record.summary["clients"] == 5
    assert "has not stated the sums of its inputs" in federation.roster.entries["0"].problem


def test_a_newcomer_is_placed_and_served_at_once(federation):
    late = "5"
    federation.connected.discard(late)

    def on_round(row):
        federation.connected.add(late)

    server = federation.server(spec_of("ifca", clients=5, run={"rounds": 8, "clients_per_round": 6}))
    record = server.start(None, on_round)
    assert late in record.served["row"]
    placed = [row["newcomers"] for row in record.rounds if "newcomers" in row]
    assert len(placed) == 1
    assert record.summary["clients"] == 6


def test_the_record_of_a_server_has_a_page_although_clients_join_later(federation, tmp_path):
    late = "0"  # the first in the order of ids: the positions of all others change
    federation.connected.discard(late)

    def on_round(row):
        federation.connected.add(late)

    server = federation.server(spec_of("ifca", clients=5, run={"rounds": 8, "clients_per_round": 6}))
    server.start(tmp_path / "record", on_round)
    view = RunView.read(tmp_path / "record")
    assert sorted(view.clients.name) == ["0", "1", "2", "3", "4", "5"]
    assert view.clients.joined[view.clients.name.index(late)] > 1
    assert (view.facts, view.clients.truth, view.clients.samples) == (None, None, None)
    run = run_data(view)
    assert run["labels"] is None
    assert run["command"].startswith("coterie serve ")


def test_a_client_that_leaves_and_returns_is_itself_again(federation):
    spec = spec_of("flexcfl", run={"rounds": 6, "clients_per_round": 6})
    seen = []

    def on_round(row):
        seen.append(federation.roster.entries["0"].state)
        (federation.connected.discard if len(seen) == 2 else federation.connected.add)("0")

    record = federation.server(spec).start(None, on_round)
    assert "away" in seen
    assert federation.roster.entries["0"].state == "present"
    assert not any("newcomers" in row for row in record.rounds)
    assert "0" in record.served["row"]


def test_a_client_that_misses_a_deadline_returns_by_answering_a_greeting(federation):
    spec = spec_of("fedavg", run={"rounds": 5, "clients_per_round": 6})
    original, silent = federation.channel.exchange, [False]

    def exchange(messages, deadline):
        for delivery in original(messages, deadline):
            if delivery.client != "0" or not silent[0]:
                yield delivery

    federation.channel.exchange = exchange
    states = []

    def on_round(row):
        states.append(federation.roster.entries["0"].state)
        silent[0] = len(states) == 1

    record = federation.server(spec).start(None, on_round)
    assert "away" in states
    assert federation.roster.entries["0"].state == "present"
    assert record.summary["lost_replies"] == 1


def test_new_rows_in_the_folder_of_a_client_are_noticed_by_flexcfl(federation):
    spec = spec_of({"name": "flexcfl", "clusters": 2}, run={"rounds": 4, "clients_per_round": 6})
    flagged = []

    def on_round(row):
        flagged.append(row.get("flagged") or row.get("shifts") or row.get("counts", {}).get("shifts"))
        if row.get("stage") == "train" and row["t"] == 0:
            file = federation.files / "0.npz"
            with np.load(file) as stored:
                arrays = {name: stored[name] for name in stored.files}
            arrays["y"] = np.full_like(arrays["y"], 3)  # all labels change
            np.savez(file, **arrays)

    record = federation.server(spec).start(None, on_round)
    noticed = [row for row in record.rounds if "0" in json.dumps(row.get("flagged", []))]
    assert noticed, record.rounds


def test_each_client_gets_the_model_of_its_cluster(federation, tmp_path):
    server = federation.server(spec_of("ifca", run={"rounds": 2, "clients_per_round": 6}))
    record = server.start(None)
    for client, row in record.served["row"].items():
        folder = federation.folder / client / "runs" / server.run
        description = json.loads((folder / "model.json").read_text())
        assert description["cluster"] == row
        arrays = load_file(folder / "model.safetensors")
        expected = dict(tree.paths(tree.row(record.served["bank"], row)))
        assert arrays.keys() == expected.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[name])


def test_a_client_that_has_withdrawn_answers_no_more(federation):
    spec = spec_of("fedavg", clients=5, run={"rounds": 4, "clients_per_round": 6})

    def on_round(row):
        if row["t"] == 0:
            leave(federation.folder / "0")

    answer = federation.members["0"].answer

    def delivered(messages, deadline, original=federation.channel.exchange):
        rest = {client: message for client, message in messages.items() if client != "0"}
        if "0" in messages:
            try:
                yield Delivery("0", answer(messages["0"]))
            except SpecError as fault:
                yield Delivery("0", None, str(fault))
        yield from original(rest, deadline)

    federation.channel.exchange = delivered
    record = federation.server(spec).start(None, on_round)
    assert federation.members["0"].stop.is_set()
    assert set(record.summary["rejected_replies"]) == {"This client has withdrawn"}
    assert federation.roster.entries["0"].state == "away"
