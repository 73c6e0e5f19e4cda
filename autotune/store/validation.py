"""pydantic's errors as messages: the dotted key, the value as written, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import ValidationError

from autotune.core.near import did_you_mean

MAX_ERRORS = 5
MAX_QUOTE = 60

Places = Mapping[tuple[str | int, ...], int]
Words = Callable[[str, Mapping[str, Any]], str]

SENTENCES: dict[str, Words] = {
    "missing": lambda _value, _context: "is missing",
    "extra_forbidden": lambda _value, _context: "is no key of this format",
    "less_than_equal": lambda value, context: f"{value} is above {context['le']}",
    "less_than": lambda value, context: f"{value} is not below {context['lt']}",
    "greater_than_equal": lambda value, context: f"{value} is below {context['ge']}",
    "greater_than": lambda value, context: f"{value} is not above {context['gt']}",
    "finite_number": lambda value, _context: f"{value} is not a finite number",
    "int_type": lambda value, _context: f"{value} is not a whole number",
    "float_type": lambda value, _context: f"{value} is not a number",
    "bool_type": lambda value, _context: f"{value} is not true or false",
    "string_type": lambda value, _context: f"{value} is not text",
    "string_too_long": lambda value, context: f"{value} is longer than {context['max_length']} characters",
    "string_too_short": lambda value, _context: f"{value} is empty",
    "string_pattern_mismatch": lambda value, _context: f"{value} is not a plain name (a-z, 0-9, dots, dashes)",
    "literal_error": lambda value, context: f"{value} is not one of {context['expected']}",
    "model_type": lambda value, _context: f"{value} is not a group of keys",
    "dict_type": lambda value, _context: f"{value} is not a group of keys",
    "list_type": lambda value, _context: f"{value} is not a list",
    "too_long": lambda _value, context: f"has more than {context['max_length']} entries",
    "value_error": lambda value, context: f"{value} {context['error']}",
}


def describe(error: ValidationError, places: Places, known: Collection[str]) -> str:
    """One line per finding, ``line 31: levels.amp.settings.threads: 1000000000 is above 4096``; the first few only.

    Args:
        error: what pydantic found.
        places: the line of each key, by its path.
        known: names of keys, to tell what a misspelt one was meant to be.
    """
    findings = sorted(error.errors(include_url=False), key=lambda finding: finding["type"] == "missing")
    lines = [_sentence(finding, places, known) for finding in findings[:MAX_ERRORS]]
    if len(findings) > MAX_ERRORS:
        lines.append(f"... and {len(findings) - MAX_ERRORS} more")
    return "\n".join(lines)


def quote(value: Any) -> str:
    """``value`` as the file had it, cut short; letters that are not ASCII are escaped: they may look like others."""
    if isinstance(value, (dict, list)):
        return f"a {'group of keys' if isinstance(value, dict) else 'list'}"
    text = {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else None
    text = text or ascii(value)
    return text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE] + "..."


def shown_key(part: str | int) -> str:
    """One part of a key, cut short; letters that may look like others are escaped."""
    text = ascii(part)[1:-1] if isinstance(part, str) else str(part)
    return text if len(text) <= MAX_QUOTE else text[:MAX_QUOTE] + "..."


def _sentence(finding: Any, places: Places, known: Collection[str]) -> str:
    line = places.get(finding["loc"]) or places.get(finding["loc"][:-1])  # of what is missing, that of its group
    place = f"line {line}: " if line is not None else ""
    hint = did_you_mean(str(finding["loc"][-1]), known) if finding["type"] == "extra_forbidden" else ""
    return f"{place}{_finding(finding)}{hint}"


def _finding(finding: Any) -> str:
    key = ".".join(shown_key(part) for part in finding["loc"])
    words = SENTENCES.get(finding["type"])
    context = finding.get("ctx", {})
    value = quote(finding["input"])
    if finding["type"] == "value_error" and isinstance(finding["input"], dict):
        return f"{key}: {context['error']}"
    return f"{key}: {words(value, context) if words else finding['msg']}"
