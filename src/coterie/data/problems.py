"""`Problems` collects what is wrong with a table, so that one error names all of it."""

from __future__ import annotations

from types import TracebackType

from coterie.errors import DataError, Error, SpecError

#: Number of problems that an error lists.
_LISTED = 8


class Problems:
    """The problems of a table. Each check runs in `with problems:`; `report` raises if one of them has failed."""

    def __init__(self, what: str) -> None:
        """Start without problems.

        Args:
            what: The table, for the message.
        """
        self._what = what
        self._found: list[Error] = []

    def __bool__(self) -> bool:
        """Whether there is a problem."""
        return bool(self._found)

    def __enter__(self) -> Problems:
        """Begin a check."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Keep an error of data or settings, once; others are raised."""
        if isinstance(fault, DataError | SpecError):
            if str(fault) not in map(str, self._found):
                self._found.append(fault)
            return True
        return False

    def report(self) -> None:
        """Raise the problem that was found; several as one error with a line for each."""
        if not self._found:
            return
        if len(self._found) == 1:
            raise self._found[0]
        lines = [f"- {str(each).removeprefix(f'{self._what}: ')}" for each in self._found[:_LISTED]]
        more = len(self._found) - _LISTED
        lines += [f"- and {more} more"] if more > 0 else []
        kind = SpecError if all(isinstance(each, SpecError) for each in self._found) else DataError
        raise kind("\n".join([f"{self._what} has {len(self._found)} problems:", *lines]))
