"""Levels: what tuning may change, what each may take of the time, and the sentences on what it did not bring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """One level. It includes the levels above it in the table, and a knob names the first level at which it may move.

    Attributes:
        name: in profiles, options and reports.
        shares: of the searching time, in the first and in the second pass, against those of the other levels.
        nothing_faster: what is said if it was tried and brought nothing.
        not_tried: what is said if nothing of what it is named for was tried.
        all_failed: what is said if none of that ran.
        known_for: the attribute of `Settings` that it is named for; None if any change will do.
        any_batch: True if the global batch may be another than the user's.
    """

    name: str
    shares: tuple[float, float]
    nothing_faster: str
    not_tried: str
    all_failed: str
    known_for: str | None = None
    any_batch: bool = False

    @property
    def below(self) -> tuple[str, ...]:
        """Return the names of the levels that it includes beside itself, lowest first."""
        names = tuple(LEVELS)
        return names[: names.index(self.name)]

    def includes(self, other: Level) -> bool:
        """Return True if this level allows everything that ``other`` allows."""
        return self.name not in other.below


SAFE = Level(
    "safe",
    (0.35, 0.12),
    nothing_faster="nothing that was tried is faster than your settings",
    not_tried="no other settings of this level were tried",
    all_failed="all that was tried failed",
)
AMP = Level(
    "amp",
    (0.2, 0.07),
    nothing_faster="mixed precision brought no gain",
    not_tried="mixed precision was not tried",
    all_failed="mixed precision was tried and failed",
    known_for="precision",
)
MAX = Level(
    "max",
    (0.2, 0.06),
    nothing_faster="another batch size brought no gain",
    not_tried="no other batch size was tried",
    all_failed="other batch sizes were tried and failed",
    known_for="global_batch",
    any_batch=True,
)
LEVELS = {level.name: level for level in (SAFE, AMP, MAX)}
"""All levels by name, lowest first. Profiles that were written before a level existed lack it."""
LOWEST, *_, HIGHEST = LEVELS
