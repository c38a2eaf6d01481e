"""Fuzzed specs and command lines: each is accepted or ends with an ordinary error of bounded length.

A spec is built as for a run, but not run. Every case has its own generator, made from the seed and its number, so that
a failure can be repeated alone.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import io
import random
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer

from coterie.cli.app import app
from coterie.errors import Error
from coterie.methods import METHODS
from coterie.models.library import MODELS, model_options
from coterie.runs.build import build
from coterie.runs.resolve import fill_defaults
from coterie.runs.spec import _FIXED, SECTIONS, Spec, method_options

pytestmark = pytest.mark.slow

TEXTS = (
    "", " ", ".", "..", "/", "~", "name", "auto", "none", "nan", "inf", "-1", "true", "[", "{}", "=", "a=b", "--data",
    "-q", "\0", "\x1b[31mred\x1b[0m", "\x07\x08", "two\nlines", "tab\t", "\r", "\u202ereversed", "\u200b", "\ufeff",
    "\x85", "é", "ß", "İ", "名前", "😀", "\ud800", "%s%n{0}", "$(id)", "'\"", "\\", "a" * 300,
    "a" * 100_000, "b\x00" * 5_000,
)  # fmt: skip
NUMBERS = (
    0, 1, 2, 3, 7, -1, -2, 10**19, -(10**19), 2**64, 10**400, -(10**400), 16**4000, 0.0, -0.0, 0.5, 1.0, 2.5, 1e-320,
    1e19, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
OTHERS = (
    None, True, False, (), [], {}, b"bytes", {1, 2}, 1j, object(), datetime.date(2020, 2, 29), datetime.time(1, 2),
    Path("here"), Path("/dev/null"), np.float32(1.5), np.int64(3), np.zeros(3), np.zeros((2, 2)), range(3), int, print,
)  # fmt: skip

#: Small data, so that a spec that is accepted is built at once.
SMALL = {"data": {"name": "blobs", "clients": 6, "samples": 10, "side": 3}}


def nested(depth: int, draw: random.Random) -> object:
    """A list or dict nested this deep."""
    value: object = draw.choice(NUMBERS[:4])
    for _ in range(depth):
        value = [value] if draw.random() < 0.5 else {"a": value}
    return value


def any_value(draw: random.Random) -> object:
    """A value that may be anything."""
    kind = draw.random()
    if kind < 0.4:
        return draw.choice(NUMBERS)
    if kind < 0.65:
        return draw.choice(TEXTS)
    if kind < 0.8:
        return draw.choice(OTHERS)
    if kind < 0.85:
        return nested(draw.choice((1, 3, 500, 2_000)), draw)
    flat = draw.choice((*NUMBERS, *TEXTS))
    return [flat] * draw.choice((0, 1, 2, 5, 1_000)) if kind < 0.95 else {"name": flat}


def any_name(draw: random.Random, known: list[str]) -> str:
    """A known name, a misspelled one, or any text."""
    name = draw.choice(known)
    kind = draw.random()
    if kind < 0.9:
        return name
    if kind < 0.96:
        place = draw.randrange(len(name) + 1)
        return name[:place] + draw.choice("xX-_ \0é.") + name[place + draw.randrange(2) :]
    return draw.choice(TEXTS)


def near(value: object, draw: random.Random) -> object:
    """A value that is probably allowed where `value` is."""
    if isinstance(value, bool) or value is None:
        return draw.choice((True, False, None))
    if isinstance(value, int | float):
        return draw.choice((value, 0, 1, 2, 0.5, value * 2, -value))
    return value


def any_table(draw: random.Random, known: dict[str, object]) -> dict[object, object]:
    """Some settings: most with a value near their default, some with anything."""
    chosen = [any_name(draw, [*known, "name"]) for _ in range(draw.randrange(4))]
    table = {key: near(known.get(key), draw) if draw.random() < 0.65 else any_value(draw) for key in chosen}
    return {**table, draw.choice((1, None, (), b"a")): 1} if draw.random() < 0.02 else table


def any_spec(draw: random.Random) -> object:
    """A spec as nested dicts, or something else in its place."""
    if draw.random() < 0.02:
        return {any_name(draw, list(SECTIONS)): any_value(draw)}
    spec: dict[str, object] = {key: dict(value) for key, value in SMALL.items()}
    for _ in range(draw.randrange(1, 4)):
        section = any_name(draw, list(SECTIONS))
        if section in _FIXED:
            known = {key: getattr(_FIXED[section](), key) for key in _FIXED[section].__dataclass_fields__}
            spec[section] = any_table(draw, known)
        elif section == "method":
            name = any_name(draw, list(METHODS))
            spec[section] = {"name": name} | any_table(draw, method_options(name) if name in METHODS else {"mu": 0.1})
        elif section == "model":
            name = any_name(draw, list(MODELS))
            spec[section] = {"name": name} | any_table(draw, model_options(name) if name in MODELS else {"l2": 0.1})
        elif section == "data":
            spec[section] = SMALL["data"] | any_table(draw, SMALL["data"])
        if section not in spec or draw.random() < 0.1:
            spec[section] = any_value(draw)
    return spec


def built(source: object) -> Spec:
    """The resolved spec of what would be run."""
    return build(Spec.of(source)).spec


def test_a_fuzzed_spec_is_accepted_or_rejected_with_a_bounded_message(campaign, bounded, tally, message):
    counts = tally("specs", "nested dicts")
    for number in range(campaign.specs // 2):
        source = any_spec(random.Random(f"spec {campaign.seed} {number}"))
        with bounded():
            try:
                spec = built(source)
            except Error as fault:
                message(fault)
                counts.add("rejected")
                continue
        assert Spec.from_dict(tomllib.loads(spec.to_toml())) == spec, (
            f"case {number} changes when it is written as TOML"
        )
        counts.add("accepted")
    assert set(counts.outcomes) == {"accepted", "rejected"}


#: A spec file with all kinds of values.
TOML = """
[data]
name = "blobs"
clients = 6
samples = 10
[model]
name = "mlp"
widths = [8, 4]
[method]
name = "ifca"
clusters = 2
weights = 'samples'
[local]
learning_rate = 0.1
trainable_layers = []
[run]
rounds = 3
newcomers = 0.4
newcomers_join = [1, 2]
[shift]
name = "none"
"""
PIECES = (
    "[", "]", "{", "}", "=", ".", ",", "#", '"', "'", '"""', "\n", "\r", "\0", "\x1b", "\ufeff", "é", "\\u0000",
    "\\ud800", "[[run]]\n", "[run]\n", "a.b.c = 1\n", "1e400", "-nan", "9" * 400, "9" * 5_000, "0x" + "f" * 5_000,
    "1979-05-27T07:32:00Z", "[" * 2_000, "[" * 500 + "]" * 500, "a." * 2_000 + "a = 1\n", '{a=' * 2_000, "x" * 50_000,
)  # fmt: skip


def any_toml(draw: random.Random) -> bytes:
    """A spec file with no or a few changes: pieces left out, put in, or bytes that are not UTF-8."""
    text = TOML
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        start = draw.randrange(len(text))
        piece = draw.choice(PIECES if draw.random() < 0.6 else ("", " ", "1", "\n"))
        text = text[:start] + piece + text[start + draw.choice((0, 0, 1, 5)) :]
    content = text.encode("utf-8", "surrogatepass")
    return content if draw.random() < 0.95 else content[: draw.randrange(len(content))] + b"\xff"


def test_a_fuzzed_spec_file_is_accepted_or_rejected_with_a_bounded_message(campaign, bounded, tally, message, tmp_path):
    counts = tally("specs", "TOML files")
    file = tmp_path / "spec.toml"
    for number in range(campaign.specs // 4):
        file.write_bytes(any_toml(random.Random(f"toml {campaign.seed} {number}")))
        with bounded():
            try:
                built(file)
            except Error as fault:
                message(fault)
                counts.add("rejected")
                continue
        counts.add("accepted")
    assert set(counts.outcomes) == {"accepted", "rejected"}


COMMANDS = {command.name or command.callback.__name__: command for command in app.registered_commands}
FLAGS = (
    "--data", "--method", "--methods", "--model", "--clusters", "--rounds", "--clients-per-round", "--epochs",
    "--batch-size", "--lr", "--seed", "--seeds", "--jobs", "--draws", "--out", "-o", "--client", "--cluster", "--set",
    "--json", "--quiet", "-q", "--help", "--debugg", "-x",
)  # fmt: skip


def any_arguments(draw: random.Random) -> list[str]:
    """A command line: a command, usual and unusual flags and values."""
    values = (
        *TEXTS[:-3],
        *(str(each) for each in NUMBERS if each != 16**4000),
        "digits",
        "blobs",
        "ifca",
        "fedavg,ifca",
        "mlp",
    )
    line = [draw.choice(tuple(COMMANDS)) if draw.random() < 0.95 else draw.choice(TEXTS)]
    for _ in range(draw.randrange(5)):
        flag = draw.choice(FLAGS)
        if flag == "--set":
            section = any_name(draw, [*SECTIONS, "ifca"])
            keys = list(_FIXED[section].__dataclass_fields__) if section in _FIXED else ["name", "clusters", "seed"]
            line += [flag, f"{section}.{any_name(draw, keys)}={draw.choice((*values, *PIECES))}"]
        elif draw.random() < 0.2:
            line.append(draw.choice(values))
        else:
            line += [flag, draw.choice(values)][: 2 if draw.random() < 0.9 else 1]
    return line


#: Module of `coterie.runs` → function in which a command does its work.
WORK = {
    "loop": "run",
    "compare": "compare",
    "estimate": "estimate",
    "pni": "pni",
    "threshold": "suggest",
    "method_card": "measure_card",
}


class _Accepted(typer.Exit):
    """The command would have started its work."""


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Call a command that stops where its work would begin, after checking every spec."""

    def instead(specs, *_, **__):
        for spec in specs.values() if isinstance(specs, dict) else [specs]:
            if isinstance(spec, Spec):
                fill_defaults(spec)
        raise _Accepted

    for module, function in WORK.items():
        monkeypatch.setattr(importlib.import_module(f"coterie.runs.{module}"), function, instead)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    main = typer.main.get_command(app)

    def call(line):
        """Exit code, and what was printed to stdout and stderr as a terminal in UTF-8 would get it."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as caught:
            main(line, prog_name="coterie")
        for stream in (out, err):
            stream.flush()
        return caught.value.code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()

    return call


def test_a_fuzzed_command_line_is_accepted_or_ends_with_a_bounded_message(campaign, bounded, tally, command):
    counts = tally("specs", "command lines")
    for number in range(campaign.specs // 4):
        line = any_arguments(random.Random(f"flags {campaign.seed} {number}"))
        with bounded():
            code, _, err = command(line)
        where = f"case {number}: {ascii(line)[:500]}"
        assert code in (0, 2, 3, 4), where
        assert "bug in Coterie" not in err, where
        counts.add("rejected" if code else "accepted")
        assert len(err) <= 4000, where  # the message and, for wrong flags, how the command is used
        strange = {each for each in err if not (each.isprintable() or each == "\n")}
        assert not strange, f"{where}: {sorted(map(ascii, strange))}"
    assert set(counts.outcomes) == {"accepted", "rejected"}
