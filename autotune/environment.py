"""Reads the user's words from the environment: which profile, which level, or none at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PROFILE, LEVEL, DISABLE = "AUTOTUNE_PROFILE", "AUTOTUNE_LEVEL", "AUTOTUNE_DISABLE"
SCRIPT_VARIABLE = "AUTOTUNE_SCRIPT"
"""What `autotune run` hands to the process of an unmodified script: see `autotune.scripts.order`."""
NO = ("", "0", "false", "no", "off")
"""What people write for no, in any case; everything else is yes."""


@dataclass(frozen=True)
class Overrides:
    """The user's words in the environment.

    Attributes:
        profile: path of the profile to apply; None where unset or empty.
        level: likewise.
        disabled: training runs as it is, without a profile.
    """

    profile: str | None
    level: str | None
    disabled: bool


def overrides(environment: Mapping[str, str]) -> Overrides:
    """Return what ``environment`` says of profiles."""
    disabled = environment.get(DISABLE, "").strip().lower() not in NO
    return Overrides(environment.get(PROFILE) or None, environment.get(LEVEL) or None, disabled)
