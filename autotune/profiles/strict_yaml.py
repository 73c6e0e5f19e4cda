"""YAML without its surprises: one plain document of groups, lists and single values.

A safe loader accepts, and this one rejects: anchors and aliases (a few lines can expand to gigabytes), tags, duplicate
keys (the last would win silently), keys that are not text, and deep nesting. Words keep their spelling: ``no`` is text
and not false, ``1:30`` is text and not 90, ``010`` is text and not 8, so that errors quote what was written.

PyYAML reads the letters, by libyaml if it has that; what they mean is decided here, event by event.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from autotune.profiles.records import Path, shown

MAX_DEPTH = 12
MAX_ITEMS = 200
MAX_TEXT = 500
PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PLAIN = (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]{0,99})", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]*([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)", list("-0123456789")),
)
"""What words without quotes can be, beside text, with their first letters: the core of YAML 1.2 that JSON also has."""


class Problem(ValueError):
    """Text that is not plain YAML; the message begins with the line."""


class PlainDumper(yaml.SafeDumper):
    """Quotes text that `load` would read as a number: ``0E0`` is text to PyYAML and a number to YAML 1.2."""


for _tag, _pattern, _first in PLAIN:
    PlainDumper.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def load(text: str) -> tuple[Any, dict[Path, int]]:
    """Return the one document in ``text`` as plain data, and the line (from 1 on) of each key and entry by its path.

    Raises:
        Problem: not YAML, or YAML with a rejected feature.
    """
    try:
        return _Document(text).read()
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise Problem(f"{line}{error.problem}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise Problem(f"is not plain YAML ({ascii(str(error).splitlines()[0])[1:120]})") from None


def dump(data: Mapping[str, Any]) -> str:
    """Return ``data`` in block style, keys in the order given, one line per value."""
    return yaml.dump(
        data, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False
    )


class _Document:
    """Builds plain data from YAML's events."""

    def __init__(self, text: str) -> None:
        self._events: Any = yaml.parse(text, Loader=PARSER)
        self._lines: dict[Path, int] = {}

    def read(self) -> tuple[Any, dict[Path, int]]:
        """Return the data, and the line of every key and entry."""
        found = None
        next(self._events)  # the stream's start
        event = next(self._events)
        if isinstance(event, yaml.DocumentStartEvent):
            found = self._value(next(self._events), ())
            next(self._events)  # the document's end
            event = next(self._events)
        if isinstance(event, yaml.DocumentStartEvent):
            raise _problem(event, (), "a second document is not allowed")
        return found, self._lines

    def _value(self, event: Any, path: Path) -> Any:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _problem(event, path, "anchors and aliases are not allowed")
        if event.tag is not None:
            raise _problem(event, path, "tags are not allowed")
        if len(path) >= MAX_DEPTH:
            raise _problem(event, path, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.ScalarEvent):
            return _single(event, path)
        return self._list(path) if isinstance(event, yaml.SequenceStartEvent) else self._group(path)

    def _list(self, path: Path) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            _check_count(found, event, path)
            here = (*path, len(found))
            self._lines[here] = _line(event)
            found.append(self._value(event, here))
        return found

    def _group(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            _check_count(found, event, path)
            key = self._value(event, (*path, "")) if isinstance(event, yaml.ScalarEvent) else None
            if not isinstance(key, str):
                raise _problem(event, path, "a key is not plain text")
            if key in found:
                raise _problem(event, path, f"the key {ascii(key)[:MAX_TEXT]} is there twice")
            here = (*path, key)
            self._lines[here] = _line(event)
            found[key] = self._value(next(self._events), here)
        return found


def _single(event: Any, path: Path) -> Any:
    """Return text, a number, true, false or null, as YAML 1.2 and JSON read it."""
    text: str = event.value
    if not text.isprintable():
        raise _problem(event, path, "holds control or other unprintable characters")
    if len(text) > MAX_TEXT:
        raise _problem(event, path, f"{shown(text)!r} is longer than {MAX_TEXT} characters")
    kind = next((tag for tag, pattern, _ in PLAIN if re.fullmatch(pattern, text)), "") if event.implicit[0] else ""
    if kind in ("int", "float"):
        return int(text) if kind == "int" else float(text)
    return {"null": None, "bool": text == "true"}.get(kind, text)


def _check_count(found: Any, event: Any, path: Path) -> None:
    if len(found) >= MAX_ITEMS:
        raise _problem(event, path, f"has more than {MAX_ITEMS} entries")


def _problem(event: Any, path: Path, words: str) -> Problem:
    place = ".".join(filter(None, map(shown, path)))
    return Problem(f"line {_line(event)}: {f'{place}: ' if place else ''}{words}")


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
