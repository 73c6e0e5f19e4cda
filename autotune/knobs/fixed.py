"""Knobs that the user fixes with ``--fix``, and the checks of knobs' names and values that people write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.knobs.constraints import crowding
from autotune.knobs.knob import Word
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME, KNOB_NAMES
from autotune.near import did_you_mean
from autotune.probes.facts import Inventory

CROWDING = ("processes", "threads", "num_workers")
"""Knobs of which a machine bears only so much, whatever the task."""


def read_fixed(text: str) -> tuple[str, Any]:
    """``knob=value`` with the value read as Python would: whole number, true/false/none, else a word.

    Raises:
        UsageError: there is no ``=``.
    """
    name, _equals, value = text.partition("=")
    if not (name.strip() and value.strip()):
        raise UsageError(f"--fix {text!r}: write knob=value, for example --fix num_workers=2")
    words = {"true": True, "false": False, "none": None}
    number = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
    return name.strip(), words.get(value.lower(), number)


def check_names(names: Iterable[str], option: str) -> None:
    """Raise `UsageError` if one of ``names``, which the user gave to ``option``, is no knob."""
    for name in names:
        if not name:
            raise UsageError(f"{option}: name at least one knob, such as threads")
        if name not in KNOB_NAMES:
            hint = did_you_mean(name, KNOB_NAMES) or f"; knobs are: {', '.join(KNOB_NAMES)}"
            raise UsageError(f"{option} {name}: no such knob{hint}")


def check_fixed(fixed: Mapping[str, Any]) -> None:
    """Raise `UsageError` if ``fixed`` name no knob, or a value that the knob never takes."""
    check_names(fixed, "--fix")
    for name, value in fixed.items():
        wanted = BY_NAME[name].why_not(value)
        if wanted is not None:
            kind = BY_NAME[name].kind
            hint = did_you_mean(str(value), kind.values) if isinstance(kind, Word) else ""
            raise UsageError(f"--fix {name}={value}: must be {wanted}{hint}")


def check_fixed_on(inventory: Inventory, fixed: Mapping[str, Any]) -> None:
    """Raise `UsageError` if ``fixed`` alone are more than this machine bears: no settings could hold them."""
    given = {name: fixed[name] for name in CROWDING if name in fixed}
    reason = crowding(Settings(**given), inventory)
    if reason is not None:
        written = " ".join(f"--fix {name}={value}" for name, value in given.items())
        raise UsageError(f"{written}: {reason}. That is oversubscription: nothing would be left to search")
