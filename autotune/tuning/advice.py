"""What the user's own code fixes is tried all the same: where another value is faster, the answer says so.

It is proven beside the levels, and never applied: to change it is the user's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from autotune.knobs import constraints
from autotune.knobs.knob import Context, offered
from autotune.knobs.settings import BY_NAME, Settings
from autotune.profiles.format import Advice
from autotune.search.history import Trial
from autotune.stats.decide import possible
from autotune.stats.proof import BASELINE, compare
from autotune.tuning.proof import ADVICE
from autotune.tuning.state import RunState

PROMISING = 1.1
"""A trial that is so many times as fast is worth a place in the proof."""
MOST_TRIALS = 3
"""Of other values of a knob: those that are nearest to the machine's cores."""


def try_fixed(state: RunState, context: Context) -> Settings | None:
    """Return the user's settings with the fastest other value of what his code fixes; None if no trial promises much.

    These trials are not kept: no level may have such settings.
    """
    best, found = PROMISING * state.estimate(state.baseline), None
    for settings in _others(context):
        state.observe(stage="trying what your code fixes", trying=settings)
        trial = Trial(settings, state.bench.measure(settings, 0.0, state.schedule.deadline), ADVICE)
        if trial.rate and trial.rate > best:
            best, found = trial.rate, settings
    return found


def advice(state: RunState, context: Context) -> tuple[Advice, ...]:
    """Return what to change in the user's code, as far as the proof shows that it is faster."""
    if state.advised is None:
        return ()
    proof = compare(state.rounds, ADVICE, BASELINE)
    if not proof.gain or proof.value > possible(state.advised, state.baseline):
        return ()
    changed = state.advised.difference(state.baseline)
    return tuple(Advice(name, value, context.task.fixed[name], proof) for name, (value, _own) in changed.items())


def _others(context: Context) -> Iterator[Settings]:
    cores = context.inventory.budget.cores
    for name in context.task.fixed:
        free = tuple(item for item in context.task.left_out if item.knob != name)
        choices = BY_NAME[name].reasons(replace(context, task=replace(context.task, left_out=free)))
        each = (context.baseline.but(**{name: value}) for value in offered(choices))
        fitting = [own for own in each if own != context.baseline and constraints.why_not(own, context) is None]
        yield from sorted(fitting, key=lambda own: abs(math.log(own.processes * own.threads / cores)))[:MOST_TRIALS]
