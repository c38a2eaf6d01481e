"""Every command in the documentation runs, unless a comment says why not; those that do not run at least exist.

A block of commands is marked `sh`. `<!-- not run: REASON -->` on the line before it says why the test cannot run it: it
needs another machine, systemd, an extra, or hours. Commands of a page run one after another in one folder, with few
rounds. Commands of coterie run in this process, others in a shell.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
import typer
from sitebuilder.fences import PAGES, ROOT, Fence, fences, words
from typer.testing import CliRunner

from coterie.cli.app import app
from coterie.data import load

RUN = sorted({fence.page for page in PAGES for fence in fences(page) if fence.language == "sh" and not fence.reason})
#: Pages whose commands run in `make test`; those of the others run in `make test-all`.
EACH_TIME = ("README.md", "docs/deploy.md", "docs/how-to/use-the-models.md")
#: Options whose numbers are lowered, so that a page takes seconds.
LOWERED = {"--rounds": 2, "--trials": 2, "--seeds": 2, "--jobs": 1}
#: Those that are added if a command does not have them.
ADDED = {"run": ("--rounds",), "compare": ("--rounds",), "recommend": ("--rounds",), "tune": ("--rounds", "--trials")}
GROUP = typer.main.get_command(app)


# ----------------------------------------------------------------------------------------------------- files of a page


def _wards(folder):
    draw = np.random.default_rng(0)
    for name, clients in {"wards": "abcdef", "new": "ab", "newcomer": "g"}.items():
        lines = ["client,age,weight,label"]
        for client in clients:
            for age, weight in draw.normal(size=(40, 2)):
                lines.append(f"ward-{client},{age:.3f},{weight:.3f},{int((age > 0) != (client in 'def'))}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def _hospitals(folder):
    draw = np.random.default_rng(0)
    lines = ["patient_id,hospital,age,outcome"]
    for number, age in enumerate(draw.normal(50, 15, 120)):
        lines.append(f"{number},h{number % 4},{age:.1f},{'ill' if (age > 50) != (number % 2 == 0) else 'well'}")
    (folder / "hospitals.csv").write_text("\n".join(lines) + "\n")


def _digits(folder):
    for name, client in {"new": "07", "newcomer": "11"}.items():
        x, y = load("digits").examples(client, "test")
        np.savez(folder / f"{name}.npz", x=x, y=y)


def _keys(folder):
    """Two machines share one folder here: the other client, and the certificate that the server sends."""
    result = CliRunner().invoke(app, ["keys", "client", "hospital-b"], prog_name="coterie")
    assert result.exit_code == 0, result.output


#: Page → what its reader has in the folder before the first command.
FILES = {
    "README.md": _digits,
    "docs/deploy.md": _keys,
    "docs/how-to/use-the-models.md": _wards,
    "docs/how-to/your-own-data.md": _hospitals,
}


# --------------------------------------------------------------------------------------------------------------- tests


def _lowered(arguments):
    """The arguments with fewer rounds, and a recommendation with fewer methods."""
    found = list(arguments)
    for option, most in LOWERED.items():
        if option in found:
            place = found.index(option) + 1
            found[place] = str(min(int(found[place]), most))
        elif option in ADDED.get(found[0], ()):
            found += [option, str(most)]
    if found[0] == "recommend" and "--methods" not in found:
        found += ["--methods", "local"]
    return found


def _run(command, folder):
    name, *arguments = words(command)
    if name == "coterie" and (arguments[0] == "watch" or "--watch" in arguments):  # serves pages until Ctrl-C
        assert _checked(command) is None
        return
    if name == "coterie" and "|" not in command:
        result = CliRunner().invoke(app, _lowered(arguments), input="y\n", prog_name="coterie")
        assert result.exit_code == 0, f"{command}\n{result.output}\n{result.stderr}"
        if target := re.search(r" > (\S+)$", command):
            (folder / target[1]).write_text(result.stdout)
        return
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in EACH_TIME else pytest.mark.exhaustive) for page in RUN]
)
@pytest.mark.filterwarnings("ignore::UserWarning:optuna")
def test_the_commands_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    commands = [
        command
        for fence in fences(ROOT / page)
        if fence.language == "sh" and not fence.reason
        for command in fence.commands()
    ]
    for program in {words(command)[0] for command in commands} - {"coterie"}:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    FILES.get(page, lambda folder: None)(tmp_path)
    for command in commands:
        _run(command, tmp_path)
        if command.startswith("coterie keys init"):
            shutil.copy(tmp_path / "federation" / "ca.crt", tmp_path)  # the server sends it to every client


def _checked(command):
    """Parse a command of coterie without running it; returns what is wrong with it, or None."""
    arguments = words(command)[1:]
    group = GROUP
    while hasattr(group, "commands"):
        if not arguments or arguments[0].startswith("-"):
            return None
        name = arguments.pop(0)
        if name not in group.commands:
            return f"there is no command {name}"
        group = group.commands[name]
    known = {name for parameter in group.params for name in [*parameter.opts, *parameter.secondary_opts]}
    known |= {"--help", "-h"}
    unknown = [word for word in arguments if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]
    places = [parameter for parameter in group.params if parameter.param_type_name == "argument"]
    valued = {name for parameter in group.params if not getattr(parameter, "is_flag", False) for name in parameter.opts}
    plain, skip = 0, False
    for word in arguments:
        plain += not skip and not word.startswith("-")
        skip = word in valued and word.startswith("-") and word != "--over"
    if unknown:
        return f"there is no option {unknown[0]}"
    takes_several = any(place.nargs == -1 for place in places) or "--over" in arguments
    return "it has too many arguments" if plain > len(places) and not takes_several else None


def _mentioned():
    """Every command of coterie in a block or in the text of a page."""
    for page in PAGES:
        for fence in fences(page):
            if fence.language == "sh":
                yield from ((fence.page, command) for command in fence.commands() if command.startswith("coterie "))
        text = re.sub(r"^ *(`{3,}).*?^ *\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for inline in re.findall(r"`(coterie [a-z][^`]*)`", text):
            if not re.search(r"[…|<>]", inline):
                yield str(page.relative_to(ROOT)), " ".join(inline.split())


def test_every_command_that_is_mentioned_exists():
    found = {(page, command) for page, command in _mentioned()}
    assert len(found) > 100
    wrong = [f"{page}: {command}: {problem}" for page, command in sorted(found) if (problem := _checked(command))]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("coterie run --method ifca --rounds 3", None),
        ("coterie rum --method ifca", "there is no command rum"),
        ("coterie run --cluster 3", "there is no option --cluster"),
        ("coterie join SERVER --key a.key", "it has too many arguments"),
        ("coterie keys client hospital-a", None),
        ("coterie keys remove hospital-a", "there is no command remove"),
    ],
)
def test_a_wrong_command_is_noticed(command, problem):
    assert _checked(command) == problem


def test_every_block_has_a_language_and_commands_are_in_shell_blocks():
    command = re.compile(r"^\s*(?:coterie|make|pip|docker|sudo|\.venv/bin/\w+) \S")
    wrong = []
    for page in PAGES:
        for fence in fences(page):
            if not fence.language:
                wrong.append(f"{fence.page}, line {fence.line}: a block without a language")
            elif fence.language == "text" and any(command.match(line) for line in fence.body.splitlines()):
                wrong.append(f"{fence.page}, line {fence.line}: commands in a block of text; mark it sh")
    assert wrong == []


def test_comments_and_continued_lines_are_understood():
    block = Fence(
        "page", 1, "sh", "coterie run --set 'a=#1' \\\n    --rounds 3   # why\n# only a comment\n\nls\n", None
    )
    assert [shlex.split(command) for command in block.commands()] == [
        ["coterie", "run", "--set", "a=#1", "--rounds", "3"],
        ["ls"],
    ]
