"""Pickles read as data, never run: dicts of numbers, texts, bytes, lists, tuples and arrays of bytes, nothing else.

A pickle is a program for a machine with a stack, and its instructions may import any name and call it. This reader
goes through the instructions itself and carries out only those that build plain values. A few names may occur, as
NumPy and Python write them for arrays and bytes: the blank array, its type, the encoding of bytes as text, and no bytes
at all. They are never imported: what they would make is made here, after a look at everything that they were given.
"""

from __future__ import annotations

import math
import pickletools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from coterie.errors import DataError

_MARK = object()

# The names as Python 2, as NumPy before 2, and as NumPy from 2 on write them.
_BLANK = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_ARRAY = ("numpy ndarray",)
_DTYPE = ("numpy dtype",)
_ENCODE = ("_codecs encode",)
_NOTHING = ("__builtin__ bytes",)
_KNOWN = (*_BLANK, *_ARRAY, *_DTYPE, *_ENCODE, *_NOTHING)
_SHOWN = 80  # letters of a name in an error


#: What goes wrong when the bytes are no pickle, or one that is built to take up all memory.
_NOT_WHOLE = (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError, MemoryError, Warning)


class _Name(str):
    """A name that a pickle wants to be imported."""


class _Blank:
    """An array whose content is yet to come."""

    made: np.ndarray[Any, Any] | None = None


class _Bytes:
    """The type of an array of bytes."""


def read_pickle(content: bytes, what: str) -> dict[Any, Any]:
    """The dict that a pickle holds.

    Args:
        content: The pickle.
        what: Its name, for errors.
    """
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns of texts with escapes that it does not know
            for opcode, argument, _ in pickletools.genops(content):
                machine.step(opcode.name, argument)
        return machine.result()
    except _Refused as error:
        raise DataError(f"{what} is refused: {error}. Nothing in it was run") from error
    except _NOT_WHOLE as error:
        raise DataError(f"{what} is not a whole pickle of plain values: {error}") from error


class _Refused(Exception):
    """The pickle asks for something that is not plain data."""


class _Machine:
    """The stack on which a pickle builds its value."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.done = False

    def step(self, name: str, argument: Any) -> None:
        """Carry out one instruction."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _STEPS:
            _STEPS[name](self, argument)
        else:
            raise _Refused(f"it holds the instruction {name}, which plain values do not need")

    def result(self) -> dict[Any, Any]:
        """What was built, with arrays in the place of their stand-ins."""
        if not self.done or len(self.stack) != 1:
            raise ValueError("it ends before its value is complete")
        if type(self.stack[0]) is not dict:
            raise ValueError("it holds no dict")
        return {key: each.made if isinstance(each, _Blank) else each for key, each in self.stack[0].items()}

    def marked(self) -> list[Any]:
        """The values above the last mark, which are taken off the stack."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise ValueError("a mark is missing")

    def last(self, count: int) -> list[Any]:
        """So many values, which are taken off the stack."""
        if len(self.stack) < count:
            raise ValueError("a value is missing")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values


def _global(machine: _Machine, argument: str) -> None:
    if argument not in _KNOWN:
        raise _Refused(f"it asks for {argument.replace(' ', '.')[:_SHOWN]!r}, which is not plain data")
    machine.stack.append(_Name(argument))


def _stack_global(machine: _Machine, _: Any) -> None:
    module, name = machine.last(2)
    if type(module) is not str or type(name) is not str:  # what else lies there may be endless as text
        raise _Refused("it asks for a name that is no text")
    _global(machine, f"{module} {name}")


def _reduce(machine: _Machine, _: Any) -> None:
    """A call: one of those that are known, with the arguments that belong to it."""
    called, given = machine.last(2)
    if not isinstance(called, _Name) or not isinstance(given, tuple):
        raise _Refused("it calls something that has no name")
    if called in _BLANK and len(given) == 3 and isinstance(given[0], _Name) and given[0] in _ARRAY:
        machine.stack.append(_Blank())
    elif called in _DTYPE and given and given[0] in ("u1", b"u1"):
        machine.stack.append(_Bytes())
    elif called in _ENCODE and len(given) == 2 and isinstance(given[0], str) and given[1] in ("latin1", "latin-1"):
        machine.stack.append(given[0].encode("latin-1"))
    elif called in _NOTHING and not given:
        machine.stack.append(b"")
    else:
        raise _Refused(f"it calls {called.replace(' ', '.')!r} in a way that arrays of bytes do not need")


def _build(machine: _Machine, _: Any) -> None:
    """The state of an array or of its type."""
    target, state = machine.last(2)
    if isinstance(target, _Blank) and isinstance(state, tuple) and len(state) == 5:
        _, shape, kind, by_columns, content = state
        content = content.encode("latin-1") if isinstance(content, str) else content
        lengths = isinstance(shape, tuple) and all(type(length) is int and length >= 0 for length in shape)
        if not (lengths and isinstance(kind, _Bytes) and isinstance(content, bytes)):
            raise _Refused("it holds an array of something else than bytes")
        if math.prod(shape) != len(content):
            raise ValueError(f"an array of shape {shape} has {len(content)} bytes")
        target.made = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")
    elif not isinstance(target, _Bytes):  # the state of a type of bytes says nothing of interest
        raise _Refused("it gives a state to something that has none")
    machine.stack.append(target)


def _into_list(machine: _Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not list:
        raise _Refused("it appends to something that is no list")
    target.extend(values)


def _dict(machine: _Machine, _: Any) -> None:
    values = machine.marked()
    machine.stack.append({})
    _into_dict(machine, values)


def _into_dict(machine: _Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not dict or len(values) % 2:
        raise _Refused("it sets items of something that is no dict")
    if not all(type(key) in (str, bytes, int) for key in values[::2]):
        raise _Refused("it has a key that is neither text nor number")
    target.update(zip(values[::2], values[1::2], strict=True))


def _keep(machine: _Machine, place: int) -> None:
    machine.memo[place] = machine.stack[-1]


def _stop(machine: _Machine, _: Any) -> None:
    machine.done = True


def _tuple(count: int) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(tuple(machine.last(count)))


def _constant(make: Callable[[], Any]) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.stack.append(make())


# Instructions whose argument is a value.
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_VALUES = frozenset((*_NUMBERS, *_TEXTS, "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"))

# All others that are carried out.
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "STOP": _stop,
    "MARK": _constant(lambda: _MARK),
    "NONE": _constant(lambda: None),
    "NEWTRUE": _constant(lambda: True),
    "NEWFALSE": _constant(lambda: False),
    "EMPTY_LIST": _constant(list),
    "EMPTY_DICT": _constant(dict),
    "EMPTY_TUPLE": _constant(tuple),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.marked())),
    "LIST": lambda machine, _: machine.stack.append(machine.marked()),
    "DICT": _dict,
    "APPEND": lambda machine, _: _into_list(machine, machine.last(1)),
    "APPENDS": lambda machine, _: _into_list(machine, machine.marked()),
    "SETITEM": lambda machine, _: _into_dict(machine, machine.last(2)),
    "SETITEMS": lambda machine, _: _into_dict(machine, machine.marked()),
    "PUT": _keep,
    "BINPUT": _keep,
    "LONG_BINPUT": _keep,
    "MEMOIZE": lambda machine, _: _keep(machine, len(machine.memo)),
    "GET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "LONG_BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
}
