"""Reports: pages and figures, made from records alone; nothing is run again. Names are loaded when they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.reports.comparison_view import ComparisonView
    from coterie.reports.page_report import report, report_data
    from coterie.reports.view import RunView

__all__ = ["ComparisonView", "RunView", "report", "report_data"]

#: Name → module that defines it.
_DEFINED_IN = {
    "ComparisonView": "coterie.reports.comparison_view",
    "report": "coterie.reports.page_report",
    "report_data": "coterie.reports.page_report",
    "RunView": "coterie.reports.view",
}


def __getattr__(name: str) -> Any:
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    raise AttributeError(f"module 'coterie.reports' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
