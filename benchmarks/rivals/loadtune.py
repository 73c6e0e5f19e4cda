"""loadtune, the rival that tunes the loader first: its `Workload` API, in a fresh process."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.rivals.history import Choice, Method, Point
from benchmarks.rivals.measuring import Failed, environment, run
from benchmarks.rivals.stage import Stage

NAME = "loadtune"


def methods(stage: Stage, budget: float) -> list[Method]:
    """What it recommends; today's settings where it is not installed, or does not end within ``budget`` seconds."""
    current, started = stage.current, time.monotonic()
    today = Point(0.0, Choice(current))
    settings = current.as_dict()
    line = [sys.executable, "-m", "benchmarks.rivals.loadtune_search", str(stage.task), json.dumps(settings)]
    try:
        written = run([(line, {})], environment(settings), budget)
    except Failed as error:
        return [Method(NAME, "amp", (today,), note=str(error))]
    changed = json.loads(written.strip().splitlines()[-1])
    chosen = Point(time.monotonic() - started, Choice(current.but(**changed)))
    return [Method(NAME, "amp", (today, chosen), note=f"found {changed or 'nothing better'}", budget=budget)]
