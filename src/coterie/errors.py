"""The exceptions of Coterie, with the exit codes of the command line.

    Error                        1
    ├── SpecError                2   the user's input is wrong
    │   └── MethodError          2   a method does not follow the protocol
    ├── DataError                3   data are missing or invalid
    ├── FederationError          4   the federation failed
    │   ├── ClientFailed             a client could not do its work
    │   ├── TooFewReplies            too few clients replied; the run loop records a skipped round
    │   ├── TimedOut                 no reply before the deadline
    │   └── Diverged                 models or replies are not finite
    └── RecordError              2   a record on disk cannot be read or written

A message says what is wrong, what is allowed and what to do, in one or two lines. Input appears in it shortened and in
printable characters.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

#: Longest message, and longest value within a message, in characters.
_LONGEST_MESSAGE, _LONGEST_VALUE = 2000, 200


class Error(Exception):
    """Base class of all errors that Coterie raises on purpose."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        """Create an error; its message is shortened, and control characters in it are escaped."""
        super().__init__(message_text(message))


class SpecError(Error):
    """The user's input is wrong: an unknown name, a value out of range, or settings that do not go together."""

    exit_code = 2


class MethodError(SpecError):
    """A method does not follow the `Method` protocol: a function is missing or returns something else."""


class DataError(Error):
    """Data are missing or invalid."""

    exit_code = 3


class FederationError(Error):
    """The federation failed."""

    exit_code = 4


class ClientFailed(FederationError):
    """A client could not do its work."""


class TooFewReplies(FederationError):
    """Too few clients replied to an ask; the run loop records a skipped round."""


class TimedOut(FederationError):
    """No client replied before the deadline."""


class Diverged(FederationError):
    """Models or replies are not finite."""


class RecordError(Error):
    """A record on disk cannot be read or written."""

    exit_code = 2


#: Names that are common elsewhere, or that Coterie used before → names of sections, settings and their values.
_SYNONYMS: dict[str, tuple[str, ...]] = {
    "batch": ("batch_size",),
    "bs": ("batch_size",),
    "clip": ("norm-clip",),
    "clipping": ("norm-clip",),
    "cohort": ("clients_per_round",),
    "cohort_size": ("clients_per_round",),
    "dataset": ("data", "name"),
    "decay": ("weight_decay",),
    "eta": ("learning_rate",),
    "federation": ("backend",),
    "geometric": ("geometric-median",),
    "groups": ("clusters",),
    "k": ("clients_per_round", "clusters"),
    "labels": ("label-flip",),
    "layers": ("trainable_layers",),
    "lr": ("learning_rate",),
    "members": ("average_over",),
    "most": ("max_clusters", "max_samples"),
    "n_clusters": ("clusters",),
    "n_rounds": ("rounds",),
    "norm": ("max_norm",),
    "num_clusters": ("clusters",),
    "num_rounds": ("rounds",),
    "participation": ("clients_per_round",),
    "random_state": ("seed",),
    "rate": ("learning_rate",),
    "rate_decay": ("lr_decay",),
    "robust": ("aggregation",),
    "sample_size": ("clients_per_round",),
    "share": ("byzantine_fraction", "fraction"),
    "sign": ("sign-flip",),
    "simulator": ("backend",),
    "trimmed": ("trimmed-mean",),
}


def shown(value: object) -> str:
    """Return the `repr` of a value for an error message: shortened, in printable characters, whatever the value is."""
    try:
        text = repr(value)
    except Exception:  # an integer of more than 4,300 digits, deep nesting, or any error in an object's own `__repr__`
        text = f"a value of type {type(value).__name__} that is too large to show"
    return _fitted(text, _LONGEST_VALUE)


def message_text(text: str) -> str:
    """Return a message with its middle left out if it is long, in printable characters and line breaks."""
    return _fitted(text, _LONGEST_MESSAGE)


def _fitted(text: str, length: int) -> str:
    """Leave out the middle of a long text: the beginning says what is wrong, the end what to do."""
    if len(text) <= length and len(escaped := _escaped(text)) <= length:
        return escaped
    left_out = f" … ({len(text):,} characters) … "
    end = length // 4
    start = length - end - len(left_out)
    return _escaped(text[:start])[:start] + left_out + _escaped(text[-end:])[-end:]


def _escaped(text: str) -> str:
    """Escape control characters and others that a terminal would interpret or could not show; line breaks stay."""
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


def unknown(kind: str, name: object, known: Iterable[str], where: str = "") -> str:
    """Return the message for an unknown name: the most similar known name, and all known names.

    Args:
        kind: Kind of thing that has the name, such as "method".
        name: The unknown name.
        known: The known names.
        where: What lacks the name, such as "in [local]"; empty if that is clear.
    """
    names = sorted(known)
    place = f" {where}" if where else ""
    return f"No {kind} {shown(name)}{place}.{did_you_mean(name, names)} Known: {', '.join(names) or 'none'}"


def did_you_mean(name: object, known: Collection[str]) -> str:
    """Return " Did you mean ...?" with the known name that is probably meant, or an empty string."""
    near = nearest(name, known) if isinstance(name, str) else None
    return f" Did you mean {near!r}?" if near is not None else ""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is spelled almost the same, is a synonym, is similar, or contains the name."""
    plain = {_plain(each): each for each in sorted(known, reverse=True)}
    wanted = _plain(name)
    if wanted in plain:
        return plain[wanted]
    for synonym in _SYNONYMS.get(name.casefold().replace("-", "_"), ()):
        if synonym in known:
            return synonym
    similar = difflib.get_close_matches(wanted, plain, n=1)
    if similar:
        return plain[similar[0]]
    # At least three letters: shorter names are contained in too many others.
    longer = [each for each in plain if len(wanted) >= 3 and len(each) >= 3 and (wanted in each or each in wanted)]
    return plain[min(longer, key=lambda each: (len(each), each))] if longer else None


def _plain(name: str) -> str:
    """The name in lower case, without hyphens and underscores."""
    return name.casefold().replace("-", "").replace("_", "")
