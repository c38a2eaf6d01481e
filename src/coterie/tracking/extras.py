"""Import of the packages of trackers, which are extras."""

from __future__ import annotations

import importlib
from typing import Any

from coterie.errors import SpecError


def package(module: str, extra: str, tracker: str) -> Any:
    """Import a module of an extra.

    Args:
        module: Module to import.
        extra: Name of the extra that installs it.
        tracker: Name of the tracker for the error message.

    Raises:
        SpecError: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as fault:
        raise SpecError(f"{tracker} needs an extra: pip install 'coterie[{extra}]' ({fault})") from fault
