"""Reads pickles as data, without executing them: dicts of numbers, strings, bytes, lists, tuples and arrays of bytes.

A pickle is a program for a stack machine, and its instructions may import and call any name. This reader interprets the
instructions itself and carries out only those that build plain values. Only the names that
NumPy and Python write for arrays and bytes are allowed: the empty array, its type, the encoding of bytes as text, and
empty bytes. They are never imported: the reader builds the values itself, after checking all arguments.
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

# The names that Python 2, NumPy 1 and NumPy 2 write.
_EMPTY_ARRAY = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_ARRAY = ("numpy ndarray",)
_DTYPE = ("numpy dtype",)
_ENCODE = ("_codecs encode",)
_EMPTY_BYTES = ("__builtin__ bytes",)
_KNOWN = (*_EMPTY_ARRAY, *_ARRAY, *_DTYPE, *_ENCODE, *_EMPTY_BYTES)
_SHOWN = 80  # characters of a name in an error message


#: Exceptions for bytes that are not a pickle, or a pickle that is made to use up all memory.
_MALFORMED = (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError, MemoryError, Warning)


class _Name(str):
    """A name that a pickle asks to import."""


class _PendingArray:
    """An array whose content has not been read yet."""

    made: np.ndarray[Any, Any] | None = None


class _ByteType:
    """The type of an array of bytes."""


def read_pickle(content: bytes, what: str) -> dict[Any, Any]:
    """The dict in a pickle.

    Args:
        content: The pickle.
        what: Its name, for error messages.
    """
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python warns about unknown escapes in strings
            for opcode, argument, _ in pickletools.genops(content):
                machine.step(opcode.name, argument)
        return machine.result()
    except _Rejected as error:
        raise DataError(f"{what} is rejected: {error}. Nothing in it was executed") from error
    except _MALFORMED as error:
        raise DataError(f"{what} is not a complete pickle of plain values: {error}") from error


class _Rejected(Exception):
    """The pickle asks for something that is not plain data."""


class _Machine:
    """The stack machine that builds the value of a pickle."""

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
            raise _Rejected(f"it contains the instruction {name}, which plain values do not need")

    def result(self) -> dict[Any, Any]:
        """The value, with arrays in place of their placeholders."""
        if not self.done or len(self.stack) != 1:
            raise ValueError("it ends before its value is complete")
        if type(self.stack[0]) is not dict:
            raise ValueError("it does not contain a dict")
        return {key: each.made if isinstance(each, _PendingArray) else each for key, each in self.stack[0].items()}

    def marked(self) -> list[Any]:
        """Pop the values above the last mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise ValueError("a mark is missing")

    def last(self, count: int) -> list[Any]:
        """Pop this many values."""
        if len(self.stack) < count:
            raise ValueError("a value is missing")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values


def _global(machine: _Machine, argument: str) -> None:
    if argument not in _KNOWN:
        raise _Rejected(f"it asks for {argument.replace(' ', '.')[:_SHOWN]!r}, which is not plain data")
    machine.stack.append(_Name(argument))


def _stack_global(machine: _Machine, _: Any) -> None:
    module, name = machine.last(2)
    if type(module) is not str or type(name) is not str:  # other types may have a text of any length
        raise _Rejected("it asks for a name that is not a string")
    _global(machine, f"{module} {name}")


def _reduce(machine: _Machine, _: Any) -> None:
    """A call: only known names with the expected arguments."""
    called, given = machine.last(2)
    if not isinstance(called, _Name) or not isinstance(given, tuple):
        raise _Rejected("it calls something without a name")
    if called in _EMPTY_ARRAY and len(given) == 3 and isinstance(given[0], _Name) and given[0] in _ARRAY:
        machine.stack.append(_PendingArray())
    elif called in _DTYPE and given and given[0] in ("u1", b"u1"):
        machine.stack.append(_ByteType())
    elif called in _ENCODE and len(given) == 2 and isinstance(given[0], str) and given[1] in ("latin1", "latin-1"):
        machine.stack.append(given[0].encode("latin-1"))
    elif called in _EMPTY_BYTES and not given:
        machine.stack.append(b"")
    else:
        raise _Rejected(f"it calls {called.replace(' ', '.')!r} in a way that arrays of bytes do not need")


def _build(machine: _Machine, _: Any) -> None:
    """Set the state of an array or of its type."""
    target, state = machine.last(2)
    if isinstance(target, _PendingArray) and isinstance(state, tuple) and len(state) == 5:
        _, shape, kind, by_columns, content = state
        content = content.encode("latin-1") if isinstance(content, str) else content
        lengths = isinstance(shape, tuple) and all(type(length) is int and length >= 0 for length in shape)
        if not (lengths and isinstance(kind, _ByteType) and isinstance(content, bytes)):
            raise _Rejected("it contains an array of another type than bytes")
        if math.prod(shape) != len(content):
            raise ValueError(f"an array of shape {shape} has {len(content)} bytes")
        target.made = np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_columns else "C")
    elif not isinstance(target, _ByteType):  # the state of a byte type is not needed
        raise _Rejected("it sets the state of something that has none")
    machine.stack.append(target)


def _into_list(machine: _Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not list:
        raise _Rejected("it appends to something that is not a list")
    target.extend(values)


def _dict(machine: _Machine, _: Any) -> None:
    values = machine.marked()
    machine.stack.append({})
    _into_dict(machine, values)


def _into_dict(machine: _Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) is not dict or len(values) % 2:
        raise _Rejected("it sets items of something that is not a dict")
    if not all(type(key) in (str, bytes, int) for key in values[::2]):
        raise _Rejected("it has a key that is neither a string nor an integer")
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

# Other instructions that are carried out.
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
