"""Profiles for people: one of them, two side by side, how well one fits this machine, and whether its claim holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.knobs.table import KNOB_NAMES
from autotune.profiles.format import Profile
from autotune.profiles.records import as_data
from autotune.report import formatting
from autotune.report.final import failure_groups, not_offered_groups
from autotune.report.levels import Standing, batch_note, recommended, standing, verdict, whole_run

if TYPE_CHECKING:
    from autotune.profiles.registry import Match
    from autotune.tuning.check import CheckResult

EVERYTHING = 10_000
CHECKED = {
    "holds": "holds",
    "fails": "does NOT hold here: tune again",
    "open": "inconclusive: give a longer --budget",
}
"""By the value of `autotune.tuning.check.Claim`."""
Row = tuple[str, str, str]


def show(profile: Profile) -> str:
    """Return everything that the profile holds, knob by knob, as plain text."""
    note = batch_note(profile, profile.levels["max"])
    batch = [Text(f"\nLevel max: {note}")] if note else []
    parts = Group(_head(profile), _gains(profile), Text(""), _knobs(profile), *batch, _evidence(profile))
    return formatting.plain(parts)


def _head(profile: Profile) -> Text:
    target = profile.target
    versions = ", ".join(f"{name} {value}" for name, value in profile.software.items() if value is not None)
    samples = "an unknown number of samples" if target.samples is None else f"{target.samples} samples"
    lines = [
        f"{target.name} on {profile.key}, recommended level: {recommended(profile) or 'none, keep your settings'}",
        f"measured with {versions or 'unknown software'}, on {target.device}",
        f"model of {target.parameters} parameters, {samples}",
        f"baseline {formatting.rate(profile.baseline_rate, target.unit)}",
    ]
    return Text("\n".join(lines))


def _gains(profile: Profile) -> Text:
    lines = []
    for name, result in profile.levels.items():
        headline, detail = verdict(profile, name)
        gains = standing(profile, name) in (Standing.GAIN, Standing.UNPROVEN)
        rate = f", {formatting.rate(result.rate, profile.target.unit)}" if gains else ""
        lines.append(f"{name:<5} {headline}{rate}{f'; {detail}' if detail else ''}")
    lines += [f"whole run: {whole_run(profile)}"] if whole_run(profile) else []
    return Text("\n".join(lines))


def _knobs(profile: Profile) -> Table:
    table = _table("knob", "baseline", *profile.levels, wrap=False)
    columns = [profile.baseline, *(result.settings for result in profile.levels.values())]
    for knob in KNOB_NAMES:
        values = [getattr(settings, knob) for settings in columns]
        style = "bold" if any(value != values[0] for value in values) else "dim"
        table.add_row(knob, *(Text(formatting.value(value)) for value in values), style=style)
    return table


def _evidence(profile: Profile) -> Text:
    evidence = profile.evidence
    cost = f"{formatting.count(evidence.trials, 'trial')} in {formatting.duration(evidence.seconds)}"
    lines = [f"\n{cost}{', interrupted' if evidence.partial else ''}"]
    for title, found in (
        ("not offered", not_offered_groups(profile, EVERYTHING)),
        ("did not work", failure_groups(profile, EVERYTHING)),
        ("warnings", list(evidence.warnings)),
        ("beside", [evidence.beside] if evidence.beside else []),
    ):
        lines += [f"{title}:", *(f"  {line}" for line in found)] if found else []
    return Text("\n".join(lines))


def listed(profile: Profile) -> str:
    """Return the words for one profile of a list."""
    written = f", {profile.written.date}, torch-autotune {profile.written.tool}" if profile.written else ""
    return f"{profile.target.name} on {profile.key}{written}"


def diff(left: Profile, right: Profile, names: tuple[str, str] = ("left", "right")) -> str:
    """Return what differs as plain text; ``names`` head the columns."""
    rows = differences(left, right)
    if not rows:
        return "no difference"
    table = _table("", *names)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    note = [] if left.key == right.key else [Text("Measured on different machine types: rates do not compare.")]
    return formatting.plain(Group(table, *note))


def differences(left: Profile, right: Profile) -> list[Row]:
    """Return ``(subject, left, right)`` for everything that differs."""
    one, other = _facts(left), _facts(right)
    pairs = ((name, one.get(name, "-"), other.get(name, "-")) for name in {**one, **other})
    return [(name, mine, theirs) for name, mine, theirs in pairs if mine != theirs]


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
        lines = [f"{best.source} ({best.verdict})", *filter(None, [best.comparison.sentence]), *lines]
    return "\n  ".join(lines)


def checked(result: CheckResult) -> str:
    """Return one line: the claim, what was measured today, and whether it holds."""
    claim, now = result.claimed, result.measured
    return (
        f"level {result.level}: claimed {claim.value:.2f}x ({claim.low:.2f} to {claim.high:.2f}),"
        f" now {now.value:.2f}x ({now.low:.2f} to {now.high:.2f}, {now.rounds} rounds): {CHECKED[result.verdict.value]}"
    )


def _table(*columns: str, wrap: bool = True) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column), overflow="fold", no_wrap=not wrap)
    return table
