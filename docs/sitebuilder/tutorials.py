"""Tutorials: percent scripts that are run when the site is built, with their output in the page."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sitebuilder.cells import cells
from sitebuilder.paths import DOCS, PAGES, ROOT, WORK, fingerprint, write

#: Longest a tutorial may take, in seconds.
LIMIT = 600


@dataclass(frozen=True)
class Tutorial:
    """A tutorial.

    Attributes:
        name: Name of its page.
        script: The percent script.
        package: Package that it needs in addition, or empty.
        extra: Extra that installs this package.
    """

    name: str
    script: Path
    package: str = ""
    extra: str = ""


TUTORIALS = (
    Tutorial("first-run", DOCS / "tutorials" / "first_run.py"),
    Tutorial("your-data", ROOT / "examples" / "05_hospitals.py"),
    Tutorial("pytorch", ROOT / "examples" / "06_pytorch_round_trip.py", "torch", "torch"),
    Tutorial("your-method", DOCS / "tutorials" / "your_method.py"),
    Tutorial("drift", DOCS / "tutorials" / "drift.py"),
    Tutorial("federation", DOCS / "tutorials" / "federation.py", "flwr", "network"),
)


Running = Mapping[Tutorial, "Future[list[dict[str, Any]] | None]"]


@contextlib.contextmanager
def started() -> Iterator[Running]:
    """Run the tutorials in the background, two at a time, the longest one first."""
    pool = ThreadPoolExecutor(2)
    try:
        yield {tutorial: pool.submit(executed, tutorial) for tutorial in reversed(TUTORIALS)}
    finally:
        pool.shutdown(cancel_futures=True)


def build(running: Running, pages: Path = PAGES) -> list[str]:
    """Write the pages of the tutorials when they are done; returns the names of those that could not be run."""
    results = {tutorial: future.result() for tutorial, future in running.items()}
    for tutorial, found in results.items():
        write(pages / "tutorials" / f"{tutorial.name}.md", page(tutorial, found, pages / "tutorials"))
        write(pages / "tutorials" / f"{tutorial.name}.ipynb", notebook(found or cells(_source(tutorial))))
    return [tutorial.name for tutorial, found in results.items() if found is None]


def _source(tutorial: Tutorial) -> str:
    return tutorial.script.read_text(encoding="utf-8")


def interpreter(tutorial: Tutorial) -> str | None:
    """The Python that has what the tutorial needs; None without one."""
    if not tutorial.package or importlib.util.find_spec(tutorial.package):
        return sys.executable
    network = ROOT / ".venv-network" / "bin" / "python"
    return str(network) if tutorial.package == "flwr" and network.exists() else None


def executed(tutorial: Tutorial) -> list[dict[str, Any]] | None:
    """The cells with their outputs, from the cache if nothing changed; None if it cannot be run here."""
    python = interpreter(tutorial)
    if python is None:
        return None
    here = Path(__file__).parent
    key = fingerprint(tutorial.script, here / "cells.py", here / "drawing.py")
    stored = WORK / "tutorials" / f"{tutorial.name}-{key}.json"
    if not stored.exists():
        scratch = WORK / "scratch" / tutorial.name
        shutil.rmtree(scratch, ignore_errors=True)
        stored.parent.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join([str(ROOT / "src"), str(DOCS)])
        command = [python, str(here / "cells.py"), str(tutorial.script), str(scratch), str(stored)]
        _run(tutorial.name, command, {**os.environ, "PYTHONPATH": path})
    return json.loads(stored.read_text(encoding="utf-8"))


def _run(name: str, command: list[str], environment: dict[str, str]) -> None:
    """Run a tutorial in a session of its own, so that what it started in the background ends with it."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        try:
            _, errors = started.communicate(timeout=LIMIT)
        except BaseException:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    if started.returncode:
        raise RuntimeError(f"the tutorial {name} failed:\n{errors[-3000:]}")


# ---------------------------------------------------------------------------------------------------------------- pages


def page(tutorial: Tutorial, found: list[dict[str, Any]] | None, folder: Path) -> str:
    """The page of a tutorial; its figures are written into the folder."""
    script = tutorial.script.relative_to(ROOT)
    shown = found or [{**cell, "outputs": []} for cell in cells(_source(tutorial))]
    title, _, text = shown[0]["source"].partition("\n")
    download = f"[download it as a notebook]({tutorial.name}.ipynb){{ download }}"
    parts = [title, f"This page is `{script}`, run when the site was built; {download}."]
    if found is None:
        parts[1] = (
            '!!! warning "Not run"\n\n'
            f"    This site was built without the extra `{tutorial.extra}`: the page shows the code of `{script}`, but "
            "not its output."
        )
    parts.append(text.strip())
    number = 0
    for cell in shown[1:]:
        if cell["kind"] == "markdown":
            parts.append(cell["source"])
            continue
        language = {"python": "python", "bash": "sh"}[cell["kind"]]
        parts.append(f"```{language}\n{cell['source']}\n```")
        for output in cell["outputs"]:
            number += 1
            parts.append(_output(output, f"{tutorial.name}-{number}", folder))
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, str], name: str, folder: Path) -> str:
    if "text" in output:
        return f"```{{ .text .output }}\n{output['text'].rstrip()}\n```"
    if "html" in output:
        return f'<div class="output" markdown="0">{output["html"]}</div>'
    for variant, drawn in output.items():
        write(folder / f"{name}-{variant}.svg", drawn)
    return f"![Figure]({name}-light.svg#only-light)\n![Figure]({name}-dark.svg#only-dark)"


def notebook(found: list[dict[str, Any]]) -> str:
    """The tutorial as a Jupyter notebook, with its output."""
    made = []
    for place, cell in enumerate(found):
        source = f"%%bash\n{cell['source']}" if cell["kind"] == "bash" else cell["source"]
        common: dict[str, Any] = {"id": f"cell-{place}", "metadata": {}, "source": source}
        if cell["kind"] == "markdown":
            made.append({"cell_type": "markdown", **common})
            continue
        outputs = [_notebook_output(output) for output in cell.get("outputs", ())]
        made.append({"cell_type": "code", "execution_count": None, "outputs": outputs, **common})
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _notebook_output(output: dict[str, str]) -> dict[str, Any]:
    if "text" in output:
        return {"output_type": "stream", "name": "stdout", "text": output["text"]}
    data = {"text/html": output["html"]} if "html" in output else {"image/svg+xml": output["light"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}
