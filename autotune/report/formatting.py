"""Figures in words: the same rounding everywhere, so that two views of one profile never disagree."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType

from autotune.knobs import memory
from autotune.knobs.settings import BY_NAME, Settings
from autotune.stats.proof import WIDE, Proof

WIDTH = 80


def plain(renderable: RenderableType) -> str:
    """Return ``renderable`` as plain text, without colours or trailing blanks."""
    written = io.StringIO()
    Console(file=written, width=WIDTH, color_system=None, highlight=False).print(renderable)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def section(name: str, lines: Iterable[str], deep: int | None = None) -> list[str]:
    """Return ``lines`` beside the heading ``name``, each wrapped over ``deep`` lines at most; empty if none are."""
    found = [part for line in lines for part in wrapped(line, deep)]
    return [f"{name:<10}{found[0][10:]}", *found[1:]] if found else []


def wrapped(line: str, deep: int | None = None) -> list[str]:
    """Return ``line`` as it stands beside a heading, over ``deep`` lines at most."""
    indent = " " * 10
    return textwrap.wrap(
        line, WIDTH, initial_indent=indent, subsequent_indent=indent, max_lines=deep, placeholder=" ..."
    )


def rate(value: float, unit: str) -> str:
    """Return ``1240 samples/s``: three significant digits below a thousand, whole numbers above."""
    return f"{number(value)} {unit}/s"


def number(value: float) -> str:
    """Return three significant digits below a thousand, whole numbers above."""
    if not math.isfinite(value):
        return "unknown"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def times(value: float) -> str:
    """Return ``1.62x``."""
    return f"{value:.2f}x"


def interval(proof: Proof) -> str:
    """Return ``1.62x (1.55 to 1.70, 95 % confidence, 12 rounds)``."""
    if proof.rounds == 0:
        return "not measured"
    if not math.isfinite(proof.high):
        return f"{times(proof.value)} (too few rounds for an interval: {proof.rounds})"
    spread = f"{proof.low:.2f} to {proof.high:.2f}"
    return f"{times(proof.value)} ({spread}, {proof.confidence * 100:g} % confidence, {proof.rounds} rounds)"


def short(proof: Proof) -> str:
    """Return ``1.41x (1.35 to 1.48)``; ``any`` in place of what has no end."""
    value, high = (f"{each:.2f}" if math.isfinite(each) else "any" for each in (proof.value, proof.high))
    return f"{value}{'x' * (value != 'any')} ({proof.low:.2f} to {high})"


def gain(proof: Proof) -> str:
    """Return a proven gain: its interval, or, if that is wide, ``at least 1.43x (95 % confidence); measured 3.03x``."""
    if not WIDE < proof.half_width < math.inf:
        return interval(proof)
    return f"at least {times(proof.low)} ({proof.confidence * 100:g} % confidence); measured {times(proof.value)}"


def duration(seconds: float) -> str:
    """Return ``48 s``, ``1 min 12 s``, ``2 h 05 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: int | None) -> str:
    """Return ``512 MiB``, ``23.0 GiB``; ``unknown`` for None."""
    return "unknown" if count is None else memory.size(count)


def value(setting: Any) -> str:
    """Return one knob's value: ``on`` and ``off`` for flags, ``-`` if it does not apply."""
    if setting is None:
        return "-"
    return {True: "on", False: "off"}[setting] if isinstance(setting, bool) else str(setting)


def count(number_of: int, noun: str) -> str:
    """Return ``1 trial``, ``2 trials``."""
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"


def tried(settings: Settings, baseline: Settings) -> str:
    """Return ``2 processes x 1 thread, bf16``: what differs from ``baseline`` in words, or ``your settings``."""
    different = settings.difference(baseline)
    processes = f"{settings.processes} process{'es' if settings.processes > 1 else ''}"
    shape = [f"{processes} x {count(settings.threads, 'thread')}"] if {"processes", "threads"} & {*different} else []
    own = (words(knob, mine) for knob, (mine, _) in different.items() if knob not in ("processes", "threads"))
    return ", ".join([*shape, *own]) or "your settings"


def words(knob: str, setting: Any) -> str:
    """Return one knob's value in words; the knob's own name if there are no better ones."""
    if setting is None or isinstance(setting, bool):
        return knob if setting else f"no {knob}"
    return (BY_NAME[knob].words or f"{knob} {{}}").format(setting, s="s" * (setting != 1), es="es" * (setting != 1))


def summary(settings: Settings, *, loader: bool = True) -> str:
    """Return the knobs that people ask for first, on one line; those of the loader only if there is a ``loader``."""
    shape = f"{settings.processes} x {count(settings.threads, 'thread')}"
    own = f", {count(settings.num_workers, 'worker')}, batch {settings.batch_size}" if loader else ""
    return f"{shape}{own}, {settings.precision}"
