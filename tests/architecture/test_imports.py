"""`import coterie` and `coterie --help` load no slow packages."""

import subprocess
import sys

SLOW_TO_LOAD = {"jax", "jaxlib", "flax", "optax", "flwr", "plotly", "matplotlib", "sklearn", "scipy", "pandas", "torch"}
SLOW_TO_LOAD |= {"cryptography", "optuna", "mlflow", "wandb", "tensorboardX"}
COMMAND_LINE = {"typer", "rich", "click"}


def loaded_by(code: str) -> set[str]:
    """The top-level packages in `sys.modules` after running this code in a new interpreter."""
    tail = "\nimport sys; print(); print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_no_slow_packages():
    assert not loaded_by("import coterie") & (SLOW_TO_LOAD | COMMAND_LINE)


def test_listing_methods_data_and_models_loads_no_slow_packages():
    listing = "import coterie\nfor name in ('METHODS', 'DATASETS', 'MODELS'): list(getattr(coterie, name, ()))"
    assert not loaded_by(listing) & SLOW_TO_LOAD


def test_command_line_help_loads_no_slow_packages():
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
