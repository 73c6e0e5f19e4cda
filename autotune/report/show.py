"""``autotune show``: everything a profile holds, knob by knob."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.knobs.table import KNOB_NAMES
from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.final import failure_groups, not_offered_groups
from autotune.report.verdict import batch_note, verdict

EVERYTHING = 10_000


def text(profile: Profile) -> str:
    """The profile as plain text."""
    return formatting.plain(render(profile))


def render(profile: Profile) -> RenderableType:
    """Head, gains, a table of all knobs, and the evidence."""
    note = batch_note(profile, profile.levels["max"])
    batch = [Text(f"\nLevel max: {note}")] if note else []
    return Group(_head(profile), _gains(profile), Text(""), _knobs(profile), *batch, _evidence(profile))


def _head(profile: Profile) -> Text:
    target = profile.target
    versions = ", ".join(f"{name} {value}" for name, value in profile.software.items() if value is not None)
    samples = "an unknown number of samples" if target.samples is None else f"{target.samples} samples"
    lines = [
        f"{target.name} on {profile.key}, recommended level: {profile.recommended}",
        f"measured with {versions or 'unknown software'}, on {target.device}",
        f"model of {target.parameters} parameters, {samples}",
        f"baseline {formatting.rate(profile.baseline_rate, target.unit)}",
    ]
    return Text("\n".join(lines))


def _gains(profile: Profile) -> Text:
    lines = []
    for name, result in profile.levels.items():
        headline, detail = verdict(profile, name)
        rate = formatting.rate(result.rate, profile.target.unit)
        lines.append(f"{name:<5} {headline}, {rate}{f'; {detail}' if detail else ''}")
    return Text("\n".join(lines))


def _knobs(profile: Profile) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("knob", "baseline", *profile.levels):
        table.add_column(column, no_wrap=True)
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
    ):
        lines += [f"{title}:", *(f"  {line}" for line in found)] if found else []
    return Text("\n".join(lines))
