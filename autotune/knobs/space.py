"""`Space`: all feasible `Settings` for a machine, a task and a level, with the reason for everything left out.

A move is one decision that leads from settings to others. Most change one knob. Processes, threads, batch and backend
depend on each other through the global batch and the CPU budget: they move together, as a shape.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.knobs import binding, constraints
from autotune.knobs.backend import powers_of_two
from autotune.knobs.knob import Context, offered
from autotune.knobs.level import LEVELS
from autotune.knobs.loader import batch_shares
from autotune.knobs.settings import BY_NAME, KNOB_NAMES, KNOBS, Settings
from autotune.knobs.task_facts import LeftOut

MAX_BATCH_FACTOR, ALWAYS_TRIED = 32, 2
"""Times the user's batch: the most, and what no noise scale forbids."""
SHAPE, GLOBAL_BATCH = "processes x threads", "global batch"
"""Moves of knobs that cannot move alone."""
BOUND = ("processes", "threads", "batch_size")
"""Those knobs."""
MOVES = (SHAPE, GLOBAL_BATCH, *(name for name in KNOB_NAMES if name not in BOUND))
Changes = dict[str, Any]
"""New values by knob."""


@dataclass(frozen=True)
class Space:
    """Feasible settings: a value list per knob, joined by `autotune.knobs.constraints`."""

    context: Context
    level: str
    values: Mapping[str, tuple[Any, ...]]
    global_batches: tuple[int, ...]
    """The user's own batch alone below level ``max``."""
    left_out: tuple[LeftOut, ...]
    _bindings: dict[tuple[str, int, int], str | None] = field(default_factory=dict, repr=False, compare=False)
    """What `_idle_binding` has found."""

    def why_not(self, settings: Settings) -> str | None:
        """Return why ``settings`` are not in this space; None if they are. The baseline always is."""
        if settings == self.context.baseline:
            return None
        for name, value in vars(settings).items():
            if value not in self.values[name] and BY_NAME[name].applies(settings):
                return f"{name}={value} is not offered"
        if settings.global_batch not in self.global_batches:
            return f"global batch {settings.global_batch} is not offered at level {self.level}"
        return constraints.why_not(settings, self.context) or self._idle_binding(settings)

    def __contains__(self, settings: Settings) -> bool:
        return self.why_not(settings) is None

    def _idle_binding(self, settings: Settings) -> str | None:
        """Return why the binding does nothing for these processes and threads; remembered, as every candidate asks."""
        key = settings.binding, settings.processes, settings.threads
        if key not in self._bindings:
            reason = binding.why_not(settings, self.context.inventory)
            self._bindings[key] = reason and f"binding={settings.binding}: {reason}"
        return self._bindings[key]

    def enumerate(self) -> Iterator[Settings]:
        """Yield every feasible setting once, canonical. Only for spaces known to be small."""
        seen: set[Settings] = set()
        names = [name for name in KNOB_NAMES if name != "batch_size"]
        for combination in itertools.product(*(self.values[name] for name in names)):
            chosen = dict(zip(names, combination, strict=True))
            for batch in self.global_batches:
                if batch % chosen["processes"]:
                    continue
                settings = Settings(**chosen, batch_size=batch // chosen["processes"])
                if settings not in seen and settings in self:
                    seen.add(settings)
                    yield settings

    def conformed(self, settings: Settings) -> Settings:
        """Find feasible settings close to ``settings`` that hold every fixed value; ``settings`` if there are none.

        The baseline may differ from what the user fixes, in more knobs than one move can change.
        """
        fixed = {name: only[0] for name, only in self.values.items() if len(only) == 1 and name not in BOUND}
        here = settings.but(**fixed)
        reshaped = (self._changed(here, shape) for shape in self._shapes(here))
        return next((found for found in (here, *reshaped) if found in self), settings)

    def moves(self, settings: Settings) -> Iterator[tuple[str, Settings]]:
        """List feasible settings one decision away, as ``(what moves, settings)``."""
        seen = {settings}
        for move in MOVES:
            for changes in self._alternatives(move, settings):
                candidate = self._changed(settings, changes)
                if candidate not in seen and candidate in self:
                    seen.add(candidate)
                    yield move, candidate

    def random_move(self, settings: Settings, pick: Callable[[int], int]) -> Settings | None:
        """Return ``settings`` after one random change; None if what was drawn changes nothing or is not feasible.

        Args:
            settings: where from.
            pick: ``pick(n)`` draws from 0..n-1.
        """
        if not self._open:
            return None
        alternatives = self._alternatives(self._open[pick(len(self._open))], settings)
        if not alternatives:
            return None
        moved = self._changed(settings, alternatives[pick(len(alternatives))])
        return moved if moved in self else None

    @functools.cached_property
    def _open(self) -> tuple[str, ...]:
        """Return the moves of which there is more than one choice."""
        choices = {name: len(values) for name, values in self.values.items()}
        choices |= {SHAPE: choices["processes"] * choices["threads"], GLOBAL_BATCH: len(self.global_batches)}
        return tuple(move for move in MOVES if choices[move] > 1)

    def _alternatives(self, move: str, settings: Settings) -> list[Changes]:
        """List what ``move`` could change in ``settings``. This is cheap: nothing is checked."""
        if move == SHAPE:
            return self._shapes(settings)
        if move == GLOBAL_BATCH:
            processes, own = settings.processes, settings.global_batch
            return [{"batch_size": b // processes} for b in self.global_batches if b != own and b % processes == 0]
        if not BY_NAME[move].applies(settings):
            return []
        return [{move: value} for value in self.values[move] if value != getattr(settings, move)]

    def _shapes(self, settings: Settings) -> list[Changes]:
        """List every other shape: processes, and threads of each, at the same global batch; no two are neighbours.

        Loader workers keep their number in total, or else per process. Processes that are there keep their backend,
        the first ones pick any.
        """
        found: list[Changes] = []
        own, workers = (settings.processes, settings.threads), settings.num_workers
        offered = self.values["backend"]
        backends = (settings.backend,) if settings.backend in offered else offered
        for processes in self.values["processes"]:
            share = workers * settings.processes // processes
            shared = max((count for count in self.values["num_workers"] if count <= share), default=workers)
            each: Changes = {"processes": processes, "batch_size": max(1, settings.global_batch // processes)}
            found += [
                {**each, "threads": threads, "num_workers": count, "backend": backend}
                for threads in self.values["threads"]
                if (processes, threads) != own
                for count in ((shared, workers) if workers else (shared,))
                for backend in (backends if processes > 1 else (None,))
            ]
        return found

    def _changed(self, settings: Settings, changes: Changes) -> Settings:
        """Return ``settings`` with ``changes``; values that the move does not change never forbid it.

        Knobs that did not apply before take a value that is offered, and a binding that does nothing now is dropped.
        """
        after = settings.but(**changes)
        new = [knob.name for knob in KNOBS if knob.applies(after) and not knob.applies(settings)]
        odd = {name: self.values[name][0] for name in new if getattr(after, name) not in self.values[name]}
        if "none" in self.values["binding"] and self._idle_binding(after):
            odd["binding"] = "none"
        return after.but(**odd) if odd else after


def build(context: Context, level: str, fixed: Mapping[str, Any] | None = None) -> Space:
    """Return the space of ``level``.

    Args:
        context: machine, task and baseline.
        level: one of `LEVELS`.
        fixed: values the user fixes with ``--fix``; they override the choices from the knob's own level on.
    """
    held = {name: value for name, value in (fixed or {}).items() if LEVELS[level].includes(BY_NAME[name].level)}
    values: dict[str, tuple[Any, ...]] = {}
    left_out: list[LeftOut] = []
    for knob in KNOBS:
        reasons, own = knob.reasons(context), getattr(context.baseline, knob.name)
        tried = offered(reasons)
        if knob.name in held:
            tried = (held[knob.name],)
        elif not LEVELS[level].includes(knob.level):
            tried = (own,)
        elif own is not None and own not in tried:
            tried = tuple(sorted((*tried, own))) if knob.ordinal else (*tried, own)
        values[knob.name] = tried or (own,)  # else a product of all choices would be empty
        left_out += [
            LeftOut(knob.name, value, why)
            for value, why in reasons.items()
            if why is not None and value != held.get(knob.name)
        ]
    own_batch = not LEVELS[level].any_batch or any(each.knob == "batch_size" for each in context.task.left_out)
    scale = MAX_BATCH_FACTOR if context.noise_scale is None else context.noise_scale  # see docs/decisions/028
    most = MAX_BATCH_FACTOR if "batch_size" in held else min(MAX_BATCH_FACTOR, max(ALWAYS_TRIED, scale))
    batches = (context.baseline.global_batch,) if own_batch else _global_batches(context, most)
    if not own_batch and "batch_size" not in held:
        values["batch_size"] = tuple(batch_shares(*batches))
    if not own_batch and most < MAX_BATCH_FACTOR:
        beyond = context.baseline.global_batch * next(n for n in powers_of_two(MAX_BATCH_FACTOR) if n > most)
        reason = f"beyond the gradient noise scale of {context.noise_scale:.1f} batches: the loss may stay larger"
        left_out.append(LeftOut("batch_size", beyond, reason))
    return Space(context, level, values, batches, tuple(left_out))


def _global_batches(context: Context, most: float) -> tuple[int, ...]:
    """Return the user's batch times powers of two up to ``most``, as far as the data allow."""
    own, samples = context.baseline.global_batch, context.task.samples
    largest = most * own if samples is None else min(most * own, max(own, samples // 8))
    return tuple(own * factor for factor in powers_of_two(MAX_BATCH_FACTOR) if own * factor <= largest)
