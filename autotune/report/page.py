"""A tuning run as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from textwrap import dedent

from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.profile import measured
from autotune.report.result import (
    INTERRUPTED,
    OWN_SCRIPT,
    apply_lines,
    baseline,
    changed,
    cost,
    details,
    recommended,
    shown_name,
    verdict,
    whole_run,
)
from autotune.search.history import Trial

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1b1f24 }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d0d7de }
pre { background: #f6f8fa; padding: .75rem; overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #eaeef2; vertical-align: top }
.scroll { overflow-x: auto } svg { width: 100%; font-size: 14px }
svg path { fill: none; stroke: #8a93a0 } svg .best { stroke: #1b1f24 } svg .failed { stroke: #b3261e }
svg circle { fill: #0b63b5 }
@media print { section { break-inside: avoid } body { max-width: none } }
"""
WIDE, HIGH = 800, 260
"""Of the figure, in SVG's own units."""


def html(profile: Profile, history: Sequence[Trial], path: Path, script: str | None = None) -> str:
    """Return the whole page of a profile in the file ``path``; the ``history`` is empty if the journal is gone.

    ``script`` is how the user's script is started, without Python; by the target's name, without folders, if None.
    """
    title = escape(f"{profile.target.name} on {profile.key}")
    name = profile.target.name
    started = script or (f"{name}.py" if profile.target.script and "." not in name else OWN_SCRIPT)
    head = "".join(f"<p>{escape(line)}</p>" for line in _head(profile))
    sections = "\n".join(
        f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in _sections(profile, history, path, started)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>autotune: {title}</title><style>{STYLE}</style>"
        f"</head><body><h1>{title}</h1>{head}{sections}</body></html>\n"
    )


def _head(profile: Profile) -> list[str]:
    """Return what the figures hold for: the load beside them first, then versions, cost and baseline."""
    load, whole = profile.evidence.load, whole_run(profile)
    return [
        *([f"Load: {load}"] if load else []),
        *measured(profile),
        cost(profile),
        f"Baseline: {baseline(profile)}",
        *([f"Whole run: {whole}"] if whole else []),
        *([INTERRUPTED.capitalize()] if profile.evidence.partial else []),
    ]


def _sections(profile: Profile, history: Sequence[Trial], path: Path, script: str) -> Iterator[tuple[str, str]]:
    yield "How much faster", _table(("level", "result", "note"), _levels(profile))
    if figure := trials(profile, history):
        yield "Trials over time", figure
    yield "What changes, and why", _table(("knob", "from", "to", "why"), _changes(profile))
    lines = "\n".join(apply_lines(profile, path, script)).removeprefix("Apply")
    yield "Apply", f"<pre>{escape(dedent(lines.strip(chr(10))))}</pre>" if lines else "<p>Nothing.</p>"
    for name, found in details(profile).items():
        if found:
            yield name, _table((), [(line,) for line in found])


def _levels(profile: Profile) -> Iterator[tuple[str, ...]]:
    for name in profile.levels:
        mark = " (recommended)" if name == recommended(profile) else ""
        yield (name + mark, *verdict(profile, name))


def _changes(profile: Profile) -> Iterator[tuple[str, ...]]:
    for knob, before, after, reason in changed(profile.level().settings, profile.baseline):
        yield shown_name(knob, profile), formatting.value(before), formatting.value(after), reason


def _table(head: Sequence[str], rows: Iterable[tuple[str, ...]]) -> str:
    first = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{first}</tr>{body}</table></div>' if body else "<p>Nothing.</p>"


def trials(profile: Profile, history: Sequence[Trial]) -> str:
    """Draw every trial over time as SVG, with the best so far; failures lie on the axis. Empty without a measured one.

    Whoever points at a mark reads its settings and how it ended.
    """
    rates = [trial.measurement.rate if trial.measurement is not None else 0.0 for trial in history]
    if not any(rates):
        return ""
    last, most = max(trial.seconds for trial in history) or 1.0, max(rates)
    across = [round(WIDE * trial.seconds / last, 1) for trial in history]
    down = [round(HIGH - HIGH * rate / most, 1) for rate in rates]
    steps = "".join(f"H{x}V{y}" for x, y in zip(across, accumulate(down, min), strict=True))
    marks = []
    for trial, x, y, rate in zip(history, across, down, rates, strict=True):
        ended = formatting.rate(rate, profile.target.unit) if rate else f"{trial.outcome.kind}: {trial.outcome.reason}"
        words = escape(f"{formatting.tried(trial.settings, profile.baseline)}, {ended}")
        dot = f'<circle cx="{x}" cy="{y}" r="5"/>'
        cross = f'<path class="failed" d="M{x - 5} {y - 5}l10 10m0-10l-10 10"/>'
        marks.append(f"<g><title>{words}</title>{dot if rate else cross}</g>")
    end = f'x="{WIDE}" y="{HIGH + 20}" text-anchor="end"'
    return (
        f'<svg viewBox="-10 -20 {WIDE + 20} {HIGH + 50}"><path d="M0 0V{HIGH}H{WIDE}"/>'
        f'<path class="best" d="M0 {down[0]}{steps}"/>{"".join(marks)}'
        f'<text y="-6">{formatting.rate(most, escape(profile.target.unit))}; the line is the best so far</text>'
        f"<text {end}>{formatting.duration(last)} after the first trial</text></svg>"
    )
