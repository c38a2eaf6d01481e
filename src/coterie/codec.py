"""Serialization of plain data without pickle, for messages and checkpoints.

Arrays are stored as safetensors, everything else in a JSON header. Supported types: None, bool, int, float, str, NumPy
arrays and scalars, lists, tuples, dicts with string or integer keys, `ClientMap`, `Seed`, and frozen dataclasses marked
with `@state`, which are stored by name. Floats in the header are exact.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from coterie.client_map import ClientMap
from coterie.errors import Error, RecordError
from coterie.seeds import Seed

C = TypeVar("C", bound=type)

_STATES: dict[str, type] = {}
_FORMAT = "coterie-1"

#: Exceptions that decoding damaged data may raise.
_DAMAGE = (AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error)


def state(kind: C) -> C:
    """Register a frozen dataclass as plain data, so that it can be encoded."""
    if not dataclasses.is_dataclass(kind) or not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(f"{kind.__qualname__} must be a frozen dataclass: states are never changed in place")
    _STATES[f"{kind.__module__}:{kind.__qualname__}"] = kind
    return kind


def encode(value: Any) -> bytes:
    """Encode a value of the supported types as bytes; equal values give equal bytes."""
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    header = _pack(value, arrays, "value")
    # A single metadata entry, because safetensors does not write several entries in a fixed order.
    return save(arrays, metadata={_FORMAT: json.dumps(header, separators=(",", ":"))})


def decode(data: bytes) -> Any:
    """Decode bytes made by `encode`.

    Raises:
        RecordError: If the data are damaged, in another format, or contain a type that is not registered.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if _FORMAT not in metadata:
            raise RecordError(f"The data have format {sorted(metadata)}; this version reads {_FORMAT}")
        return _unpack(json.loads(metadata[_FORMAT]), arrays)
    except RecordError:
        raise
    except (SafetensorError, Error, *_DAMAGE) as fault:
        raise RecordError(f"The data are damaged or not in Coterie's format: {fault}") from fault


def _pack(value: Any, arrays: dict[str, Any], where: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _pack_array(np.asarray(value), arrays, where)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return {"@": "float", "bits": struct.pack(">d", value).hex()}  # exact, including the payload of a NaN
    if isinstance(value, Seed):
        return {"@": "seed", "value": str(value.value)}
    if type(value) in (list, tuple):  # no subclasses: the type of a named tuple would be lost
        kind = "list" if isinstance(value, list) else "tuple"
        return {"@": kind, "items": [_pack(item, arrays, where) for item in value]}
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise TypeError(f"Keys in plain data must be strings or integers, got {key!r} in {where}")
        items = sorted(value.items(), key=lambda item: (isinstance(item[0], str), item[0]))
        kind = "kept" if isinstance(value, ClientMap) else "dict"
        return {"@": kind, "items": [[key, _pack(item, arrays, f"{where}.{key}")] for key, item in items]}
    name = f"{type(value).__module__}:{type(value).__qualname__}"
    if _STATES.get(name) is type(value) and dataclasses.is_dataclass(value):
        fields = {f.name: _pack(getattr(value, f.name), arrays, f"{where}.{f.name}") for f in dataclasses.fields(value)}
        return {"@": "state", "kind": name, "fields": fields}
    hint = "mark the dataclass with @state" if dataclasses.is_dataclass(value) else "turn it into arrays or numbers"
    raise TypeError(f"{where} is a {type(value).__qualname__}, which cannot be encoded; {hint}")


def _pack_array(array: np.ndarray[Any, Any], arrays: dict[str, Any], where: str) -> Any:
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{where} is an array of {array.dtype}; only booleans and numbers of up to 64 bits are allowed")
    name = f"a{len(arrays)}"
    arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    return {"@": "array", "name": name}


def _unpack(header: Any, arrays: dict[str, Any]) -> Any:
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
        items = [_unpack(item, arrays) for item in header["items"]]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "kept"):
        pairs = {key: _unpack(item, arrays) for key, item in header["items"]}
        return pairs if kind == "dict" else ClientMap(pairs)
    if kind == "state" and header["kind"] in _STATES:
        return _STATES[header["kind"]](**{name: _unpack(item, arrays) for name, item in header["fields"].items()})
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


def finite(value: Any) -> bool:
    """Whether all arrays in a value are finite. Python floats are ignored: infinity may be a valid bound."""
    return all(bool(np.isfinite(a).all()) for a in arrays(value, floats=False) if a.dtype.kind == "f")
