"""Frozen dataclasses from plain data and back: `build` for what strangers wrote, `decoded` for what we wrote ourselves.

`build` checks every value against the annotation of its field. A limit stands in the annotation:
``threads: Annotated[int, span(1, 4096)]``. Nothing is converted: the text ``'8'`` is no number, and ``1`` is not true.
Records of other packages have no such limits: `Rules` list the kinds of their fields. Files with records that strangers
write do without ``from __future__ import annotations``: to read those is to evaluate text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from autotune.errors import did_you_mean

MOST_NUMBER = 2**62
"""No figure of a file is larger."""
MOST_QUOTED = 60
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

Record = TypeVar("Record")
Keys = tuple[str | int, ...]
"""Keys and list positions from the top of a file to a value."""


class InvalidValue(ValueError):
    """A value that breaks a limit; ``path`` says where it stands."""

    def __init__(self, path: Keys, reason: str) -> None:
        self.path = path
        super().__init__(f"{'.'.join(map(shown, path))}: {reason}" if path else reason)


@dataclass(frozen=True)
class Limit:
    """Values that ``allows`` is true for. Errors say that others are not ``wanted``."""

    allows: Callable[[Any], object]
    wanted: str


@dataclass(frozen=True)
class At:
    """In an annotation: the field stands in an inner ``group`` of the file, as ``key`` (its own name if empty)."""

    group: str
    key: str = ""


@dataclass(frozen=True, eq=False)
class Rules:
    """In an annotation of another package's record: the kinds of its fields, and what makes it.

    All fields are required, but for records that may get more ``with_time``.
    """

    kinds: Mapping[str, Any]
    make: Callable[..., Any]
    with_time: bool = False


OMITTED = "omitted"
"""In an annotation: the file leaves the field out if it has its default."""


def span(least: float, most: float) -> Limit:
    """Return the limit of numbers between two ends."""
    return Limit(lambda value: least <= value <= most, f"between {least} and {most}")


def pattern(text: str, wanted: str) -> Limit:
    """Return the limit of texts that match the regular expression ``text`` as a whole."""
    return Limit(re.compile(text).fullmatch, wanted)


def one_of(words: Collection[str], wanted: str = "") -> Limit:
    """Return the limit of a few words."""
    return Limit(lambda value: value in words, wanted or f"one of {', '.join(words)}")


def _is_scalar(value: object) -> bool:
    """Return True for text, a finite number, true, false and null."""
    return abs(value) <= MOST_NUMBER if isinstance(value, (int, float)) else value is None or isinstance(value, str)


Count = Annotated[int, span(0, MOST_NUMBER)]
Rate = Annotated[float, span(0, MOST_NUMBER)]
Scalar = Annotated[Any, Limit(_is_scalar, f"a single value (numbers up to {MOST_NUMBER:g})")]


def decoded(kind: type[Record], data: Mapping[str, Any]) -> Record:
    """Return the record of ``kind`` in ``data``, which our own code wrote. Keys that the record lacks are ignored."""
    record: Record = build(kind, data, trusted=True)
    return record


def build(kind: Any, value: Any, path: Keys = (), *, trusted: bool = False) -> Any:
    """Return the ``value`` of a file as ``kind``: a dataclass, an annotation, or one of Python's plain types.
    Raise `InvalidValue` if it, or a part of it, is not of that kind, unless it is ``trusted``."""
    inner = functools.partial(build, trusted=trusted)
    if trusted and value is None:
        return None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        kind, *marks = arguments
        built = inner(next((mark for mark in marks if isinstance(mark, Rules)), kind), value, path)
        for limit in marks:
            if isinstance(limit, Limit) and not trusted:
                _check(limit.allows(built), limit.wanted, value, path)
        return built
    if origin in (Union, UnionType):  # with None, always
        return None if value is None else inner(next(each for each in arguments if each is not type(None)), value, path)
    if origin is tuple:
        _check(trusted or isinstance(value, list), "a list", value, path)
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(inner(each, item, (*path, number)) for number, (each, item) in pairs)
    if origin is not None:  # a mapping
        _check(isinstance(value, dict), "a group of keys", value, path)
        keys, kinds = arguments
        return {inner(keys, key, (*path, key)): inner(kinds, item, (*path, key)) for key, item in value.items()}
    if isinstance(kind, Rules) or is_dataclass(kind):
        return _record(kind, value, path, trusted)
    if isinstance(kind, type) and issubclass(kind, (Enum, Path)):
        return kind(value)
    fits = trusted or kind is Any or type(value) is kind or (kind is float and type(value) is int)
    _check(fits, WORDS.get(kind, ""), value, path)
    return value


def as_data(value: Any) -> Any:
    """Return ``value`` as plain data in the order of its fields. An infinite number becomes null: files hold none."""
    if is_dataclass(value):
        data: dict[str, Any] = {}
        kind: Any = type(value)
        for slot in _slots(kind):
            own = getattr(value, slot.name)
            if not (slot.omitted and own == slot.default):
                (data.setdefault(slot.group, {}) if slot.group else data)[slot.key] = as_data(own)
        return data
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [as_data(item) for item in value]
    return None if isinstance(value, float) and not abs(value) <= MOST_NUMBER else value


def quote(value: Any) -> str:
    """Return ``value`` as the file had it, cut short. Characters beyond ASCII are escaped: some look like others."""
    if isinstance(value, (dict, list)):
        return "a group of keys" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shown(value, ascii(value))


def shown(part: Any, text: str = "") -> str:
    """Return one part of a path, or another ``text`` for it, cut short and in ASCII."""
    text = text or (ascii(part)[1:-1] if isinstance(part, str) else str(part))
    return text if len(text) <= MOST_QUOTED else text[:MOST_QUOTED] + "..."


def _check(fits: object, wanted: str, value: Any, path: Keys) -> None:
    if not fits:
        raise InvalidValue(path, f"{quote(value)} is not {wanted}")


def _record(kind: Any, value: Any, path: Keys, trusted: bool) -> Any:
    slots, values = _slots(kind), {}
    inner = list(dict.fromkeys(slot.group for slot in slots if slot.group))
    for group in ("", *inner):
        here, data = ((*path, group), value[group]) if group else (path, value)
        _check(isinstance(data, dict), "a group of keys", data, here)
        own = {slot.key: slot for slot in slots if slot.group == group}
        known = own.keys() if group else [*own, *inner]
        for key in data:
            if key not in known and not trusted:
                raise InvalidValue((*here, key), f"is no key of this format{did_you_mean(key, known)}")
        for key in known:
            if key in data and key in own:
                values[own[key].name] = build(own[key].kind, data[key], (*here, key), trusted=trusted)
            elif key not in data and not trusted and (key not in own or own[key].default is MISSING):
                raise InvalidValue((*here, key), "is missing")
    made = kind.make(**values) if isinstance(kind, Rules) else kind(**values)
    problem = made.problem() if hasattr(made, "problem") else None
    if problem:
        raise InvalidValue(path, problem)
    return made


@dataclass(frozen=True)
class _Slot:
    """One field of a record, and where it stands in a file."""

    name: str
    kind: Any
    default: Any
    """`MISSING` if a file must have it."""
    group: str = ""
    key: str = ""
    omitted: bool = False


@functools.cache
def _slots(kind: Any) -> tuple[_Slot, ...]:
    if isinstance(kind, Rules):
        default = None if kind.with_time else MISSING
        return tuple(_Slot(name, own, default, key=name) for name, own in kind.kinds.items())
    found, hints = [], get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        own: Any = hints[each.name]
        marks = get_args(own)[1:] if get_origin(own) is Annotated else ()
        place = next((mark for mark in marks if isinstance(mark, At)), At(""))
        found.append(_Slot(each.name, own, each.default, place.group, place.key or each.name, OMITTED in marks))
    return tuple(found)
