"""What importing loads: `import coterie` and `coterie --help` have to be quick."""

import importlib.util
import subprocess
import sys

import pytest

SLOW_TO_LOAD = {"jax", "jaxlib", "flax", "optax", "flwr", "plotly", "matplotlib", "sklearn", "scipy", "pandas", "torch"}
COMMAND_LINE = {"typer", "rich", "click"}


def loaded_by(code: str) -> set[str]:
    """The top-level packages in `sys.modules` after running this in a new interpreter."""
    tail = "\nimport sys; print(); print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_that_is_slow_to_load():
    assert not loaded_by("import coterie") & (SLOW_TO_LOAD | COMMAND_LINE)


def test_listing_what_there_is_loads_nothing_that_is_slow_to_load():
    listing = "import coterie\nfor name in ('METHODS', 'DATASETS', 'MODELS'): list(getattr(coterie, name, ()))"
    assert not loaded_by(listing) & SLOW_TO_LOAD


def test_help_of_the_command_line_loads_nothing_that_is_slow_to_load():
    if importlib.util.find_spec("coterie.cli") is None:
        pytest.skip("there is no coterie.cli yet")
    help_text = """
import sys
from coterie.cli import main
sys.argv = ["coterie", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
    assert not loaded_by(help_text) & SLOW_TO_LOAD
