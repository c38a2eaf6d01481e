"""What can go wrong, as one tree; each branch has the exit code of the command line.

    Error                        1
    ├── SpecError                2   the user's input is wrong
    ├── DataError                3   data cannot be had, or are not what they should be
    ├── FederationError          4   the federation failed
    │   ├── ClientFailed             a client could not do its work
    │   ├── TooFewReplies            too few clients answered; the run loop records a skipped round
    │   ├── TimedOut                 nobody answered in time
    │   └── Diverged                 numbers are not finite any more
    └── RecordError              2   a record on disk cannot be read or written

A message says what is wrong, what is allowed and what to do, in one or two lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Error(Exception):
    """Anything that Coterie raises on purpose."""

    exit_code = 1


class SpecError(Error):
    """The user's input is wrong: a name, a value, a combination."""

    exit_code = 2


class DataError(Error):
    """Data cannot be had, or are not what they should be."""

    exit_code = 3


class FederationError(Error):
    """The federation failed."""

    exit_code = 4


class ClientFailed(FederationError):
    """A client could not do the work that it was asked to do."""


class TooFewReplies(FederationError):
    """Too few clients answered an ask; the run loop records a skipped round."""


class TimedOut(FederationError):
    """Nobody answered before the deadline, where a carrier has a clock."""


class Diverged(FederationError):
    """Models or replies are not finite any more."""


class RecordError(Error):
    """A record on disk cannot be read or written."""

    exit_code = 2


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The text for a name that nobody knows: the nearest one that is known, and all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"No {kind} {name!r}.{hint} Known: {', '.join(names) or 'none'}"
