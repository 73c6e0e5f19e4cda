"""`Space`: all feasible `Settings` for a machine, a task and a level, with the reason for everything left out."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.knobs import constraints
from autotune.knobs.knob import Choices, Context, includes, powers_of_two
from autotune.knobs.moves import BOUND, MOVES, SHAPE, Move, Offered
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME, KNOB_NAMES, KNOBS

MAX_BATCH_FACTOR = 32


@dataclass(frozen=True)
class LeftOut:
    """One value that is not offered, and why."""

    knob: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Space:
    """Feasible settings: a value list per knob, joined by `autotune.knobs.constraints`."""

    context: Context
    level: str
    values: Mapping[str, tuple[Any, ...]]
    global_batches: tuple[int, ...]
    """The user's own batch alone below level ``max``."""
    left_out: tuple[LeftOut, ...]

    @functools.cached_property
    def _offered(self) -> Offered:
        return Offered(self.values, self.global_batches)

    @functools.cached_property
    def _open(self) -> tuple[Move, ...]:
        return tuple(move for move in MOVES if move.open(self._offered))

    def why_not(self, settings: Settings) -> str | None:
        """Why ``settings`` are not in this space; None where they are. The baseline always is."""
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
        """Why the binding does nothing for these processes and threads; remembered, as every candidate asks."""
        key = settings.binding, settings.processes, settings.threads
        if key not in self._bindings:
            self._bindings[key] = constraints.why_not_bound(settings, self.context.inventory)
        return self._bindings[key]

    @functools.cached_property
    def _bindings(self) -> dict[tuple[str, int, int], str | None]:
        return {}

    def enumerate(self) -> Iterator[Settings]:
        """Every feasible setting once, canonical. Only for spaces known to be small."""
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
        """Find feasible settings close to ``settings`` that hold every fixed value; ``settings`` where there are none.

        The baseline may differ from what the user fixes, in more knobs than one move can change.
        """
        fixed = {name: only[0] for name, only in self.values.items() if len(only) == 1 and name not in BOUND}
        here = settings.but(**fixed)
        reshaped = (self._taken(SHAPE, here, shape) for shape in SHAPE.alternatives(self._offered, here, far=True))
        return next((found for found in (here, *reshaped) if found in self), settings)

    def moves(self, settings: Settings, *, far: bool = False) -> Iterator[tuple[str, Settings]]:
        """List feasible settings one decision away, as ``(what moves, settings)``.

        Ordinal knobs move by one step, or to any other value where ``far``.
        """
        seen = {settings}
        for move in MOVES:
            for alternative in move.alternatives(self._offered, settings, far=far):
                candidate = self._taken(move, settings, alternative)
                if candidate not in seen and candidate in self:
                    seen.add(candidate)
                    yield move.name, candidate

    def random_move(self, settings: Settings, pick: Callable[[int], int]) -> Settings | None:
        """One random change of ``settings``; None where what was drawn changes nothing or is not feasible.

        Args:
            settings: where from.
            pick: ``pick(n)`` draws from 0..n-1.
        """
        if not self._open:
            return None
        move = self._open[pick(len(self._open))]
        alternatives = move.alternatives(self._offered, settings, far=True)
        if not alternatives:
            return None
        moved = self._taken(move, settings, alternatives[pick(len(alternatives))])
        return moved if moved in self else None

    def _taken(self, move: Move, settings: Settings, alternative: Any) -> Settings:
        """One move. A binding that does nothing afterwards is dropped, which is no reason against the move."""
        moved = move.take(self._offered, settings, alternative)
        idle = "none" in self.values["binding"] and self._idle_binding(moved)
        return moved.but(binding="none") if idle else moved


def build(context: Context, level: str, fixed: Mapping[str, Any] | None = None) -> Space:
    """The space of ``level``.

    Args:
        context: machine, task and baseline.
        level: ``safe``, ``amp`` or ``max``.
        fixed: values the user fixes with ``--fix``; they override the choices from the knob's own level on.
    """
    fixed = dict(fixed or {})
    values: dict[str, tuple[Any, ...]] = {}
    left_out: list[LeftOut] = []
    for knob in KNOBS:
        own = getattr(context.baseline, knob.name)
        offered = _allowed(knob.choices(context), knob.name, own, context.task.left_out)
        choices = _with_baseline(offered, own, includes(level, knob.level), knob.ordinal)
        is_fixed = knob.name in fixed and includes(level, knob.level)
        values[knob.name] = (fixed[knob.name],) if is_fixed else choices.values
        reasons = [(value, why) for value, why in choices.left_out if not (is_fixed and value == fixed[knob.name])]
        left_out += [LeftOut(knob.name, value, reason) for value, reason in reasons]
    keeps_batch = any(name == "batch_size" for name, _value, _reason in context.task.left_out)
    own_batch = level != "max" or keeps_batch
    batches = (context.baseline.global_batch,) if own_batch else _global_batches(context)
    if not own_batch and "batch_size" not in fixed:
        values["batch_size"] = tuple(sorted({b // k for b in batches for k in range(1, 65) if b % k == 0}))
    return Space(context, level, values, batches, tuple(left_out))


def _allowed(choices: Choices, knob: str, baseline: Any, left_out: Sequence[tuple[str, Any, str]]) -> Choices:
    """Return ``choices`` without what the task leaves out."""
    for name, value, reason in left_out:
        if name == knob:
            gone = [v for v in choices.values if v == value or (value is None and v != baseline)]
            kept = tuple(v for v in choices.values if v not in gone)
            choices = Choices(kept, (*choices.left_out, *((v, reason) for v in gone)))
    return choices


def _with_baseline(choices: Choices, baseline: Any, moves: bool, ordinal: bool) -> Choices:
    """The baseline's own value is always a choice; it is the only one where the knob may not move at this level."""
    if not moves:
        return Choices((baseline,), choices.left_out)
    if baseline is None or baseline in choices.values:
        return choices
    values = (*choices.values, baseline)
    return Choices(tuple(sorted(values)) if ordinal else values, choices.left_out)


def _global_batches(context: Context) -> tuple[int, ...]:
    """The user's batch times powers of two, as far as data and the cap allow."""
    own, samples = context.baseline.global_batch, context.task.samples
    most = MAX_BATCH_FACTOR * own if samples is None else min(MAX_BATCH_FACTOR * own, max(own, samples // 8))
    return tuple(own * factor for factor in powers_of_two(MAX_BATCH_FACTOR) if own * factor <= most)
