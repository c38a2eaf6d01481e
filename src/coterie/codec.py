"""Serialization of plain data without pickle, for messages and checkpoints.

Arrays are stored as safetensors, everything else in a JSON header. Supported types: None, bool, int, float, str, NumPy
arrays and scalars, lists, tuples, dicts with string or integer keys, `ClientMap`, `Seed`, and frozen dataclasses marked
with `@state`, which are stored by name. Floats in the header are exact. The value of a `Lazy` is computed when it is
encoded.

Files get a checksum, which `decode` verifies: the BLAKE2b hash of the file with zeros in place of its 64 digits. It is
the first entry of the safetensors metadata.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from coterie.client_map import ClientMap
from coterie.errors import Error, RecordError
from coterie.seeds import Seed

C = TypeVar("C", bound=type)

_STATES: dict[str, type] = {}
_FORMAT = "coterie-1"

#: Types that are stored in the header as they are.
_ATOMS = frozenset({type(None), bool, str, int})

#: Metadata entry of the checksum, its digits before they are known, and what comes before them in a file.
_CHECKSUM = "checksum"
_ZEROS = b"0" * 64
_METADATA = b'{"__metadata__":{'
_BEFORE_CHECKSUM = _METADATA + f'"{_CHECKSUM}":"'.encode()
_DIGITS = 8 + len(_BEFORE_CHECKSUM)  # position of the digits, after the length of the header

#: Integers from other machines are smaller than this in magnitude.
_LARGEST = 1 << 64

#: Exceptions that decoding damaged data may raise.
_DAMAGE = (AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)


def state(kind: C) -> C:
    """Register a frozen dataclass as plain data, so that it can be encoded."""
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(f"{kind.__qualname__} must be a frozen dataclass: states are never changed in place")
    _STATES[f"{kind.__module__}:{kind.__qualname__}"] = kind
    return kind


@dataclasses.dataclass(frozen=True)
class Lazy:
    """A value that is computed when it is encoded, for snapshots of which few are stored.

    Attributes:
        compute: Returns the value; it must not change any more.
    """

    compute: Callable[[], Any]


def plain(value: Any) -> Any:
    """The value of a `Lazy`; other values are returned unchanged."""
    return value.compute() if isinstance(value, Lazy) else value


def encode(value: Any, *, checksum: bool = False) -> bytes:
    """Encode a value of the supported types as bytes; equal values give equal bytes.

    Args:
        value: The value.
        checksum: Whether to add a checksum, for data that are stored.
    """
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    header = _pack(value, arrays, "value")
    # A single metadata entry, because safetensors does not write several entries in a fixed order.
    data = save(arrays, metadata={_FORMAT: json.dumps(header, separators=(",", ":"))})
    return _with_checksum(data) if checksum else data


def decode(data: bytes, *, kinds: Collection[type] | None = None) -> Any:
    """Decode bytes made by `encode`; the checksum is verified if there is one.

    Args:
        data: The bytes.
        kinds: The dataclasses that the data may contain; None: all that are registered. For data from another machine.

    Raises:
        RecordError: If the data are damaged, in another format, or contain a type that is not registered.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if data[8:_DIGITS] == _BEFORE_CHECKSUM and _checksum(memoryview(data)) != data[_DIGITS : _DIGITS + len(_ZEROS)]:
        raise RecordError("The data are damaged: the checksum does not match")
    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if _FORMAT not in metadata:
            raise RecordError(f"The data have format {sorted(metadata)}; this version reads {_FORMAT}")
        if unknown := metadata.keys() - {_FORMAT, _CHECKSUM}:  # the name of the checksum may be what is damaged
            raise ValueError(f"unknown metadata {sorted(unknown)}")
        allowed = _STATES if kinds is None else {name: kind for name, kind in _STATES.items() if kind in kinds}
        return _unpack(json.loads(metadata[_FORMAT]), arrays, allowed)
    except RecordError:
        raise
    except (SafetensorError, Error, *_DAMAGE) as fault:
        raise RecordError(f"The data are damaged or not in Coterie's format: {fault}") from fault


def _with_checksum(data: bytes) -> bytes:
    """Add a checksum to encoded data."""
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].rstrip(b" ")
    assert header.startswith(_METADATA)
    header = _BEFORE_CHECKSUM + _ZEROS + b'",' + header[len(_METADATA) :]
    header += b" " * (-len(header) % 8)  # the arrays begin at a multiple of 8
    start, arrays = len(header).to_bytes(8, "little") + header, memoryview(data)[8 + length :]
    digits = _checksum(start, arrays)
    return b"".join([start[:_DIGITS], digits, start[_DIGITS + len(digits) :], arrays])


def _checksum(*pieces: bytes | memoryview) -> bytes:
    """The digits of the checksum of a file in pieces; the first one contains the place of the checksum."""
    digest = hashlib.blake2b(digest_size=len(_ZEROS) // 2)
    for piece in (pieces[0][:_DIGITS], _ZEROS, pieces[0][_DIGITS + len(_ZEROS) :], *pieces[1:]):
        digest.update(piece)
    return digest.hexdigest().encode()


def _pack(value: Any, arrays: dict[str, Any], where: str) -> Any:
    if type(value) in _ATOMS or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _pack_array(np.asarray(value), arrays, where)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return {"@": "float", "bits": struct.pack(">d", value).hex()}  # exact, including the payload of a NaN
    if isinstance(value, Lazy):
        return _pack(value.compute(), arrays, where)
    if isinstance(value, Seed):
        return {"@": "seed", "value": str(value.value)}
    if type(value) in (list, tuple):  # no subclasses: the type of a named tuple would be lost
        kind = "list" if isinstance(value, list) else "tuple"
        items = [item if type(item) in _ATOMS else _pack(item, arrays, where) for item in value]
        return {"@": kind, "items": items}
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise TypeError(f"Keys in plain data must be strings or integers, got {key!r} in {where}")
        items = [  # most entries of large mappings are numbers
            [key, item if type(item) in _ATOMS else _pack(item, arrays, f"{where}.{key}")]
            for key, item in sorted(value.items(), key=_key_order)
        ]
        return {"@": "kept" if isinstance(value, ClientMap) else "dict", "items": items}
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    if _STATES.get(name) is type(value) and dataclasses.is_dataclass(value):
        fields = {f.name: _pack(getattr(value, f.name), arrays, f"{where}.{f.name}") for f in dataclasses.fields(value)}
        return {"@": "state", "kind": name, "fields": fields}
    hint = "mark the dataclass with @state" if dataclasses.is_dataclass(value) else "turn it into arrays or numbers"
    raise TypeError(f"{where} is a {type(value).__qualname__}, which cannot be encoded; {hint}")


def _key_order(item: tuple[Any, Any]) -> tuple[bool, Any]:
    """Integer keys come before strings."""
    return isinstance(item[0], str), item[0]


def _pack_array(array: np.ndarray[Any, Any], arrays: dict[str, Any], where: str) -> Any:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{where} is an array of {array.dtype}; only booleans and numbers of up to 64 bits are allowed")
    name = f"a{len(arrays)}"
    arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    return {"@": "array", "name": name}


def _unpack(header: Any, arrays: dict[str, Any], kinds: Mapping[str, type]) -> Any:
    if kinds is not _STATES and isinstance(header, int) and abs(header) >= _LARGEST:
        raise ValueError("an integer has more than 64 bits")
    if isinstance(header, float):  # `encode` writes floats as bits
        raise ValueError("a number is not in the format of this codec")
    if not isinstance(header, dict):
        return header
    kind = header["@"]
    if kind == "array":
        return arrays[header["name"]]
    if kind == "float":
        return struct.unpack(">d", bytes.fromhex(header["bits"]))[0]
    if kind == "seed":
        return Seed(int(header["value"]))
    if kind in ("list", "tuple"):
        items = [_unpack(item, arrays, kinds) for item in header["items"]]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "kept"):
        pairs = {key: _unpack(item, arrays, kinds) for key, item in header["items"]}
        return pairs if kind == "dict" else ClientMap(pairs)
    if kind == "state" and header["kind"] in kinds:
        fields = {name: _unpack(item, arrays, kinds) for name, item in header["fields"].items()}
        return kinds[header["kind"]](**fields)
    raise RecordError(f"Unknown type {header.get('kind', kind)!r} in the data; import the module that defines it first")


def arrays(value: Any, *, floats: bool = True) -> list[np.ndarray[Any, Any]]:
    """List all arrays in a value, in a fixed order; `floats`: include Python floats as scalars."""
    if isinstance(value, np.ndarray | np.generic) or (floats and isinstance(value, float)):
        return [np.asarray(value)]
    inside: list[Any] = []
    if isinstance(value, Mapping):
        inside = [value[key] for key in sorted(value, key=str)]
    elif isinstance(value, list | tuple):
        inside = list(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return [array for item in inside for array in arrays(item, floats=floats)]


def finite(value: Any, known: Any = None) -> bool:
    """Whether all arrays in a value are finite. Python floats are ignored: infinity may be a valid bound.

    Args:
        value: The value.
        known: A value of the same structure that is known to be finite, such as the state before. Objects that both
            contain at the same place are not looked at again.
    """
    if value is known and value is not None:
        return True
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    if isinstance(value, dict):
        before = known if isinstance(known, dict) else {}
        return all(type(item) in _ATOMS or finite(item, before.get(key)) for key, item in value.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return all(finite(getattr(value, name), getattr(known, name, None)) for name in names)
    inside: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    return all(type(item) in _ATOMS or finite(item) for item in inside)
