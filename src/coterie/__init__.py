"""Coterie: clustered federated learning. Clients keep their data; clients with similar data share a model.

    import coterie

    record = coterie.run({"data": "digits", "method": {"name": "ifca", "clusters": 4}})
    record.summary["accuracy"]["weighted"]

Names are loaded when they are used: `import coterie` loads neither JAX nor other large packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from coterie import aggregation, clustering, data, drift, methods, metrics, models
    from coterie.data import DATASETS
    from coterie.errors import Error
    from coterie.metrics import Metric
    from coterie.models import MODELS
    from coterie.reports.page_report import report
    from coterie.runs.compare import compare
    from coterie.runs.comparison import Comparison
    from coterie.runs.estimate import estimate
    from coterie.runs.loop import resume, run
    from coterie.runs.recommending import recommend
    from coterie.runs.record import RunRecord
    from coterie.runs.served_model import ServedModel
    from coterie.runs.spec import Spec
    from coterie.runs.tuning import tune

    #: Method name → one-line description.
    METHODS: dict[str, str]

__all__ = [
    "DATASETS",
    "METHODS",
    "MODELS",
    "Comparison",
    "Error",
    "Metric",
    "RunRecord",
    "ServedModel",
    "Spec",
    "aggregation",
    "clustering",
    "compare",
    "data",
    "drift",
    "estimate",
    "methods",
    "metrics",
    "models",
    "recommend",
    "report",
    "resume",
    "run",
    "tune",
]

#: Name → module that defines it.
_DEFINED_IN = {
    "Comparison": "coterie.runs.comparison",
    "compare": "coterie.runs.compare",
    "DATASETS": "coterie.data",
    "Error": "coterie.errors",
    "estimate": "coterie.runs.estimate",
    "Metric": "coterie.metrics",
    "MODELS": "coterie.models",
    "recommend": "coterie.runs.recommending",
    "report": "coterie.reports.page_report",
    "resume": "coterie.runs.loop",
    "run": "coterie.runs.loop",
    "RunRecord": "coterie.runs.record",
    "ServedModel": "coterie.runs.served_model",
    "Spec": "coterie.runs.spec",
    "tune": "coterie.runs.tuning",
}

#: Submodules that the docs name but that are not in `__all__`. A star import of `torch` would hide PyTorch itself.
_OTHER_MODULES = (
    "clients",
    "codec",
    "errors",
    "federation",
    "reports",
    "reproduce",
    "seeds",
    "shift",
    "testing",
    "torch",
    "tracking",
    "tree",
    "tuning",
)


def __getattr__(name: str) -> Any:
    if name == "METHODS":
        from coterie.methods import descriptions

        return descriptions()
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(_DEFINED_IN[name]), name)
    if name in __all__ or name in _OTHER_MODULES:
        return importlib.import_module(f"coterie.{name}")
    raise AttributeError(f"module 'coterie' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
