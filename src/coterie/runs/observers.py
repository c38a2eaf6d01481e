"""Observers: objects that are told when a run starts, after each step and when it ends, such as experiment trackers.

An observer cannot harm a run: it gets copies, and an exception in it is logged once.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from coterie.errors import Diverged, SpecError, shown
from coterie.runs.record import JsonObject, RunRecord
from coterie.runs.spec import Spec

log = logging.getLogger(__name__)

#: Called after each step with its line of the record.
OnRound = Callable[[JsonObject], None]


@runtime_checkable
class Observer(Protocol):
    """Follows one run."""

    def on_start(self, spec: Spec, record_path: Path | None) -> None:
        """The run starts or is resumed.

        Args:
            spec: The resolved spec.
            record_path: Folder of the record; None: nothing is written.
        """

    def on_round(self, row: JsonObject) -> None:
        """A step is done; `row`: its line of the record."""

    def on_end(self, summary: JsonObject) -> None:
        """The run has ended.

        Args:
            summary: The summary of the record. For a run that was interrupted or failed, only `status`
                (`interrupted`, `diverged`, `failed`) and `reason`.
        """


class Observation:
    """The observers of one run, which were told that it has started."""

    def __init__(self, observers: Iterable[Observer], spec: Spec, record_path: Path | None) -> None:
        """Tell all observers that the run starts. Those that fail are not called again."""
        self._failed: set[int] = set()
        self._active: list[Observer] = []
        for observer in observers:
            if self._told(observer, "on_start", spec, record_path):
                self._active.append(observer)

    def on_round(self, row: JsonObject) -> None:
        """Tell the observers that a step is done; those that failed before are left out."""
        for observer in self._active:
            if id(observer) not in self._failed:
                self._told(observer, "on_round", copy.deepcopy(row))

    def on_end(self, summary: JsonObject) -> None:
        """Tell the observers that the run has ended, also those that failed in a step, so that they can close files."""
        for observer in self._active:
            self._told(observer, "on_end", copy.deepcopy(summary))
        self._active = []

    def _told(self, observer: Observer, event: str, *content: object) -> bool:
        """Call an observer; False if it raised an exception, which is logged once per observer."""
        try:
            getattr(observer, event)(*content)
        except Exception as fault:
            if id(observer) not in self._failed:
                name = type(observer).__name__
                log.warning("Observer %s failed in %s and is ignored: %s", name, event, _reason(fault))
            self._failed.add(id(observer))
            return False
        return True


@contextlib.contextmanager
def observing(
    observers: Iterable[Observer], spec: Spec, record_path: Path | None, on_round: OnRound | None = None
) -> Iterator[tuple[OnRound, Callable[[RunRecord], RunRecord]]]:
    """Let observers follow a run that is done inside this context.

    Args:
        observers: The observers.
        spec: The resolved spec.
        record_path: Folder of the record, which exists; None: nothing is written.
        on_round: Another function to call after each step, after the observers.

    Yields:
        The function to call after each step, and the function to call with the finished record, which returns it.
    """
    observation = Observation(observers, spec, record_path)

    def step(row: JsonObject) -> None:
        observation.on_round(row)
        if on_round is not None:
            on_round(row)

    def end(record: RunRecord) -> RunRecord:
        observation.on_end(record.summary)
        return record

    try:
        yield step, end
    except BaseException as fault:
        observation.on_end(ending(fault))
        raise


def ending(fault: BaseException) -> JsonObject:
    """What observers get instead of a summary if a run ends with an exception."""
    if not isinstance(fault, Exception):
        return {"status": "interrupted", "reason": type(fault).__name__}
    return {"status": "diverged" if isinstance(fault, Diverged) else "failed", "reason": _reason(fault)}


def check_observers(observers: Iterable[Observer]) -> tuple[Observer, ...]:
    """Return the observers of a run as a tuple.

    Raises:
        SpecError: If one of them is not an observer.
    """
    given = tuple(observers)
    for each in given:
        if isinstance(each, type) or not isinstance(each, Observer):
            raise SpecError(
                f"observers must be objects with on_start, on_round and on_end, got {shown(each)}; "
                "see coterie.tracking for those that exist"
            )
    return given


def _reason(fault: BaseException) -> str:
    text = str(fault).strip()
    return f"{type(fault).__name__}: {text.splitlines()[0]}" if text else type(fault).__name__
