"""A client on its own machine: clumsy owners, hostile servers, damaged data, a full disk."""

import json

import numpy as np
import pytest

from coterie.errors import DataError, Error, SpecError
from coterie.federation.network import files, wire
from coterie.federation.network.channel import Message
from coterie.runs.joining import LEFT, LOG, Membership, leave
from coterie.runs.terms import Terms

X = np.arange(40.0).reshape(20, 2)
Y = np.arange(20) % 3


@pytest.fixture
def source(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    return tmp_path / "a.npz"


@pytest.fixture
def member(source, tmp_path):
    return Membership(source, tmp_path / "home", consent=lambda terms: True, threads=1)


def greeting(method="fedavg", **more):
    spec = {"method": {"name": method}, "model": {"name": "mclr"}, "privacy": {}}
    return {"data": "ours", "rounds": 1, "spec": spec, "task": None, "moments": False, **more}


def message(common, **own):
    return Message(wire.pack({"version": wire.VERSION, **common}), wire.pack({"client": "a", "nonce": "n", **own}))


# ------------------------------------------------------------------------------------------------- a server's greeting


def test_a_client_that_agrees_states_what_its_data_are_like(member):
    facts = member.greeted(greeting())["facts"]
    assert (facts["shape"], facts["classes"], facts["fit"] + facts["test"]) == ((2,), 3, 20)
    assert facts["moments"] is None
    assert member.greeted(greeting(moments=True))["facts"]["moments"]["count"] == facts["fit"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {**greeting(), "spec": None},
        {**greeting(), "spec": {"method": "fedavg"}},
        {**greeting(), "rounds": "many"},
        {**greeting(), "spec": {"method": {"name": "ifca", "clusters": 10**9}, "model": {"name": "mclr"}}},
    ],
    ids=["empty", "no spec", "no settings", "no number", "too large"],
)
def test_a_greeting_that_cannot_be_read_is_refused(member, content):
    assert "cannot be read" in member.greeted(content)["refused"]


def test_a_method_that_the_client_does_not_have_is_refused_by_name(member):
    assert "No method 'fedmagic'" in member.greeted(greeting("fedmagic"))["refused"]
    assert "fedmagic" in member.refused


def test_names_from_a_server_have_only_printable_characters():
    plain = greeting(data="\x1b[2J" + "x" * 1000)
    plain["spec"]["model"]["name"] = "mclr\x07"
    terms = Terms.of(plain)
    assert terms.data.isprintable()
    assert len(terms.data) < 250
    assert all(sentence.isprintable() for sentence in terms.sentences())


def test_the_terms_say_that_the_server_can_read_the_model_of_the_client():
    assert any("can read every value of a reply" in sentence for sentence in Terms.of(greeting()).sentences())


def test_terms_that_differ_in_what_they_reveal_need_another_consent():
    plain = Terms.of(greeting())
    assert plain.key == Terms.of(greeting(rounds=99)).key
    assert plain.key != Terms.of(greeting(moments=True)).key
    assert plain.key != Terms.of(greeting("ifca")).key


def test_damaged_consents_count_as_none(member):
    terms = Terms.of(greeting())
    member.agree(terms)
    assert member.has_agreed(terms) is True
    (member.folder / "consents.json").write_text("{")
    assert member.has_agreed(terms) is None


# --------------------------------------------------------------------------------------------------- a server's message


@pytest.mark.parametrize("run", ["../../../evil", "/etc", "", "a/b", ".hidden", "x" * 100])
def test_a_run_whose_name_is_a_path_writes_nothing(member, tmp_path, run):
    before = sorted(tmp_path.rglob("*"))
    task = {"name": "mclr"}
    with pytest.raises(Error, match="no valid run"):
        member.answer(message({"kind": "model", "run": run, "task": task, "about": {}}, cluster=0, params={}))
    held = {"share": 0.0, "seed": 0}
    with pytest.raises(Error, match="cannot be read"):
        member.answer(message({"kind": "work", "run": run, "requests": []}, held=held, requests=[]))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "common", [{}, {"kind": "unknown"}, {"kind": "model"}, {"version": 99, "kind": "hello"}], ids=str
)
def test_a_message_that_cannot_be_read_is_an_error_that_the_owner_sees(source, tmp_path, common):
    seen = []
    member = Membership(source, tmp_path / "home", consent=lambda terms: True, on_problem=seen.append)
    with pytest.raises(Error):
        member.answer(message(common))
    assert len(seen) == 1
    assert seen[0].startswith("a message was not answered")


def test_a_model_of_another_task_is_not_saved(member):
    from coterie.models import build, recipe_of

    task = build("mclr", (2,), 3)
    common = {"kind": "model", "run": "run-1", "task": recipe_of(task), "about": {}}
    with pytest.raises(Error, match="not one of its task"):
        member.answer(message(common, cluster=0, params={"w": np.zeros(5, np.float32)}))
    assert not list(member.folder.rglob("model.*"))


def test_nothing_is_answered_when_the_log_cannot_be_written(member, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    seen = []
    monkeypatch.setattr(member, "_append", full)
    monkeypatch.setattr(member, "_on_problem", seen.append)
    with pytest.raises(OSError, match="No space left"):
        member.answer(message({**greeting(), "kind": "hello"}))
    assert "No space left" in seen[0]


# -------------------------------------------------------------------------------------------------------- the own data


def test_new_examples_are_used_and_damaged_ones_are_not(member, source):
    before = member.greeted(greeting())["facts"]["fit"]
    source.write_bytes(b"half of a file")
    answered = wire.unpack(member.answer(message({**greeting(), "kind": "hello"})))
    assert answered["facts"]["fit"] == before
    np.savez(source, x=np.vstack([X, X]), y=np.concatenate([Y, Y]))
    answered = wire.unpack(member.answer(message({**greeting(), "kind": "hello"})))
    assert answered["facts"]["fit"] == 2 * before


def test_examples_of_another_shape_do_not_replace_those_of_a_running_client(member, source):
    np.savez(source, x=np.zeros((20, 3)), y=Y)
    answered = wire.unpack(member.answer(message({**greeting(), "kind": "hello"})))
    assert tuple(answered["facts"]["shape"]) == (2,)


def test_labels_beyond_the_classes_of_the_model_are_refused_with_the_reason(member):
    from coterie.models import build, recipe_of

    recipe = recipe_of(build("mclr", (2,), 2))
    refused = member.greeted(greeting(task=recipe))["refused"]
    assert refused == "the data do not fit: it has labels up to 2, the model has 2 classes (0 to 1)"


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"x": np.where(X == 0, np.nan, X), "y": Y}, "NaN"),
        ({"x": X, "y": Y - 1}, "label"),
        ({"x": X[:0], "y": Y[:0]}, "examples"),
        ({"x": X, "y": Y[:3]}, "one label for each example"),
        ({"x": X}, "y"),
    ],
    ids=["nan", "negative", "empty", "short", "no labels"],
)
def test_data_that_cannot_be_learned_from_end_the_client_before_it_connects(tmp_path, arrays, reason):
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(DataError, match=reason):
        Membership(tmp_path / "odd.npz", tmp_path / "home", consent=lambda terms: True)


def test_a_file_that_is_missing_and_a_setting_that_does_not_exist_are_named(source, tmp_path):
    with pytest.raises(DataError, match=r"There is no file .*missing\.npz"):
        Membership(tmp_path / "missing.npz", tmp_path / "home", consent=lambda terms: True)
    with pytest.raises(SpecError, match=r"data\.tset_share.*Did you mean 'data\.test_share'"):
        Membership(source, tmp_path / "home", consent=lambda terms: True, options={"tset_share": 0.1})


# ------------------------------------------------------------------------------------------------- folder, withdrawal


def test_a_client_that_has_withdrawn_refuses_and_stops(member):
    member.agree(Terms.of(greeting()))
    leave(member.folder)
    with pytest.raises(SpecError, match="has withdrawn"):
        member.answer(message({**greeting(), "kind": "hello"}))
    assert member.stop.is_set()
    assert member.greeted(greeting()) == {"refused": "the client has withdrawn"}


def test_leaving_needs_the_folder_of_a_client_and_keeps_the_log(member, tmp_path):
    with pytest.raises(SpecError, match="is not the folder of a client"):
        leave(tmp_path)
    member.agree(Terms.of(greeting()))
    (member.folder / "runs" / "run-1").mkdir(parents=True)
    assert leave(member.folder, forget=True) == 1
    assert not (member.folder / "runs" / "run-1").exists()
    assert json.loads((member.folder / LOG).read_text())["consent"] is True
    assert (member.folder / LEFT).exists()


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path):
    with (
        files.in_use(tmp_path, "Another coterie join"),
        pytest.raises(SpecError, match="Another coterie join is running with the folder"),
        files.in_use(tmp_path, "Another coterie join"),
    ):
        pass
    with files.in_use(tmp_path, "Another coterie join"):
        assert (tmp_path / ".in-use").exists()
