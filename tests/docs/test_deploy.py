"""docs/deploy.md and the files in deploy/ say what the code does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from coterie import models
from coterie.federation.network.channel import InProcessChannel
from coterie.federation.network.delivery import deliver
from coterie.federation.network.settings import NetworkSettings
from coterie.models import Normalize, recipe_of
from coterie.runs.joining import Membership
from coterie.seeds import Seed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
UNITS = sorted((ROOT / "deploy").glob("*.service"))


def test_the_table_has_every_setting_of_the_network_with_its_default():
    table = PAGE[PAGE.index("| `[network]`") :].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` .*\| ([^|]+) \|$", table, re.MULTILINE))
    shown = {"1 GiB": 1 << 30, "true": True}
    found = {name: shown[text] if text in shown else int(text.replace(",", "")) for name, text in rows.items()}
    assert found == dataclasses.asdict(NetworkSettings())


@pytest.mark.parametrize(
    ("name", "options", "snippets"), [("mclr", {}, 1), ("mclr", {}, 2), ("mlp", {"widths": (5, 4)}, 2)]
)
def test_a_received_model_is_used_as_the_guide_says(tmp_path, name, options, snippets):
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 17, (12, 4, 4)).astype(np.uint8), np.arange(12) % 3
    np.savez(tmp_path / "data.npz", x=x, y=y)
    task = models.build(name, (4, 4), 3, normalize=Normalize(2.0, 4.0), **options)
    params = task.init(Seed(0))
    member = Membership(tmp_path / "data.npz", tmp_path / "client", consent=lambda _: True)
    about = {"method": "fedavg", "data": "wards", "rounds": 1, "adapted": False}
    channel = InProcessChannel({"a": member.answer})
    assert deliver(channel, "0123", recipe_of(task), about, {"a": (0, params)}, 10.0) == ("a",)

    code = re.findall(r"```python\n(.*?)```", PAGE[PAGE.index("## Use the model") :], re.DOTALL)[:2]
    text = code[0].replace("hospital-a-client/runs/c7d124c2b9f48531/", f"{tmp_path}/client/runs/0123/")
    names = {}
    lines = text.replace('"data.npz"', repr(str(tmp_path / "data.npz"))).splitlines()
    if snippets == 2:  # the first one, but for its last line, which is about logistic regression
        lines = [*lines[:-1], *code[1].splitlines()]
    exec("\n".join(lines), names)
    # The task normalizes by itself: (x - 2) / 4.
    assert names["predicted"].tolist() == np.asarray(task.outputs(params, x)).argmax(axis=1).tolist()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_service_does_not_run_as_root_and_agrees_to_nothing(unit):
    text = unit.read_text(encoding="utf-8")
    commands = re.findall(r"^(?!#).*coterie (?:serve|join).*", text, re.MULTILINE)
    assert re.search("^User=coterie$", text, re.MULTILINE)
    assert commands
    assert not any("--yes" in command for command in commands)


def test_the_image_contains_only_the_source():
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("\n")
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert "*" in ignored
    assert (
        {name for line in copied for name in line.split()}
        == allowed
        == {"pyproject.toml", "README.md", "LICENSE", "src"}
    )
