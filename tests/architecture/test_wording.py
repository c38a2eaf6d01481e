"""The words of the field: identifiers and phrases that were retired do not come back."""

from __future__ import annotations

import dataclasses
import inspect
import io
import re
import tokenize
from pathlib import Path

import pytest

from coterie.aggregation import Aggregation
from coterie.clients import LocalSGD
from coterie.federation import Attack, Federation
from coterie.methods import method_class, names, settings_of
from coterie.runs.spec import SECTIONS, RunSettings

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = [
    path for folder in ("tests", "examples", "benchmarks", "docs") for path in sorted((ROOT / folder).rglob("*.py"))
]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OUTPUT = sorted((ROOT / "tests/cli/golden").glob("*.txt"))

#: Identifiers that were replaced, as classes, functions or variables.
IDENTIFIERS = set(
    re.findall(
        r"\w+",
        "Desk Carrier Around Housed Order Block Intake Homes Once Rows Play Stand World Kept "
        "desk carrier intake homes optimiser normalise vectorised centre centres rate_decay",
    )
)

#: Names of modules that were replaced.
MODULES = set(
    re.findall(
        r"\w+",
        "kept desk order intake homes dealing fused attacked faulty compiling vectorised crossing principal choose "
        "bases given likeness grouping centring centering sketches trials card convert received suggest play stand "
        "world utils helpers manager base",
    )
)

#: Words and phrases that a reader from the field stumbles over, and British spellings.
PHRASES = re.compile(
    r"\b(nobody|whoever|whomever|cannot be meant|of which there are none|took its bearings|"
    r"take their bearings|kinds of clients|numbers that are none|from which every draw comes|"
    r"clients that lie|liars?|founders?|to be scored, nobody|"
    r"(?:re)?normalis\w+|optimis\w+|vectoris\w+|initialis\w+|standardis\w+|minimis\w+|maximis\w+|regularis\w+|"
    r"personalis\w+|penalis\w+|recognis\w+|behaviou?rs?(?<!behavior)(?<!behaviors)|neighbours?|neighbouring|colou?rs?(?<!color)(?<!colors)|"
    r"centres?|centred|labelled|catalogue|licence|artefacts?)\b",
    re.IGNORECASE,
)

#: A row of the table of synonyms in errors.py, which maps a retired setting to its name.
SYNONYM = re.compile(r'    "\w+": \("\w')


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_retired_identifier_is_used(path: Path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    found = [
        f"line {each.start[0]}: {each.string}"
        for each in tokens
        if each.type == tokenize.NAME and each.string in IDENTIFIERS
    ]
    assert not found


def test_no_module_has_a_retired_name():
    assert not [str(path.relative_to(ROOT)) for path in SOURCES if path.stem in MODULES]


@pytest.mark.parametrize("path", [*SOURCES, *TEXTS, *OUTPUT], ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_are_free_of_retired_phrases(path: Path):
    lines = path.read_text(encoding="utf-8").splitlines()
    synonyms = {number for number, line in enumerate(lines, 1) if SYNONYM.match(line)}
    found = [
        f"line {number}: {match[0]}"
        for number, line in enumerate(lines, 1)
        for match in PHRASES.finditer(line)
        if number not in synonyms
    ]
    assert not found


@pytest.mark.parametrize(
    ("settings", "retired"),
    [
        (LocalSGD, {"rate", "rate_decay", "decay", "batch", "optimiser", "layers"}),
        (RunSettings, {"cohort", "federation"}),
        (Aggregation, {"share", "norm"}),
        (Attack, {"share"}),
    ],
)
def test_settings_have_conventional_names(settings: type, retired: set[str]):
    assert not {field.name for field in dataclasses.fields(settings)} & retired


def test_the_number_of_clusters_has_one_name_in_every_method():
    for name in names():
        assert not {"groups", "most", "k", "judges"} & set(settings_of(method_class(name))), name
    assert "robust" not in SECTIONS
    assert "least" not in inspect.signature(Federation.ask).parameters
