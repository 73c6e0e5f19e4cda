"""A tuning run as one HTML file that opens offline: its sections first, then its figures, drawn by plotly.

Each colour has a symbol of its own, so that figures can be read without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path
from textwrap import dedent
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.profile import measured
from autotune.report.result import (
    INTERRUPTED,
    OWN_SCRIPT,
    apply_lines,
    baseline,
    below,
    changed,
    cost,
    details,
    recommended,
    shown_name,
    verdict,
    whole_run,
)
from autotune.search.history import History

FONT = "system-ui, sans-serif"
STYLE = f"""
body {{ font: 16px/1.5 {FONT}; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1b1f24 }}
h1 {{ font-size: 1.5rem }} h2 {{ font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d0d7de }}
pre {{ background: #f6f8fa; padding: .75rem; overflow-x: auto }} table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #eaeef2; vertical-align: top }}
figure {{ margin: 0 }} .scroll {{ overflow-x: auto }}
@media print {{ section {{ break-inside: avoid }} body {{ max-width: none }} }}
"""
INK, ACCENT, SOFT, FAILED = "#1b1f24", "#0b63b5", "#8a93a0", "#b3261e"
MARKS = (("circle", ACCENT), ("diamond", INK), ("square", SOFT), ("triangle-up", "#5b7f00"))
OWN_MARK = {"symbol": "line-ns-open", "size": 40, "color": SOFT}
FAILED_MARK = {"symbol": "x", "size": 10, "color": FAILED}


def html(profile: Profile, history: History, path: Path, script: str | None = None) -> str:
    """Return the whole page of a profile in the file ``path``, whose ``history`` is empty if the journal is gone.

    ``script`` is how the user's script is started, without Python; by the target's name if None.
    """
    title = escape(f"{profile.target.name} on {profile.key}")
    started = script or (f"{profile.target.name}.py" if profile.target.script else OWN_SCRIPT)
    head = "".join(f"<p>{escape(line)}</p>" for line in _head(profile))
    sections = "\n".join(
        f"<section><h2>{escape(name)}</h2>{body}</section>" for name, body in _sections(profile, history, path, started)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>autotune: {title}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><h1>{title}</h1>{head}{sections}</body></html>\n"
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


def _sections(profile: Profile, history: History, path: Path, script: str) -> Iterator[tuple[str, str]]:
    yield "How much faster", _drawn(levels(profile)) + _table(("level", "result", "note"), _levels(profile))
    drawn = {"Trials over time": trials(profile, history), "The proof's rounds": rounds(profile, history)}
    for name, figure in drawn.items():
        if figure is not None:
            yield name, _drawn(figure)
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


# Figures --------------------------------------------------------------------------------------------------------------


def levels(profile: Profile) -> go.Figure:
    """Draw each level's speedup over the baseline: dot and whisker. A level that only repeats another has no row."""
    rows: dict[str, str] = {}
    for name, result in profile.levels.items():
        lower = below(profile, name)
        if lower in rows:
            rows[lower] += f", {name}"
        elif result.speedup.rounds and result.speedup.high < float("inf"):
            rows[name] = name + ("" if result.proven else " (not proven)")
    gains, names = [profile.levels[name].speedup for name in rows], list(rows.values())
    whisker = {
        "type": "data",
        "symmetric": False,
        "array": [gain.high - gain.value for gain in gains],
        "arrayminus": [gain.value - gain.low for gain in gains],
        "thickness": 2,
        "width": 8,
    }
    dots = _points([gain.value for gain in gains], names, "speedup", _mark(0), error_x=whisker)
    own = _points([1.0] * len(names), names, "your settings", OWN_MARK)
    figure = _figure([dots, own], "times your settings (95 % interval)", "")
    figure.update_xaxes(type="log", ticksuffix="x")
    return figure.update_yaxes(autorange="reversed")


def trials(profile: Profile, history: History) -> go.Figure | None:
    """Draw every trial over time, the best so far, and the failures with their reasons."""
    good = list(history.measured())
    if not good:
        return None
    seconds, rates = [trial.seconds for trial, _ in good], [measured.rate for _, measured in good]
    words = [formatting.tried(trial.settings, profile.baseline) for trial, _ in good]
    best = go.Scatter(
        x=seconds, y=list(accumulate(rates, max)), mode="lines", line={"shape": "hv", "color": INK}, name="best so far"
    )
    drawn = [_points(seconds, rates, "trial", _mark(0), text=words), best]
    bad = [trial for trial in history.trials if trial.measurement is None]
    if bad:
        reasons = [
            f"{trial.outcome.kind}: {trial.outcome.reason}<br>{formatting.tried(trial.settings, profile.baseline)}"
            for trial in bad
        ]
        drawn.append(_points([trial.seconds for trial in bad], [0.0] * len(bad), "failed", FAILED_MARK, text=reasons))
    return _figure(drawn, "seconds since the first trial", f"{profile.target.unit}/s")


def rounds(profile: Profile, history: History) -> go.Figure | None:
    """Draw the proof's rounds as they came."""
    names = dict.fromkeys(name for turn in history.rounds for name in turn.rates)
    drawn = []
    for number, name in enumerate(names):
        own = {place: turn.rates[name] for place, turn in enumerate(history.rounds, 1) if name in turn.rates}
        drawn.append(_points(list(own), list(own.values()), name, _mark(number), mode="lines+markers"))
    return _figure(drawn, "round", f"{profile.target.unit}/s") if drawn else None


def _points(across: list[Any], down: list[Any], name: str, mark: dict[str, Any], **options: Any) -> go.Scatter:
    return go.Scatter(x=across, y=down, name=name, marker=mark, **{"mode": "markers", **options})


def _mark(number: int) -> dict[str, Any]:
    symbol, color = MARKS[number % len(MARKS)]
    return {"symbol": symbol, "size": 10, "color": color}


def _figure(drawn: Sequence[Any], across: str, down: str) -> go.Figure:
    figure = go.Figure(list(drawn))
    return figure.update_layout(
        template="plotly_white",
        xaxis={"title": across, "automargin": True},
        yaxis={"title": down, "automargin": True},
        legend={"orientation": "h", "y": -0.3},
        margin={"l": 10, "r": 10, "t": 20, "b": 10},
        height=320,
        font={"size": 13, "color": INK, "family": FONT},
    )


def _drawn(figure: go.Figure) -> str:
    config = {"responsive": True, "displaylogo": False, "displayModeBar": False}
    return f"<figure>{figure.to_html(full_html=False, include_plotlyjs=False, config=config)}</figure>"
