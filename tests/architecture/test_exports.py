"""The public interface is what `__all__` reaches: it says everything that is exported, and each name is documented."""

import ast
import importlib
import inspect
import itertools
import pkgutil
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
    """Whether a name of a module was written in it or below it, and is not a mere import for its own use."""
    value = getattr(module, name)
    if name.startswith("_") or name == "TYPE_CHECKING" or inspect.ismodule(value) or isinstance(value, TypeVar):
        return False
    where = getattr(value, "__module__", None)
    if where is None:  # a constant, which does not know where it comes from
        return name.isupper() and hasattr(module, "__path__")
    return f"{where}.".startswith(f"{module.__name__}.")


def explained_constants() -> set[str]:
    """Names with a `#:` comment right above their assignment, anywhere in the package."""
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
        return bool(doc) and not doc.startswith(f"{value.__name__}(")  # a dataclass without one is given its signature
    return name in explained_constants() or f"`{name}`" in (module.__doc__ or "")


@pytest.mark.parametrize("name", PUBLIC)
def test_all_says_what_is_exported(name: str):
    module = importlib.import_module(name)
    declared = module.__all__
    missing = [each for each in declared if not hasattr(module, each)]
    assert not missing, f"{name}.__all__ names what is not there"
    assert len(set(declared)) == len(declared)
    forgotten = {each for each in dir(module) if is_export(module, each)} - set(declared)
    assert not forgotten, f"public in {name}, but not in its __all__"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_exported_name_is_documented(name: str):
    module = importlib.import_module(name)
    assert module.__doc__
    silent = [each for each in module.__all__ if not each.startswith("__") and not is_documented(module, each)]
    assert not silent, f"of {name}, these have no docstring, or no `#:` comment above their assignment"
