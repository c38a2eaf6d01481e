"""Help texts, lists, pages and error messages, compared with stored copies."""

from __future__ import annotations

import re

import pytest

COMMANDS = ["run", "compare", "recommend", "methods", "data", "models", "resume", "export", "estimate", "pni"]
COMMANDS += [
    "suggest-threshold",
    "reproduce",
    "report",
    "figure",
    "watch",
    "predict",
    "place",
    "inspect",
    "runs",
    "tune",
]
COMMANDS += ["keys", "keys init", "keys client", "keys renew", "admit", "revoke", "clients", "serve", "join", "leave"]
COMMANDS += ["ray", "ray status"]


def test_help(coterie, golden):
    done = coterie("--help")
    assert done.exit_code == 0
    golden("help", done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples(command, coterie, golden):
    done = coterie(*command.split(), "--help")
    assert done.exit_code == 0
    assert done.stdout.partition("Examples:")[2].count("coterie ") >= 3
    golden(f"help-{command.replace(' ', '-')}", done.stdout)


@pytest.mark.parametrize("what", ["methods", "data", "models"])
def test_lists(what, coterie, golden):
    done = coterie(what)
    assert done.exit_code == 0
    golden(what, done.stdout)


@pytest.mark.parametrize(
    ("what", "name"), [("methods", "fedprox"), ("data", "blobs"), ("models", "mlp"), ("models", "auto")]
)
def test_a_page(what, name, coterie, golden):
    done = coterie(what, name)
    assert done.exit_code == 0
    golden(f"{what}-{name}", done.stdout)


def test_the_page_of_user_data(coterie, golden, tmp_path):
    rows = [f"{client},{n / 4},{n % 3 / 2},{n % 2}" for client in "abc" for n in range(10)]
    (tmp_path / "mine.csv").write_text("\n".join(["client,width,height,label", *rows, "c,1,1,0"]))
    done = coterie("data", "mine.csv")
    assert done.exit_code == 0
    golden("data-mine", done.stdout)


def test_the_page_of_a_messy_table(coterie, golden, tmp_path):
    rows = [
        f"{n};{hospital};{n * 1.5};{'red' if n % 2 else ''};{n % 3 == 0};{'ill' if n % 2 else 'well'}"
        for hospital in ("north", "south")
        for n in range(12)
    ]
    (tmp_path / "messy.csv").write_text("\n".join(["nr;hospital;age;color;smoker;outcome", *rows]))
    settings = ["data.client=hospital", "data.label=outcome", "data.ignore=[nr]"]
    done = coterie("data", "messy.csv", *(word for text in settings for word in ("--set", text)))
    assert done.exit_code == 0, done.stderr
    golden("data-messy", done.stdout.partition("setting ")[0])


@pytest.mark.parametrize("command", ["run", "compare", "recommend", "estimate", "suggest-threshold"])
def test_the_help_of_set_names_every_section(command, coterie):
    from coterie.runs.spec import SECTIONS

    listed = " ".join(coterie(command, "--help").stdout.replace("│", " ").split())
    names = [section for section in SECTIONS if command not in ("compare", "recommend") or section != "method"]
    assert f"Any setting of {', '.join(names)}" in listed


def test_the_page_of_a_method_lists_every_shared_setting(coterie):
    import dataclasses
    import json

    from coterie.runs.spec import SECTIONS, Spec

    shared = [each["key"] for each in json.loads(coterie("methods", "fedavg", "--json").stdout)["shared"]]
    fixed = [section for section in SECTIONS if section not in ("data", "model", "method")]
    assert shared == [f"{part}.{each.name}" for part in fixed for each in dataclasses.fields(getattr(Spec(), part))]


def test_the_result_of_a_run(coterie, tiny, golden):
    done = coterie("run", *tiny, "--method", "oracle", "--set", "local.learning_rate=0.1")
    assert done.exit_code == 0
    assert done.stderr == ""
    golden("run", re.sub(r"\d+\.\d+( %|$)", r"N\1", done.stdout, flags=re.MULTILINE))


def test_an_estimate_shows_time_traffic_and_memory(coterie, tiny):
    done = coterie("estimate", *tiny, "--rounds", 1000)
    assert done.exit_code == 0
    first, _, *facts = done.stdout.splitlines()
    assert first == "fedavg on blobs: 1,000 rounds, 8 clients"
    assert [line.split("  ")[0] for line in facts[:5]] == ["time", "one round", "traffic", "memory", "model"]


#: Description, arguments, exit code.
WRONG = [
    ("an unknown method", ["run", "--method", "ifac"], 2),
    ("a method in capitals", ["run", "--method", "IFCA"], 2),
    ("several methods in a run", ["run", "--method", "fedavg,ifca"], 2),
    ("a data set as a spec file", ["run", "digits"], 2),
    ("a method as a spec file", ["run", "ifca"], 2),
    ("a number of clusters that is not a number", ["run", "--method", "ifca", "--clusters", "banana"], 2),
    ("zero clusters", ["run", "--method", "ifca", "--clusters", "0"], 2),
    ("auto for a method that needs a number of clusters", ["run", "--method", "ifca", "--clusters", "auto"], 2),
    ("auto in a comparison", ["compare", "--methods", "ifca,fedgroup,fesem", "--clusters", "auto"], 2),
    ("a method as a spec file of a comparison", ["compare", "ifca"], 2),
    ("the same method twice", ["compare", "--methods", "fedavg,ifca,fedavg"], 2),
    ("a text for the learning rate", ["run", "--lr", "fast"], 2),
    ("a negative batch size", ["run", "--batch-size", "-1"], 2),
    ("zero epochs", ["run", "--epochs", "0"], 2),
    ("an unknown data set", ["run", "--data", "digitz"], 2),
    ("an unknown model", ["run", "--model", "mlpp"], 2),
    ("an unknown section", ["run", "--set", "rnu.rounds=3"], 2),
    ("an unknown key", ["run", "--set", "run.round=3"], 2),
    ("an unknown setting of data", ["run", "--set", "data.cleints=3"], 2),
    ("an unknown setting of a method", ["run", "--method", "ifca", "--set", "method.cluster=3"], 2),
    ("a setting without a value", ["run", "--set", "local"], 2),
    ("a setting without its section", ["run", "--method", "ifca", "--set", "clusters=3"], 2),
    ("more clusters than clients", ["run", "--method", "ifca", "--clusters", "41"], 2),
    ("a text for a number", ["run", "--set", "data.clients=many"], 2),
    ("a text for a number of rounds", ["run", "--rounds", "many"], 2),
    ("an unknown choice", ["run", "--set", "run.sampler=best"], 2),
    ("zero rounds", ["run", "--rounds", "0"], 2),
    ("a negative rate", ["run", "--set", "local.learning_rate=-0.1"], 2),
    ("a cohort larger than the federation", ["run", "--clients-per-round", "41"], 2),
    ("a missing spec file", ["run", "nothing.toml"], 2),
    ("a broken spec file", ["run", "broken.toml"], 2),
    ("a missing data file", ["run", "--data", "some/where.csv"], 3),
    ("a missing table without a folder", ["run", "--data", "nosuch.csv"], 3),
    ("oracle without true clusters", ["run", "--method", "oracle", "--set", "data.partition=iid"], 2),
    ("a mistyped command", ["rnu"], 2),
    ("a mistyped flag", ["run", "--dta", "digits"], 2),
    ("an unknown method in a comparison", ["compare", "--methods", "fedavg,ifac"], 2),
    ("methods with a space between them", ["compare", "--methods", "fedavg", "ifca"], 2),
    ("methods with spaces between them", ["compare", "--methods", "fedavg", "ifca", "local"], 2),
    ("an unknown budget", ["recommend", "--budget", "large"], 2),
    ("an unknown method in a recommendation", ["recommend", "--methods", "ifac"], 2),
    ("a setting of a method that is not compared", ["recommend", "--methods", "local", "--set", "ifca.clusters=3"], 2),
    ("an unknown format", ["compare", "--format", "tex"], 2),
    ("two formats", ["compare", "--format", "latex", "--json"], 2),
    ("an unknown tracker", ["run", "--track", "tensorbord"], 2),
    ("a list of records in a missing folder", ["runs", "nowhere"], 2),
    ("no method in a comparison", ["compare", "--methods", ","], 2),
    ("a setting of a method that is not compared", ["compare", "--methods", "fedavg", "--set", "ifca.clusters=2"], 2),
    ("a mistyped section in a comparison", ["compare", "--methods", "fedavg", "--set", "locl.epochs=2"], 2),
    ("zero seeds", ["compare", "--seeds", "0"], 2),
    ("zero jobs", ["compare", "--jobs", "0"], 2),
    ("the page of an unknown method", ["methods", "ifac"], 2),
    ("settings without a method", ["methods", "--set", "method.clusters=8"], 2),
    ("the page of a method with a setting of another section", ["methods", "ifca", "--set", "run.rounds=3"], 2),
    ("the page of a method with an unknown setting", ["methods", "ifca", "--set", "method.cluster=3"], 2),
    ("the page of an unknown data set", ["data", "digitz"], 2),
    ("the page of a missing data file", ["data", "./nope.csv"], 3),
    ("the page of an unreadable data file", ["data", "broken.csv"], 3),
    ("the page of data with a setting of another section", ["data", "broken.csv", "--set", "run.rounds=3"], 2),
    ("the page of data with an unknown setting", ["data", "broken.csv", "--set", "data.clinet=who"], 2),
    ("a column that a table does not have", ["data", "broken.csv", "--set", "data.client=whom"], 3),
    ("a text for an optional number", ["run", "--data", "broken.csv", "--set", "data.classes=abc"], 2),
    ("the page of an unknown model", ["models", "mlpp"], 2),
    ("a folder that is not a record", ["resume", "."], 2),
    ("an export of a missing record", ["export", "nowhere"], 2),
    ("a mistyped command about keys", ["keys", "clinet"], 2),
    ("a mistyped flag of a command about keys", ["keys", "init", "--hots", "a"], 2),
    ("a server without a host", ["keys", "init"], 2),
    ("a host with a protocol", ["keys", "init", "--host", "https://fl.example.org"], 2),
    ("a client whose name is a path", ["keys", "client", "../a"], 2),
    ("a client admitted to a missing federation", ["admit", "a.pub"], 2),
    ("the clients of a missing federation", ["clients", "--folder", "nowhere"], 2),
]


def test_error_messages(coterie, golden, tmp_path):
    (tmp_path / "broken.toml").write_text("[run\nrounds = 3\n")
    (tmp_path / "broken.csv").write_text("who,x,y\n")
    texts = []
    for what, args, code in WRONG:
        done = coterie(*args)
        assert done.exit_code == code, (what, done.output)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        texts.append(f"# {what}\n$ coterie {' '.join(args)}\n{done.stderr}exit {code}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.csv", "broken.toml"], "no partial output"
    golden("errors", "\n".join(texts))


def test_without_a_command_the_help_is_shown(coterie):
    done = coterie()
    assert done.exit_code == 0
    assert done.stdout.strip() == coterie("--help").stdout.strip()


def test_version(coterie):
    done = coterie("--version")
    assert done.exit_code == 0
    assert done.stdout.startswith("coterie 0.")


def test_debug_shows_the_traceback(coterie):
    from coterie.errors import SpecError

    done = coterie("run", "--rounds", 0, "--debug")
    assert isinstance(done.exception, SpecError)
