"""A tuning run as one HTML file that opens offline: its sections first, then its figures, drawn by plotly.

Symbols differ where colours do, so that figures can be read without colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from textwrap import dedent
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from autotune.knobs.settings import Settings
from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.final import apply_lines, failure_groups, not_offered_groups, own_settings
from autotune.report.levels import below, changed, recommended, verdict, whole_run
from autotune.search.history import History

EVERYTHING = 10_000
FONT = "system-ui, sans-serif"
STYLE = f"""
body {{ font: 16px/1.5 {FONT}; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1b1f24 }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d0d7de }}
pre {{ background: #f6f8fa; padding: .75rem; overflow-x: auto }} table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #eaeef2; vertical-align: top }}
figure {{ margin: 0 }} .scroll {{ overflow-x: auto }}
@media print {{ section {{ break-inside: avoid }} body {{ max-width: none }} }}
"""
SYMBOLS = ("circle", "diamond", "square", "triangle-up")
MARGIN = 0.06
"""Of an axis, on both sides of what is drawn."""
LEAST_RATIO = 0.01
"""A ratio's axis begins here at the lowest: its logarithm has no end."""
INK, ACCENT, SOFT, FAILED = "#1b1f24", "#0b63b5", "#8a93a0", "#b3261e"


def html(profile: Profile, history: History, path: Path, script: str | None = None) -> str:
    """Return the whole page. Every script is in it: nothing is asked from a network.

    Args:
        profile: the result.
        history: of its run; empty if the journal is gone.
        path: of the profile, for the lines to apply.
        script: how the user's script is started, without Python; by the target's name if None.
    """
    title = f"{profile.target.name} on {profile.key}"
    started = script or (f"{profile.target.name}.py" if profile.target.script else "train.py")
    sections = "\n".join(
        f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in _sections(profile, history, path, started)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>autotune: {escape(title)}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><h1>{escape(title)}</h1>{_head(profile)}{sections}</body></html>\n"
    )


def _head(profile: Profile) -> str:
    """Return what the figures hold for: the load beside them first, then versions, cost and baseline."""
    evidence, written = profile.evidence, profile.written
    made = [f"{written.date}, torch-autotune {written.tool}"] if written else []
    versions = [f"{name} {value}" for name, value in profile.software.items() if value is not None]
    cost = f"{formatting.count(evidence.trials, 'trial')} in {formatting.duration(evidence.seconds)}"
    lines = [
        *([f"Beside: {evidence.beside}"] if evidence.beside else []),
        ", ".join([*made, *versions]),
        f"{cost}, on {profile.target.device}",
        f"Baseline: {formatting.rate(profile.baseline_rate, profile.target.unit)} with {own_settings(profile)}",
        *([f"Whole run: {whole_run(profile)}"] if whole_run(profile) else []),
        *(["Interrupted: the best found so far, not fully proven."] if evidence.partial else []),
    ]
    return "".join(f"<p>{escape(line)}</p>" for line in lines if line)


def _sections(profile: Profile, history: History, path: Path, script: str) -> Iterator[tuple[str, str]]:
    yield "How much faster", _drawn(levels(profile)) + _table(("level", "result", "note"), _levels(profile))
    drawn = {"Trials over time": trials(profile, history), "The proof's rounds": rounds(profile, history)}
    for name, figure in drawn.items():
        if figure is not None:
            yield name, _drawn(figure)
    head = ("knob", "from", "to", "why", "alone in your settings", "within these settings")
    yield "What changes, why, and what each brought", _table(head, _changes(profile, history))
    lines = "\n".join(apply_lines(profile, path, script)).removeprefix("Apply")
    yield "Apply", f"<pre>{escape(dedent(lines.strip(chr(10))))}</pre>"
    left_out = [(line,) for line in not_offered_groups(profile, EVERYTHING)]
    failures = [(line,) for line in failure_groups(profile, EVERYTHING)]
    notes = [(line,) for line in profile.evidence.warnings]
    for name, rows in (("Left out, and why", left_out), ("Failed", failures), ("Notes", notes)):
        if rows:
            yield name, _table((), rows)


def _levels(profile: Profile) -> Iterator[tuple[str, ...]]:
    for name in profile.levels:
        mark = " (recommended)" if name == recommended(profile) else ""
        yield (name + mark, *verdict(profile, name))


def _changes(profile: Profile, history: History) -> Iterator[tuple[str, ...]]:
    own, winner = profile.baseline, profile.level().settings
    for knob, before, after, reason in changed(winner, own):
        brought = (
            _brought(history, own.but(**{knob: after}), own),
            _brought(history, winner, winner.but(**{knob: before})),
        )
        yield knob, formatting.value(before), formatting.value(after), reason, *brought


def _brought(history: History, ours: Settings, theirs: Settings) -> str:
    """Return ``1.31x (standard error 2%)``, by single trials; nothing for a change that only follows from another."""
    found = history.ratio(ours, theirs)
    if found is None:
        return "no such trial" if ours != theirs else ""
    return f"{formatting.times(found[0])} (standard error {found[1]:.0%})"


def _table(head: Sequence[str], rows: Any) -> str:
    first = "".join(f"<th>{escape(word)}</th>" for word in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{first}</tr>{body}</table></div>' if body else "<p>Nothing.</p>"


def _drawn(figure: Any) -> str:
    config = {"responsive": True, "displaylogo": False, "displayModeBar": False}
    return f"<figure>{figure.to_html(full_html=False, include_plotlyjs=False, config=config)}</figure>"


def levels(profile: Profile) -> go.Figure:
    """Draw each level's speedup over the baseline: dot and whisker. A level that only repeats another has no row."""
    rows: dict[str, str] = {}
    for name, result in profile.levels.items():
        lower = below(profile, name)
        if lower in rows:
            rows[lower] += f", {name}"
        elif result.speedup.rounds and result.speedup.high < float("inf"):
            rows[name] = name + ("" if result.proven else " (not proven)")
    gains = [profile.levels[name].speedup for name in rows]
    whisker = {
        "type": "data",
        "symmetric": False,
        "array": [gain.high - gain.value for gain in gains],
        "arrayminus": [gain.value - gain.low for gain in gains],
        "thickness": 2,
        "width": 8,
    }
    values = [gain.value for gain in gains]
    dots = go.Scatter(x=values, y=list(rows.values()), error_x=whisker, mode="markers", marker=_mark(0), name="speedup")
    figure = _figure([dots], "times your settings (95 % interval)", "", legend=False)
    return _beside_own(figure, [end for gain in gains for end in (gain.low, gain.high)], len(rows))


def trials(profile: Profile, history: History) -> go.Figure | None:
    """Draw every trial over time, the best so far, and the failures with their reasons."""
    good = list(history.measured())
    if not good:
        return None
    rates = [measured.rate for _, measured in good]
    seconds = [trial.seconds for trial, _ in good]
    words = [formatting.tried(trial.settings, profile.baseline) for trial, _ in good]
    drawn = [
        go.Scatter(x=seconds, y=rates, text=words, mode="markers", marker=_mark(0), name="trial"),
        go.Scatter(
            x=seconds,
            y=list(accumulate(rates, max)),
            mode="lines",
            line={"shape": "hv", "color": INK},
            name="best so far",
        ),
    ]
    bad = [trial for trial in history.trials if trial.measurement is None]
    if bad:
        reasons = [
            f"{trial.outcome.kind}: {trial.outcome.reason}<br>{formatting.tried(trial.settings, profile.baseline)}"
            for trial in bad
        ]
        marker = {"symbol": "x", "size": 10, "color": FAILED}
        at = [trial.seconds for trial in bad]
        drawn.append(go.Scatter(x=at, y=[0.0] * len(bad), text=reasons, mode="markers", marker=marker, name="failed"))
    return _figure(drawn, "seconds since the first trial", f"{profile.target.unit}/s")


def rounds(profile: Profile, history: History) -> go.Figure | None:
    """Draw the proof's rounds as they came."""
    names = list(dict.fromkeys(name for turn in history.rounds for name in turn.rates))
    if not names:
        return None
    drawn = []
    for number, name in enumerate(names):
        own = [(place, turn.rates[name]) for place, turn in enumerate(history.rounds, 1) if name in turn.rates]
        drawn.append(
            go.Scatter(
                x=[place for place, _ in own],
                y=[rate for _, rate in own],
                mode="lines+markers",
                marker=_mark(number),
                name=name,
            )
        )
    return _figure(drawn, "round", f"{profile.target.unit}/s")


def _beside_own(figure: go.Figure, ends: Sequence[float], rows: int) -> go.Figure:
    """Return ``figure`` of ``rows`` rows, the first on top, on a logarithmic axis with a line at 1 and room around."""
    logs = [0.0, *(math.log10(max(end, LEAST_RATIO)) for end in ends)]
    low, high = min(logs), max(logs)
    room = MARGIN * (high - low) or MARGIN
    figure.add_vline(
        x=1.0, line_dash="dash", line_color=SOFT, annotation_text="your settings", annotation_position="top right"
    )
    figure.update_xaxes(type="log", range=[low - room, high + room], ticksuffix="x")
    figure.update_yaxes(range=[rows - 0.5, -0.8])
    return figure


def _mark(number: int) -> dict[str, Any]:
    return {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 10, "color": (ACCENT, INK, SOFT, "#5b7f00")[number % 4]}


def _figure(drawn: Sequence[Any], across: str, down: str, *, legend: bool = True) -> go.Figure:
    figure = go.Figure(list(drawn))
    figure.update_layout(
        template="plotly_white",
        xaxis_title=across,
        yaxis_title=down,
        showlegend=legend,
        legend={"orientation": "h", "y": -0.3},
        margin={"l": 10, "r": 10, "t": 20, "b": 10},
        height=320,
        font={"size": 13, "color": INK, "family": FONT},
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure
