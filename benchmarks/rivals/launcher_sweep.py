"""A launcher sweep: every setting of ``python -m torch.backends.xeon.run_cpu`` in a fresh process, then the script's.

First what the launcher decides (torchrun's processes x cores of each, allocator), then from the best of these what the
script decides, one flag at a time, keeping what is faster: workers, precision, layout, optimizer, batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from benchmarks.rivals.history import Choice, Method, best_so_far
from benchmarks.rivals.measuring import TimeUp
from benchmarks.rivals.stage import Search, Stage

NAME = "run_cpu sweep"
FLAGS = ("allocator", "num_workers", "precision", "channels_last", "optimizer_impl")


def methods(stage: Stage, budget: float) -> list[Method]:
    """Sweep until all is swept or the budget is over."""
    search = Search(stage, budget, "run_cpu")
    note = "stopped at the budget"
    with suppress(TimeUp):
        sweep(stage.spaces[stage.level], search)
        note = "all swept"
    trials = tuple(search.trials)
    note = f"{len(trials)} trials, {note}"
    return [Method(NAME, stage.level, best_so_far(Choice(stage.current), trials), trials, note, budget)]


def sweep(space: Space, search: Search) -> None:
    """Today's settings without the launcher and with it, then stage after stage, each from the best so far."""
    best = space.context.baseline
    rates = search.measure(best, "plain"), search.measure(best)
    most = max(found or 0.0 for found in rates)
    for name in ("shape", *FLAGS, "global batch"):
        for candidate in [*variants(space, best, name)]:
            found = search.measure(candidate) or 0.0
            if found > most:
                best, most = candidate, found


def variants(space: Space, settings: Settings, name: str) -> Iterator[Settings]:
    """Feasible settings that differ from ``settings`` in one thing."""
    for candidate in _candidates(space, settings, name):
        if candidate != settings and candidate in space:
            yield candidate


def _candidates(space: Space, settings: Settings, name: str) -> Iterator[Settings]:
    if name == "shape":
        for processes, threads in itertools.product(space.values["processes"], space.values["threads"]):
            yield batched(settings.but(processes=processes, threads=threads), settings.global_batch)
    elif name == "global batch":
        yield from (batched(settings, batch) for batch in space.global_batches)
    else:
        kept = space.context.baseline.persistent_workers  # settings without workers have forgotten it
        yield from (settings.but(**{name: value}, persistent_workers=kept) for value in space.values[name])


def batched(settings: Settings, batch: int) -> Settings:
    """``settings`` with a global batch of ``batch``, as far as it divides."""
    return settings.but(batch_size=max(1, batch // settings.processes))
