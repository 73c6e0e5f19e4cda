"""Profiles for people: one of them, two side by side, how well one fits this machine, and whether its claim holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from autotune.decoding import as_data
from autotune.knobs.settings import KNOB_NAMES
from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.result import verdict, view

if TYPE_CHECKING:
    from autotune.profiles.match import Match
    from autotune.tuning.check import CheckResult

CHECKED = {
    "holds": "holds",
    "fails": "does NOT hold here: tune again",
    "open": "inconclusive: give a longer --budget",
}
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


def diff(left: Profile, right: Profile, names: tuple[str, str] = ("left", "right")) -> str:
    """Return what differs as plain text; ``names`` head the columns."""
    one, other = _facts(left), _facts(right)
    pairs = ((name, one.get(name, "-"), other.get(name, "-")) for name in {**one, **other})
    rows = [(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]
    if not rows:
        return "no difference"
    table = formatting.plain(_table(("", *names), rows))
    note = "" if left.key == right.key else "\nMeasured on different machine types: rates do not compare."
    return f"{table}{note}"


def _facts(profile: Profile) -> dict[str, str]:
    """Return everything that two profiles are compared by, in words."""
    found = {
        "machine": profile.key,
        **{f"machine {name}": _words(fact) for name, fact in as_data(profile.machine)["facts"].items()},
        **{name: _words(version) for name, version in profile.software.items()},
        "target": profile.target.name,
        "device": profile.target.device,
        "recommended": profile.recommended,
        "baseline rate": formatting.rate(profile.baseline_rate, profile.target.unit),
    }
    found |= {f"baseline {knob}": formatting.value(value) for knob, value in profile.baseline.as_dict().items()}
    for name, result in profile.levels.items():
        found[f"{name} gain"] = verdict(profile, name)[0]
        found |= {f"{name} {knob}": formatting.value(value) for knob, value in result.settings.as_dict().items()}
    return found


def _words(fact: object) -> str:
    return ", ".join(map(str, fact)) or "none" if isinstance(fact, (list, tuple)) else formatting.value(fact)


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
