"""Profile files: read without trust, written in one step.

What is read is at most 64 KB of plain YAML that keeps every limit of the format. What cannot be read or written is a
`ProfileError`: what happened, in which file, what to do.

Plain YAML is one document of groups, lists and single values. A safe loader accepts, and `load` rejects: anchors and
aliases (a few lines can expand to gigabytes), tags, duplicate keys (the last would win silently), keys that are not
text, and deep nesting. Words keep their spelling: ``no`` is text and not false, ``1:30`` is text and not 90, ``010`` is
text and not 8, so that errors quote what was written. PyYAML splits the text, by libyaml if it has that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from autotune.decoding import InvalidValue, Keys, as_data, build, quote, shown
from autotune.errors import ProfileError, UsageError
from autotune.profiles import places
from autotune.profiles.format import MAX_NAME, SCHEMA, Profile
from autotune.profiles.places import reason_of
from autotune.version import VERSION

MAX_BYTES = 64 * 1024
MAX_DEPTH, MAX_ITEMS, MAX_TEXT = 12, 200, 500
PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PLAIN = (
    ("null", r"null|~|", ["n", "~", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(0|[1-9][0-9]{0,99})", list("-0123456789")),
    ("float", r"-?(0|[1-9][0-9]*)(\.[0-9]*([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)", list("-0123456789")),
)
"""What words without quotes can be, beside text, with their first letters: the core of YAML 1.2 that JSON also has."""
RETUNE = "Tune again to get a fresh one (autotune tune ...)."
WHICH = "See which profiles there are: autotune profiles list"
HEADER = """\
# Training settings measured by torch-autotune on one type of machine. Plain data: safe to read and to share.
#   start training with it    autotune run --profile {name} train.py
#   or inside a script        tuned = autotune.load("{name}")
#   look at it                autotune show {name}
"""
LISTS = ("failures", "not_offered", "warnings")
PUBLIC_PATHS = ("/dev/shm", "/proc", "/sys")
"""Paths that are the same on every machine; reasons of failures name them."""
COMMON_NAMES = {"root", "user", "localhost", "home", "cpu", "gpu", "amp", "max", "safe", "torch", "train", "data"}
_PATH = re.compile(r"(?<![\w/.])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\",:;()\[\]<>|]+)")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")


def read(path: Path | str) -> Profile:
    """Return the profile in the file ``path``."""
    if Path(path).suffix == ".py":
        raise ProfileError(f"{path}: is a script, not a profile. {WHICH}")
    try:
        return parse(places.read_plain(Path(path), MAX_BYTES + 1), str(path))
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file. {WHICH}") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({reason_of(error)}).") from error


def parse(content: bytes | str, name: str) -> Profile:
    """Return the profile in ``content``; errors call it ``name``."""
    text = ""
    try:
        text = _text(content)
        data = load(text)
        _check_schema(data)
        profile: Profile = build(Profile, data)
        return profile
    except InvalidValue as refused:
        line = _line_of(text, refused.path)
        place = f"line {line}: " if line else ""
        found = re.search(r"(?m)^  tool: '?([0-9][0-9a-z.+]{0,39})'?$", text)
        by = f" Version {found[1]} wrote it, this is {VERSION}." if found and found[1] != VERSION else ""
        advice = f"Correct the file, update torch-autotune, or tune again.{by}"
        raise ProfileError(f"{name}: {place}{refused}\n{advice}") from None
    except Problem as problem:
        raise ProfileError(f"{name}: {problem}. {RETUNE}") from None


def _text(content: bytes | str) -> str:
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_BYTES:
        raise Problem(f"is larger than {MAX_BYTES // 1024} KB, which no profile is")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(f"is not UTF-8 text (byte {error.start})") from None


def _check_schema(data: Any) -> None:
    if not isinstance(data, dict):
        raise Problem("is empty" if data is None else "is not a profile")
    if "schema" not in data:
        raise Problem("has no key 'schema', so it is no profile")
    if data["schema"] != SCHEMA:
        raise Problem(f"schema: {quote(data['schema'])} is not {SCHEMA}: another version or program wrote it")


def dump(profile: Profile, name: str = "PROFILE") -> str:
    """Return the file's text, header included. The same profile always gives the same text."""
    header, data = HEADER.format(name=public(name, (), MAX_NAME)), to_data(profile)
    text = header + dump_plain(data)
    for most in (50, 10, 0):  # the settings matter more than the last of a thousand failures
        if len(text.encode()) <= MAX_BYTES:
            break
        data["evidence"].update({key: data["evidence"][key][:most] for key in LISTS})
        text = header + dump_plain(data)
    parse(text, name)
    return text


def to_data(profile: Profile) -> dict[str, Any]:
    """Return what the file (and ``--json``) holds: plain data in the file's order, with private names taken out."""
    data: dict[str, Any] = as_data(profile)
    names = private_names()
    data["target"]["name"] = public(profile.target.name, (), MAX_NAME) or "target"
    data["software"] = _public_data(data["software"], names)
    data["evidence"] = _public_data(data["evidence"], names)
    for level in data["levels"].values():
        level["note"] = public(level["note"], names)
    for key in LISTS:
        data["evidence"][key] = data["evidence"][key][:MAX_ITEMS]
    return data


def write(path: Path | str, profile: Profile) -> Path:
    """Write ``profile`` to ``path`` in one step: readers see the old file or the new one, never a part.

    A partial profile (of an interrupted run) only replaces another partial one. Otherwise it is written beside the
    file, to ``NAME.partial.yaml``. Returns where the profile is now.
    """
    path = Path(path)
    while profile.evidence.partial and os.path.lexists(path):
        before = _there(path)
        if before is not None and before.evidence.partial:
            break
        path = path.with_name(f"{path.stem}.partial{path.suffix}")
    places.write_whole(path, dump(profile, path.name))
    return path


def check_target(path: Path, target: str) -> None:
    """Raise `UsageError` if the file ``path`` is the profile of another ``target``: it is not replaced by accident."""
    there = _there(path)
    if there is not None and there.target.name != target:
        other = f"is the profile of {quote(there.target.name)}, not of {quote(target)}"
        raise UsageError(f"{path}: {other}. Name another file, or remove it")


def save(path: Path, profile: Profile, script: Path | None = None) -> tuple[Path, str]:
    """Write ``profile`` to ``path``; else to the user's folder for the project of the ``script``, else to a temporary
    one.

    Returns where it is, and what to say about that: why it is not at ``path``, or that it replaced another model's.
    """
    replaced = _replaced(path, profile)
    try:
        where = write(path, profile)
        return where, replaced if where == path else ""
    except ProfileError as error:
        first = error
    for make in (functools.partial(places.user_folder, script), places.temporary_folder):
        with contextlib.suppress(ProfileError, OSError):
            folder = make()
            if folder is not None:
                return write(places.default_path(profile.key, profile.target.name, folder), profile), str(first)
    raise ProfileError(f"{first}. {places.ADVICE}")


def _replaced(path: Path, profile: Profile) -> str:
    """Return a line if what is at ``path`` is of another model or data set, as of one script with other arguments; or
    if it is proven to gain and ``profile`` is not: then it is kept in the user's cache."""
    there = None if profile.evidence.partial else _there(path)
    targets = (there.target, profile.target) if there is not None else ()
    if there is not None and there.gain > 1 == profile.gain:
        with contextlib.suppress(ProfileError):
            kept = write(places.journal_of(path).with_suffix(".before.yaml"), there)
            old = f"The profile that was here, proven {there.gain:.2f}x, is kept in {kept}"
            return f"{old}: autotune check says whether it still holds."
    sizes = [f"{each.parameters} parameters and {each.samples or 'any number of'} samples" for each in targets]
    if len(set(sizes)) < 2:
        return ""
    return f"The profile of a training with {sizes[0]} was replaced by one with {sizes[1]}; --name keeps both."


def _there(path: Path) -> Profile | None:
    """Return the profile in the file ``path``; None if there is none, or a broken one."""
    try:
        return read(path)
    except ProfileError:
        return None


def private_names() -> tuple[str, ...]:
    """Return this machine's host name and this user's names, those that are long enough to be recognised in a text."""
    import getpass  # who reads does without
    import platform

    found = {platform.node(), platform.node().split(".")[0]}
    with contextlib.suppress(OSError, KeyError, RuntimeError, ImportError):  # a container's user may have no name
        found |= {getpass.getuser(), Path.home().name}
    names = (name for name in found if len(name) >= 3 and name.lower() not in COMMON_NAMES)
    return tuple(sorted(names, key=len, reverse=True))


def public(text: str, private: tuple[str, ...], most: int = MAX_TEXT) -> str:
    """Return ``text`` as one printable line, cut to ``most`` characters, without paths, UUIDs and ``private`` names."""
    text = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    text = _UUID.sub("<uuid>", text)
    text = _PATH.sub(lambda found: found[0] if found[0].startswith(PUBLIC_PATHS) else "<path>", text)
    for name in private:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<name>", text)
    return text if len(text) <= most else text[: most - 3] + "..."


def _public_data(value: Any, private: tuple[str, ...]) -> Any:
    """Return ``value`` with every text in it made `public`."""
    if isinstance(value, dict):
        return {key: _public_data(item, private) for key, item in value.items()}
    if isinstance(value, list):
        return [_public_data(item, private) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else public(str(value), private)


# YAML -----------------------------------------------------------------------------------------------------------------


class Problem(ValueError):
    """Text that is not plain YAML; the message begins with the line."""


class PlainLoader(PARSER):  # type: ignore[misc, valid-type]
    """Reads numbers, true, false and null as YAML 1.2 and JSON do; every other word is text. No key stands twice."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Return a group of keys."""
        seen: set[str] = set()
        for key, _value in node.value:
            if not isinstance(key, yaml.ScalarNode) or not key.tag.endswith(":str"):
                raise _problem(key, "a key is not plain text")
            if key.value in seen:
                raise _problem(key, f"the key {ascii(key.value)[:MAX_TEXT]} is there twice")
            seen.add(key.value)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


class PlainDumper(yaml.SafeDumper):
    """Quotes text that `load` would read as a number: ``0E0`` is text to PyYAML and a number to YAML 1.2."""


for _tag, _pattern, _first in PLAIN:
    for _kind in (PlainLoader, PlainDumper):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def load(text: str) -> Any:
    """Return the one document in ``text`` as plain data. Raise `Problem` for what is not YAML, or not plain."""
    try:
        _check_features(text)
        return yaml.load(text, Loader=PlainLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise Problem(f"{line}{error.problem}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise Problem(f"is not plain YAML ({ascii(str(error).splitlines()[0])[1:-1][:120]})") from None


def dump_plain(data: Mapping[str, Any]) -> str:
    """Return ``data`` in block style, keys in the order given, one line per value."""
    return yaml.dump(
        data, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False
    )


def _check_features(text: str) -> None:
    """Raise `Problem` for what is not plain. Events come one by one, so that nothing expands and nothing recurses."""
    left: list[int] = []  # nodes that each group and list that is open may still have
    events: Iterator[Any] = yaml.parse(text, Loader=PARSER)
    documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise _problem(event, "a second document is not allowed")
        if isinstance(event, yaml.CollectionEndEvent):
            left.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _problem(event, "anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise _problem(event, "tags are not allowed")
        if left:
            left[-1] -= 1
            if left[-1] < 0:
                raise _problem(event, f"this group has more than {MAX_ITEMS} entries")
        if isinstance(event, yaml.ScalarEvent):
            if not event.value.isprintable():
                raise _problem(event, "holds control or other unprintable characters")
            if len(event.value) > MAX_TEXT:
                raise _problem(event, f"{shown(event.value)!r} is longer than {MAX_TEXT} characters")
            continue
        left.append(MAX_ITEMS if isinstance(event, yaml.SequenceStartEvent) else 2 * MAX_ITEMS)  # keys and values
        if len(left) > MAX_DEPTH:
            raise _problem(event, f"nested deeper than {MAX_DEPTH} levels")


def _line_of(text: str, path: Keys) -> int:
    """Return the line (from 1 on) of the key or entry at ``path``; of its group if it is missing."""
    node: Any = yaml.compose(text, Loader=PlainLoader)
    line = 0
    for part in path:
        entries = dict(enumerate((value, value) for value in node.value))
        if isinstance(node, yaml.MappingNode):
            entries = {key.value: (key, value) for key, value in node.value}
        if part not in entries:
            break
        key, node = entries[part]
        line = key.start_mark.line + 1
    return line


def _problem(at: Any, words: str) -> Problem:
    return Problem(f"line {at.start_mark.line + 1}: {words}")
