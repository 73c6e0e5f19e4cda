"""Profiles for people: one of them, two side by side, how well one fits this machine, and whether its claim holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from autotune.decoding import as_data
from autotune.knobs.settings import KNOB_NAMES
from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.result import view

if TYPE_CHECKING:
    from autotune.profiles.match import Match
    from autotune.tuning.check import CheckResult

NOT_COMPARED = ("written", "evidence", "compared", "low", "high", "confidence", "rounds", "note", "verdict")
"""Groups and keys of a profile that `diff` leaves out."""
CHECKED = {"holds": "holds", "fails": "does NOT hold here: tune again", "open": "inconclusive: give a longer --budget"}
"""By the value of `autotune.tuning.check.Claim`."""


def show(profile: Profile) -> str:
    """Return everything that the profile holds, knob by knob, as plain text."""
    columns = [profile.baseline, *(result.settings for result in profile.levels.values())]
    rows = [(knob, *(formatting.value(getattr(each, knob)) for each in columns)) for knob in KNOB_NAMES]
    knobs = formatting.plain(_table(("knob", "baseline", *profile.levels), rows, wrap=False))
    measured_on = formatting.section("Measured", measured(profile))
    return "\n".join(view(profile, measured_on, ["", *knobs.splitlines()]))


def measured(profile: Profile) -> list[str]:
    """Return when the profile was made, by which versions and on which device, and the size of the target."""
    target, written = profile.target, profile.written
    made = [f"{written.date}, torch-autotune {written.tool}"] if written else []
    made += [f"{name} {value}" for name, value in profile.software.items() if value is not None]
    samples = "an unknown number of samples" if target.samples is None else f"{target.samples} samples"
    return [", ".join([*made, f"on {target.device}"]), f"model of {target.parameters} parameters, {samples}"]


def listed(profile: Profile) -> str:
    """Return the words for one profile of a list."""
    written = f", {profile.written.date}, torch-autotune {profile.written.tool}" if profile.written else ""
    return f"{profile.target.name} on {profile.key}{written}"


def differences(left: Profile, right: Profile) -> dict[str, tuple[Any, Any]]:
    """Return the values on both sides of all that differs but the evidence, by key in the file."""
    one, other = (dict(_flat(as_data(each))) for each in (left, right))
    pairs = {key: (one.get(key), other.get(key)) for key in {**one, **other}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _flat(data: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping) and key not in NOT_COMPARED:
            yield from _flat(value, f"{above}{key}.")
        elif key not in NOT_COMPARED:
            yield f"{above}{key}", value


def diff(left: Profile, right: Profile, names: tuple[str, str] = ("left", "right")) -> str:
    """Return what differs as plain text; ``names`` head the columns."""
    rows = [(key, *map(_words, pair)) for key, pair in differences(left, right).items()]
    if not rows:
        return "no difference"
    note = "" if left.key == right.key else "\nMeasured on different machine types: rates do not compare."
    return f"{formatting.plain(_table(('', *names), rows))}{note}"


def _words(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return formatting.number(value) if isinstance(value, float) else formatting.value(value)


def matched(best: Match | None, notes: Sequence[str]) -> str:
    """Return which profile fits and how well; if there is none, the first of the ``notes`` says so."""
    lines = list(notes)
    if best is not None:
        lines = [f"{best.source} ({best.verdict})", *filter(None, [best.sentence]), *lines]
    return "\n  ".join(lines)


def checked(result: CheckResult) -> str:
    """Return one line: the claim, what was measured today, and whether it holds."""
    claim, now = result.claimed, result.measured
    return (
        f"level {result.level}: claimed {claim.value:.2f}x ({claim.low:.2f} to {claim.high:.2f}),"
        f" now {now.value:.2f}x ({now.low:.2f} to {now.high:.2f}, {now.rounds} rounds): {CHECKED[result.verdict.value]}"
    )


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, wrap: bool = True) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column), overflow="fold", no_wrap=not wrap)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
