"""A tuning run as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from textwrap import dedent
from typing import Any

from plotly.offline import get_plotlyjs

from autotune.profiles.format import Profile
from autotune.report import figures, formatting
from autotune.report.diagnosis import meaning
from autotune.report.final import apply_lines, failure_groups, not_offered_groups
from autotune.report.verdict import changed, verdict
from autotune.search.history import History, effects

EVERYTHING = 10_000
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1b1f24 }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d0d7de }
pre { background: #f6f8fa; padding: .75rem; overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #eaeef2; vertical-align: top }
figure { margin: 0 } .scroll { overflow-x: auto }
@media print { section { break-inside: avoid } body { max-width: none } }
"""
HEATS = (("threads", "processes"), ("num_workers", "batch_size"))


def html(profile: Profile, history: History, path: Path) -> str:
    """The whole page. Every script is in it: nothing is asked from a network.

    Args:
        profile: the result.
        history: of its run; empty where the journal is gone.
        path: of the profile, for the lines to apply.
    """
    title = f"{profile.target.name} on {profile.key}"
    sections = "\n".join(
        f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in _sections(profile, history, path)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>autotune: {escape(title)}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><h1>{escape(title)}</h1>{_head(profile)}{sections}</body></html>\n"
    )


def _head(profile: Profile) -> str:
    evidence, own = profile.evidence, formatting.summary(profile.baseline)
    lines = [
        f"{formatting.count(evidence.trials, 'trial')}, {formatting.duration(evidence.seconds)}",
        f"Baseline: {formatting.rate(profile.baseline_rate, profile.target.unit)} with {own}",
        *([f"Why it is as slow as it is: {meaning(evidence.why)}"] if evidence.why else []),
        *(["Interrupted: the best found so far, not fully proven."] if evidence.partial else []),
    ]
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _sections(profile: Profile, history: History, path: Path) -> Iterator[tuple[str, str]]:
    yield "How much faster", _drawn(figures.levels(profile)) + _table(("level", "result", "note"), _levels(profile))
    drawn: list[tuple[str, Any]] = [
        ("One step, before and after", figures.step(profile, history)),
        ("Trials over time", figures.trials(profile, history)),
        ("What each knob brought", figures.knobs(effects(history, profile.baseline, profile.level().settings))),
        ("The proof's rounds", figures.rounds(profile, history)),
        *((f"{down} and {across}", figures.heat(profile, history, across, down)) for across, down in HEATS),
    ]
    yield from ((name, _drawn(figure)) for name, figure in drawn if figure is not None)
    yield "What changes, and why", _table(("knob", "from", "to", "why"), _changes(profile))
    lines = "\n".join(apply_lines(profile, path, "train.py")).removeprefix("Apply")
    yield "Apply", f"<pre>{escape(dedent(lines.strip(chr(10))))}</pre>"
    left_out = [(line,) for line in not_offered_groups(profile, EVERYTHING)]
    failures = [(line,) for line in failure_groups(profile, EVERYTHING)]
    for name, rows in (("Left out, and why", left_out), ("Failed", failures)):
        if rows:
            yield name, _table((), rows)
    if profile.evidence.warnings:
        yield "Notes", _table((), [(line,) for line in profile.evidence.warnings])


def _levels(profile: Profile) -> Iterator[tuple[str, ...]]:
    for name in profile.levels:
        mark = " (recommended)" if name == profile.recommended else ""
        yield (name + mark, *verdict(profile, name))


def _changes(profile: Profile) -> Iterator[tuple[str, ...]]:
    for knob, before, after, reason in changed(profile.level().settings, profile.baseline):
        yield knob, formatting.value(before), formatting.value(after), reason


def _table(head: Sequence[str], rows: Any) -> str:
    first = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{first}</tr>{body}</table></div>' if body else "<p>Nothing.</p>"


def _drawn(figure: Any) -> str:
    config = {"responsive": True, "displaylogo": False, "displayModeBar": False}
    return f"<figure>{figure.to_html(full_html=False, include_plotlyjs=False, config=config)}</figure>"
