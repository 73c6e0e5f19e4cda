"""Frozen records from plain data: the inverse of `dataclasses.asdict`, by way of JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Record = TypeVar("Record")


def decoded(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Return the record of ``kind`` that ``data`` holds. Keys that the record does not have are ignored."""
    record: Record = _decoded(kind, data)
    return record


def _decoded(kind: Any, data: Any) -> Any:
    """Return plain ``data`` as a value of the type ``kind``."""
    make: Callable[..., Any] = kind
    if data is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        return _decoded(next(each for each in get_args(kind) if each is not type(None)), data)
    if get_origin(kind) is tuple:
        *inner, last = get_args(kind)
        return tuple(map(_decoded, inner * len(data) if last is Ellipsis else (*inner, last), data))
    if get_origin(kind) is Mapping:
        keys, values = get_args(kind)
        return {_decoded(keys, key): _decoded(values, value) for key, value in data.items()}
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        names = [each.name for each in fields(kind) if each.name in data]
        return make(**{name: _decoded(kinds[name], data[name]) for name in names})
    return make(data) if isinstance(kind, type) and issubclass(kind, (Enum, Path)) else data
