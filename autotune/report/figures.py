"""Figures of a tuning run, by plotly. Symbols differ where colours do, so that they can be read without colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go

from autotune.knobs.settings import Settings
from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.search.history import Effect, History

SYMBOLS = ("circle", "diamond", "square", "triangle-up")
MARGIN = 0.06
"""Of an axis, on both sides of what is drawn."""
INK, ACCENT, SOFT, FAILED = "#1b1f24", "#0b63b5", "#8a93a0", "#b3261e"


def levels(profile: Profile) -> go.Figure:
    """Each level's speedup over the baseline: dot and whisker."""
    names, values, below, above, ends = [], [], [], [], [1.0]
    for name, result in profile.levels.items():
        gain = result.speedup
        if gain.rounds and gain.high < float("inf"):
            names.append(name + ("" if result.proven else " (not proven)"))
            values.append(gain.value)
            below.append(gain.value - gain.low)
            above.append(gain.high - gain.value)
            ends += [gain.low, gain.high]
    whisker = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 2, "width": 8}
    dots = go.Scatter(x=values, y=names, error_x=whisker, mode="markers", marker=_mark(0), name="speedup")
    figure = _figure([dots], "times your settings (95 % interval)", "", legend=False)
    return _beside_own(figure, ends, len(names), "your settings")


def step(profile: Profile, history: History) -> go.Figure | None:
    """One step before and after: waiting for the loader, and all else. None where the journal has neither."""
    winner, bars = profile.level().settings, []
    for name, settings in ((f"level {profile.recommended}", winner), ("your settings", profile.baseline)):
        measured = history.of(settings)
        if measured is not None and measured.rate:
            per_item = 1e3 / measured.rate
            bars.append((name, per_item * measured.load_share, per_item * (1 - measured.load_share)))
    if not bars:
        return None
    names = [name for name, _, _ in bars]
    parts = [("waiting for the loader", 1, SOFT, "/"), ("forward, backward, update", 2, ACCENT, "")]
    drawn = [
        go.Bar(
            y=names,
            x=[bar[place] for bar in bars],
            name=label,
            orientation="h",
            marker={"color": color, "pattern": {"shape": shape}},
        )
        for label, place, color, shape in parts
    ]
    figure = _figure(drawn, f"ms per {profile.target.unit.removesuffix('s')}", "")
    figure.update_layout(barmode="stack")
    return figure


def trials(profile: Profile, history: History) -> go.Figure | None:
    """Every trial over time, the best so far, and the failures with their reasons."""
    good = list(history.measured())
    if not good:
        return None
    rates = [measured.rate for _, measured in good]
    seconds = [trial.seconds for trial, _ in good]
    words = [formatting.changes(trial.settings, profile.baseline) for trial, _ in good]
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
            f"{trial.kind}: {trial.reason}<br>{formatting.changes(trial.settings, profile.baseline)}" for trial in bad
        ]
        marker = {"symbol": "x", "size": 10, "color": FAILED}
        at = [trial.seconds for trial in bad]
        drawn.append(go.Scatter(x=at, y=[0.0] * len(bad), text=reasons, mode="markers", marker=marker, name="failed"))
    return _figure(drawn, "seconds since the first trial", f"{profile.target.unit}/s")


def knobs(found: Sequence[Effect]) -> go.Figure | None:
    """What each knob brought, alone and in the winner."""
    drawn = list(_effects(found))
    if not drawn:
        return None
    figure = _figure(drawn, "times as fast with it as without (single trials, standard error)", "")
    ends = [1.0]
    for dots in drawn:
        for value, error in zip(dots.x, dots.error_x.array, strict=True):
            ends += [value - error, value + error]
    return _beside_own(figure, ends, len({name for dots in drawn for name in dots.y}))


def _effects(found: Sequence[Effect]) -> Iterator[go.Scatter]:
    for number, (label, name) in enumerate((("alone, in your settings", "alone"), ("in the winner", "kept"))):
        known = [(each.knob, getattr(each, name), each.error) for each in found if getattr(each, name)]
        if known:
            error = {"type": "data", "array": [value * spread for _, value, spread in known], "thickness": 1.5}
            yield go.Scatter(
                x=[value for _, value, _ in known],
                y=[knob for knob, _, _ in known],
                error_x=error,
                mode="markers",
                marker=_mark(number),
                name=label,
            )


def rounds(profile: Profile, history: History) -> go.Figure | None:
    """The proof's rounds as they came."""
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


def heat(profile: Profile, history: History, across: str, down: str) -> go.Figure | None:
    """The best rate for each pair of values of two knobs; None below four pairs."""
    best: dict[tuple[Any, Any], float] = {}
    for trial, measured in history.measured():
        pair = _pair(trial.settings, across, down)
        best[pair] = max(best.get(pair, 0.0), measured.rate)
    columns, rows = sorted({x for x, _ in best}), sorted({y for _, y in best})
    if len(best) < 4 or min(len(columns), len(rows)) < 2:
        return None
    values = [[best.get((x, y)) for x in columns] for y in rows]
    texts = [["" if value is None else formatting.number(value) for value in row] for row in values]
    drawn = go.Heatmap(
        x=list(map(str, columns)),
        y=list(map(str, rows)),
        z=values,
        text=texts,
        texttemplate="%{text}",
        colorscale="Blues",
        colorbar={"title": f"{profile.target.unit}/s"},
    )
    return _figure([drawn], across, down, legend=False)


def _pair(settings: Settings, across: str, down: str) -> tuple[Any, Any]:
    return getattr(settings, across), getattr(settings, down)


def _beside_own(figure: go.Figure, ends: Sequence[float], rows: int, own: str = "") -> go.Figure:
    """``figure`` of ``rows`` rows, the first on top, with a line at 1 and room around it and ``ends``."""
    room = MARGIN * (max(ends) - min(ends)) or MARGIN
    figure.add_vline(x=1.0, line_dash="dash", line_color=SOFT, annotation_text=own, annotation_position="top right")
    figure.update_xaxes(range=[min(ends) - room, max(ends) + room])
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
        font={"size": 13, "color": INK},
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure
