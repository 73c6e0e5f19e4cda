"""Which settings a grid holds, and in which order they are measured. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.knobs.knob import Context
from autotune.knobs.level import HIGHEST, LEVELS
from autotune.knobs.settings import BY_NAME, Settings
from autotune.knobs.space import Space, build

Held = Mapping[str, Sequence[Any]]
"""Values that a grid is restricted to, by knob; ``global_batch`` counts in multiples of the user's own."""

HELD: Held = {
    "binding": ("none",),
    "backend": ("gloo",),
    "prefetch_factor": (2,),
    "interop_threads": (2,),
}
"""Held in every grid: knobs that multiply its size and hardly change a rate on two cores."""
LATER_KNOBS = ("worker_start", "worker_threads", "malloc", "matmul_precision", "omp_wait_policy", "binding")
"""Knobs that came after the first grids: their neutral value is held."""
TASKS: Mapping[str, Held] = {
    "tabular_mlp": {"allocator": ("default",)},
    "jpeg_folder": {"optimizer_impl": ("default",), "global_batch": (1, 2)},
    "lstm_forecast": {"allocator": ("default",), "global_batch": (1, 2, 4, 8)},
    "char_transformer": {
        "allocator": ("default", "tcmalloc"),
        "optimizer_impl": ("default", "fused"),
        "global_batch": (1, 2, 4),
    },
    "recommender": {
        "allocator": ("default", "tcmalloc"),
        "optimizer_impl": ("default", "fused"),
        "global_batch": (1, 2, 4),
    },
}
"""What else is held, by task, so that a grid stays near 200 settings."""
SCRIPTS: Held = {
    **HELD,
    "allocator": ("default",),
    "malloc": ("default", "keep"),
    "cudnn_benchmark": (False,),
    "pin_memory": (False,),
    "global_batch": (1,),
}
"""Held for a script, beside its own optimizer kernels: what its user would try by hand is left."""
ANCHOR_EVERY = 10
"""Trials between two of the baseline."""
FIELD = (16, 10, 6, 6)
"""How many of a level's best take part in each contest: every one is measured on fewer, and trusted more."""


def held_of(task: str) -> Held:
    """Values that the grid of ``task`` is restricted to."""
    return {**HELD, **TASKS.get(task, {})}


def held_of_script(baseline: Settings) -> Held:
    """Values that the grid of a script is restricted to."""
    return {**SCRIPTS, "optimizer_impl": (baseline.optimizer_impl,)}


def spaces(context: Context, held: Held) -> dict[str, Space]:
    """The space of every level, restricted to ``held`` values. Knobs that came after the first grids are held too."""
    held = {name: (BY_NAME[name].neutral,) for name in LATER_KNOBS} | dict(held)
    return {level: _restricted(build(context, level), held) for level in LEVELS}


def _restricted(space: Space, held: Held) -> Space:
    own = space.context.baseline.global_batch
    factors = held.get("global_batch", ())
    batches = tuple(b for b in space.global_batches if not factors or b // own in factors)
    values = {
        name: tuple(v for v in offered if name not in held or v in held[name]) or offered
        for name, offered in space.values.items()
    }
    return replace(space, values=values, global_batches=batches)


def everything(spaces: Mapping[str, Space]) -> tuple[Settings, ...]:
    """Every feasible setting of all levels, baseline first, each once."""
    highest = spaces[HIGHEST]
    found = dict.fromkeys((highest.context.baseline, *highest.enumerate()))
    return tuple(found)


def full_round(settings: Sequence[Settings], number: int) -> Iterator[Settings]:
    """All ``settings`` in a random order of round ``number``, the first of them (the baseline) every few trials."""
    baseline, others = settings[0], list(settings[1:])
    random.Random(number).shuffle(others)
    for position, each in enumerate(others):
        if position % ANCHOR_EVERY == 0:
            yield baseline
        yield each
    yield baseline


def contenders(space: Space, rates: Mapping[Settings, float], count: int) -> tuple[Settings, ...]:
    """The baseline and the ``count`` best of a level: what the next contest measures side by side."""
    baseline = space.context.baseline
    own = sorted((s for s in rates if s in space and s != baseline and rates[s] > 0), key=lambda s: -rates[s])
    return (baseline, *own[:count])
