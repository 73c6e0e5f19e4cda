"""YAML without its surprises: one plain document of groups, lists and single values.

PyYAML's safe loader accepts, and this one rejects: anchors and aliases (a few lines can expand to gigabytes), merge
keys, tags, duplicate keys (the last would win silently), keys that are not text, deep nesting (RecursionError). Words
keep their spelling: ``no`` is text and not false, ``1:30`` is text and not 90, ``010`` is text and not 8, so that
errors quote what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

MAX_DEPTH = 12
MAX_KEY = 120
"""Letters of a key in a message."""


class PlainLoader(yaml.SafeLoader):
    """Builds plain data from the core of YAML 1.2 that JSON also has."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own habit

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._path: list[str] = []

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """One node, unless it is of a kind that profiles do not use."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self._path.append(_part(index))
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._refusal("anchors and aliases are not allowed", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise self._refusal("tags are not allowed", event.start_mark)
        if len(self._path) > MAX_DEPTH:
            raise self._refusal(f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        node = super().compose_node(parent, index)
        self._path.pop()
        return node

    def _refusal(self, problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
        """``problem``, with the key at which it is."""
        key = ".".join(filter(None, self._path))
        return yaml.MarkedYAMLError(None, None, f"{key[:MAX_KEY]}: {problem}" if key else problem, mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A group of keys, each of them text and there once."""
        seen: set[str] = set()
        for key, _value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(None, None, "a key is not plain text", key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(None, None, f"the key {key.value[:60]!r} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _part(index: Any) -> str:
    """One part of a key's path: what `compose_node` is told of its place."""
    if isinstance(index, yaml.ScalarNode):
        return ascii(index.value)[1:-1]
    return str(index) if isinstance(index, int) else ""


class PlainDumper(yaml.SafeDumper):
    """Quotes text that `PlainLoader` would read as a number: ``0E0`` is text to PyYAML and a number to YAML 1.2."""


for _tag, _pattern, _first in (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]{0,99})", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]*([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)", list("-0123456789")),
):
    for _side in (PlainLoader, PlainDumper):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def load(text: str) -> Any:
    """The one document in ``text`` as plain data.

    Raises:
        yaml.YAMLError: not YAML, or YAML with a rejected feature; the text names line and column.
    """
    loader = PlainLoader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def lines(text: str) -> dict[tuple[str | int, ...], int]:
    """The line, from 1 on, of every key and list entry in ``text``, by its path; of a document that `load` accepts."""
    loader = PlainLoader(text)
    try:
        return dict(_places(loader.get_single_node(), ()))
    finally:
        loader.dispose()


def _places(node: yaml.Node | None, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], int]]:
    inner: Iterable[tuple[str | int, yaml.Node, yaml.Node]] = ()
    if isinstance(node, yaml.MappingNode):
        inner = ((key.value, key, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        inner = ((index, value, value) for index, value in enumerate(node.value))
    for name, marked, value in inner:
        yield (*path, name), marked.start_mark.line + 1
        yield from _places(value, (*path, name))


def dump(data: Mapping[str, Any]) -> str:
    """Block style, keys in the order given, one line per value."""
    return yaml.dump(
        data, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False
    )
