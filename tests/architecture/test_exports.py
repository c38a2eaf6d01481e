"""The public interface is what `__all__` reaches: it is complete, documented, and importable from `coterie`."""

import ast
import functools
import importlib
import inspect
import itertools
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest

import coterie

SINGLE_MODULES = {"drift", "metrics"}
PUBLIC = [
    "coterie",
    *(
        f"coterie.{found.name}"
        for found in pkgutil.iter_modules(coterie.__path__)
        if not found.name.startswith("_") and (found.ispkg or found.name in SINGLE_MODULES)
    ),
]


def is_export(module: ModuleType, name: str) -> bool:
    """Whether a name of a module was defined in it or in a submodule, and not only imported for internal use."""
    value = getattr(module, name)
    if name.startswith("_") or name == "TYPE_CHECKING" or inspect.ismodule(value) or isinstance(value, TypeVar):
        return False
    where = getattr(value, "__module__", None)
    if where is None:  # a constant
        return name.isupper() and hasattr(module, "__path__")
    return f"{where}.".startswith(f"{module.__name__}.")


@functools.cache
def explained_constants() -> set[str]:
    """Names with a `#:` comment directly above their assignment, anywhere in the package."""
    names = set()
    for path in Path(coterie.__path__[0]).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            above = itertools.takewhile(lambda line: line.startswith("#"), reversed(lines[: node.lineno - 1]))
            if isinstance(node, ast.Assign | ast.AnnAssign) and any(line.startswith("#:") for line in above):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def is_documented(module: ModuleType, name: str) -> bool:
    value = getattr(module, name)
    if inspect.ismodule(value) or inspect.isfunction(value):
        return bool(value.__doc__)
    if inspect.isclass(value):
        doc = value.__dict__.get("__doc__") or ""
        return bool(doc) and not doc.startswith(f"{value.__name__}(")  # the docstring that dataclasses generate
    return name in explained_constants() or f"`{name}`" in (module.__doc__ or "")


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_complete(name: str):
    module = importlib.import_module(name)
    declared = module.__all__
    missing = [each for each in declared if not hasattr(module, each)]
    assert not missing, f"{name}.__all__ has names that do not exist"
    assert len(set(declared)) == len(declared)
    forgotten = {each for each in dir(module) if is_export(module, each)} - set(declared)
    assert not forgotten, f"public in {name}, but not in its __all__"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_exported_name_is_documented(name: str):
    module = importlib.import_module(name)
    assert module.__doc__
    undocumented = [each for each in module.__all__ if not each.startswith("__") and not is_documented(module, each)]
    assert not undocumented, f"in {name}, these have no docstring and no `#:` comment above their assignment"


#: The names that users call, by the module that they are called from.
CALLED_BY_USERS = {
    "coterie": (
        "DATASETS METHODS MODELS Comparison Error RunRecord Spec compare estimate recommend resume run tune "
        "aggregation clustering data drift metrics models torch testing"
    ),
    "coterie.clustering": (
        "agglomerative bipartition components cosine edc edc_embedding elbow flag_data_angles flag_proximity kmeans l2 "
        "madc principal_angle"
    ),
    "coterie.aggregation": "mix_groups trimmed_mean weighted_mean",
    "coterie.metrics": ("adjusted_rand discrepancy mean_accuracy misclustering pni rounds_to_target weighted_accuracy"),
    "coterie.data": "DATASETS from_arrays load partition",
    "coterie.drift": "Drift ObservedRound measure",
    "coterie.models": "MODELS Normalize build from_flax from_functions mclr mlp",
    "coterie.reports": (
        "RunView client_map cluster_search communication curves discrepancy distance_relation drift drift_outcomes "
        "explained_variance fairness figure matrix relation report save sweep table"
    ),
    "coterie.reproduce": "Entry entry names run",
    "coterie.tracking": "MLflow TensorBoard TRACKERS WandB",
    "coterie.testing": "CHECKS Harness tiny_data tiny_task",
}


def test_attributes_are_reached_in_an_interpreter_that_imported_nothing_else():
    names = [f"{module}.{name}" for module, names in CALLED_BY_USERS.items() for name in names.split()]
    code = "import coterie\n" + "\n".join(name for name in names if not name.endswith(".torch"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'coterie' has no attribute 'clusters'"):
        _ = coterie.clusters
