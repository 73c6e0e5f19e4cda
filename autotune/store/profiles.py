"""Reading and writing profile files. Every failure is a `ProfileError`: what happened, in which file, what to do."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from autotune.core.errors import ProfileError
from autotune.core.profile import READABLE, SCHEMA, Profile
from autotune.store import atomic, plain_file, redaction, yaml_text
from autotune.store.fields import MAX_ITEMS, MAX_NAME, MAX_NUMBER, MAX_TEXT, look_alike
from autotune.store.schema import KEYS, from_data
from autotune.store.validation import describe, quote

MAX_BYTES = 64 * 1024
RETUNE = "Tune again to get a fresh one (autotune tune ...)."
HEADER = """\
# Training settings measured by torch-autotune on one type of machine. Plain data: safe to read and to share.
#   start training with it    autotune run --profile {name} train.py
#   or inside a script        tuned = autotune.load("{name}")
#   look at it                autotune show {name}
"""


def read(path: Path | str) -> Profile:
    """The profile in the file ``path``.

    Raises:
        ProfileError: no such file, not readable, too large, or not a valid profile.
    """
    path = Path(path)
    return parse(_text(path), str(path))


def parse(text: str, name: str) -> Profile:
    """The profile in ``text``; ``name`` is what errors call it.

    Raises:
        ProfileError: not YAML, another schema, or a key that is missing, unknown or out of range.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise _too_large(name)
    data = _load(text, name)
    if not isinstance(data, dict):
        raise ProfileError(f"{name}: {'is empty' if data is None else 'is not a profile'}. {RETUNE}")
    _check_schema(data.get("schema"), name)
    try:
        return from_data(data)
    except ValidationError as error:
        lines = [f"{name}: {line}" for line in describe(error, yaml_text.lines(text), KEYS).splitlines()]
        raise ProfileError("\n".join([*lines, f"Correct the file, or tune again. Format: {SCHEMA}."])) from None


def decoded(raw: bytes, name: str) -> str:
    """The text of a profile's file; ``name`` is what errors call it.

    Raises:
        ProfileError: too large, or no text.
    """
    if b"\0" in raw and not raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ProfileError(f"{name}: is a binary file, not a profile.")
    if len(raw) > MAX_BYTES:
        raise _too_large(name)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProfileError(f"{name}: is not UTF-8 text (byte {error.start}). {RETUNE}") from None


def dump(profile: Profile, name: str = "PROFILE") -> str:
    """The file's text, header included. The same profile always gives the same text.

    Raises:
        ProfileError: the profile breaks its own schema.
    """
    header = HEADER.format(name=redaction.redact(name, (), MAX_NAME))
    data = to_data(profile)
    text = header + yaml_text.dump(data)
    for most in (50, 10, 0):  # the settings matter more than the last of a thousand failures
        if len(text.encode()) <= MAX_BYTES:
            break
        data["evidence"].update({key: data["evidence"][key][:most] for key in ("failures", "not_offered", "warnings")})
        text = header + yaml_text.dump(data)
    parse(text, name)
    return text


def write(path: Path | str, profile: Profile) -> Path:
    """Write ``profile`` to ``path`` in one step: readers see the old file or the new one, never a part.

    A partial profile (of an interrupted run) only replaces another partial one. Otherwise it is written beside the
    file, to ``NAME.partial.yaml``.

    Returns:
        Where the profile is now.

    Raises:
        ProfileError: the folder cannot be made or written.
    """
    path = Path(path)
    text = dump(profile, path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.locked(path.parent):
            place = _beside(path) if profile.evidence.partial else path
            atomic.replace(place, text if place == path else dump(profile, place.name))
    except OSError as error:
        raise _not_written(path, error) from error
    return place


def write_text(path: Path, text: str, *, private: bool = False) -> Path:
    """Write ``text`` to ``path`` in one step, in a folder that is made where it is missing. Returns ``path``.

    Raises:
        ProfileError: the folder cannot be made or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        atomic.replace(path, text, private=private)
    except OSError as error:
        raise _not_written(path, error) from error
    return path


def to_data(profile: Profile) -> dict[str, Any]:
    """What the file (and ``--json``) holds: plain data in the file's order, finite, with private names taken out."""
    data, names = profile.as_dict(), redaction.private_names()
    data["machine"] = {"key": profile.key, "facts": _plain(profile.machine["facts"])}
    data["software"] = {key: redaction.redact_value(value, names, MAX_TEXT) for key, value in data["software"].items()}
    name = redaction.redact(profile.target.name, (), MAX_NAME) or "target"
    data["target"]["name"] = name if look_alike(name) is None else name.encode("ascii", "replace").decode()
    for level in data["levels"].values():
        level["note"] = redaction.redact(level["note"], names, MAX_TEXT)
        level["speedup"]["high"] = _upper_end(level["speedup"]["high"])
    evidence = data["evidence"]
    for item in (*evidence["failures"], *evidence["not_offered"]):
        item["reason"] = redaction.redact(item["reason"], names, MAX_TEXT)
    for item in evidence["failures"]:
        item["changed"] = {key: redaction.redact_value(v, names, MAX_TEXT) for key, v in item["changed"].items()}
    for item in evidence["not_offered"]:
        item["value"] = redaction.redact_value(item["value"], names, MAX_TEXT)
    evidence["warnings"] = [redaction.redact(text, names, MAX_TEXT) for text in evidence["warnings"]]
    for key in ("failures", "not_offered", "warnings"):
        evidence[key] = evidence[key][:MAX_ITEMS]
    return data


def _text(path: Path) -> str:
    try:
        return decoded(plain_file.read(path, MAX_BYTES), str(path))
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file. See which profiles there are: autotune profiles list") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({_reason(error)}).") from error


def _load(text: str, name: str) -> Any:
    try:
        return yaml_text.load(text)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise ProfileError(f"{name}: {_yaml_reason(error)}. {RETUNE}") from None


def _yaml_reason(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return f"is not plain YAML ({str(error).splitlines()[0][:120]})"


def _check_schema(schema: Any, name: str) -> None:
    if schema in READABLE:
        return
    if schema is None:
        raise ProfileError(f"{name}: has no key 'schema', so it is no profile. {RETUNE}")
    family, _, version = str(schema).partition("/")
    if family == SCHEMA.partition("/")[0] and version.isdecimal() and int(version[:9]) > len(READABLE):
        raise ProfileError(
            f"{name}: schema: {quote(schema)} is newer than {SCHEMA}. Upgrade torch-autotune to read it."
        )
    raise ProfileError(f"{name}: schema: {quote(schema)} is not {SCHEMA}. {RETUNE}")


def _beside(path: Path) -> Path:
    """``path``, or the next name like it that is free or holds the profile of an interrupted run."""
    while path.exists() and not _interrupted(path):
        path = path.with_name(f"{path.stem}.partial{path.suffix}")
    return path


def _interrupted(path: Path) -> bool:
    """Whether ``path`` is a partial profile. A file that cannot be read is kept."""
    try:
        return read(path).evidence.partial
    except ProfileError:
        return False


def _not_written(path: Path, error: OSError) -> ProfileError:
    return ProfileError(f"{path}: cannot be written ({_reason(error)})")


def _plain(facts: Any) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in dict(facts).items()}


def _upper_end(value: float) -> float | None:
    """None for an end that is open, or beyond what a profile may hold, which says as little."""
    return value if value <= MAX_NUMBER else None


def _too_large(name: str) -> ProfileError:
    return ProfileError(f"{name}: is larger than {MAX_BYTES // 1024} KB, which no profile is. {RETUNE}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
