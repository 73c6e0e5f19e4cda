"""`Space`: all feasible `Settings` for a machine, a task and a level, with the reason for everything left out."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core import binding, feasibility
from autotune.core.errors import UsageError
from autotune.core.knobs import (
    BY_NAME,
    KNOBS,
    Choices,
    Context,
    includes,
    powers_of_two,
)
from autotune.core.settings import KNOB_NAMES, Settings

MAX_BATCH_FACTOR = 16

BOUND = ("processes", "threads", "batch_size")
"""Knobs that cannot move alone: an equation binds them."""
MOVING = (
    "processes x threads",
    "global batch",
    *(name for name in KNOB_NAMES if name not in BOUND),
)
"""Decisions, one of which is a move."""


@dataclass(frozen=True)
class LeftOut:
    """One value that is not offered, and why."""

    knob: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Space:
    """Feasible settings: a value list per knob, joined by the constraints in `refusal`."""

    context: Context
    level: str
    values: Mapping[str, tuple[Any, ...]]
    global_batches: tuple[int, ...]
    """The user's own batch alone below level ``max``."""
    left_out: tuple[LeftOut, ...]

    def refusal(self, settings: Settings) -> str | None:
        """Why ``settings`` are not in this space; None where they are. The baseline always is."""
        if settings == self.context.baseline:
            return None
        for name, value in vars(settings).items():
            if value not in self.values[name] and not _neutral(settings, name):
                return f"{name}={value} is not offered"
        if settings.global_batch not in self.global_batches:
            return f"global batch {settings.global_batch} is not offered at level {self.level}"
        return feasibility.refusal(settings, self.context) or self._binding(settings)

    def __contains__(self, settings: Settings) -> bool:
        return self.refusal(settings) is None

    def _binding(self, settings: Settings) -> str | None:
        reason = self._idle_binding(settings.binding, settings.processes, settings.threads)
        return f"binding={settings.binding}: {reason}" if reason else None

    @functools.cached_property
    def _idle_binding(self) -> Callable[[str, int, int], str | None]:
        """Why a binding does nothing for so many processes and threads; remembered, as every candidate asks."""

        def reason(name: str, processes: int, threads: int) -> str | None:
            shape = Settings(binding=name, processes=processes, threads=threads)
            return binding.refusal(shape, self.context.inventory)

        return functools.cache(reason)

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
        """Feasible settings close to ``settings`` that hold every pinned value; ``settings`` where there are none.

        The baseline may differ from what the user pins, in more knobs than one move can change.
        """
        pinned = {name: only[0] for name, only in self.values.items() if len(only) == 1 and name not in BOUND}
        here = settings.but(**pinned)
        shapes = self._alternatives("processes x threads", here, far=True)
        reshaped = (self._moved("processes x threads", here, shape) for shape in shapes)
        return next((found for found in (here, *reshaped) if found in self), settings)

    def moves(self, settings: Settings, *, far: bool = False) -> Iterator[tuple[str, Settings]]:
        """Feasible settings one decision away, as ``(what moves, settings)``.

        Ordinal knobs move by one step, or to any other value where ``far``. Knobs bound by an equation move together:
        processes with threads and batch.
        """
        seen = {settings}
        for what in MOVING:
            for value in self._alternatives(what, settings, far=far):
                candidate = self._moved(what, settings, value)
                if candidate not in seen and candidate in self:
                    seen.add(candidate)
                    yield what, candidate

    def replicated(self, settings: Settings) -> Settings | None:
        """The same global batch in one process that drives every GPU; None where that is not feasible."""
        alone = self._reshaped(settings, 1, settings.threads, None, keep_workers=False)
        candidate = alone.but(data_parallel=True, compile="off")
        return candidate if candidate in self else None

    def random_move(self, settings: Settings, pick: Callable[[int], int]) -> Settings | None:
        """One random change of ``settings``; None where what was drawn changes nothing or is not feasible.

        Args:
            settings: where from.
            pick: ``pick(n)`` draws from 0..n-1.
        """
        what = MOVING[pick(len(MOVING))]
        alternatives = self._alternatives(what, settings, far=True)
        if not alternatives:
            return None
        moved = self._moved(what, settings, alternatives[pick(len(alternatives))])
        return moved if moved in self else None

    def _alternatives(self, what: str, settings: Settings, *, far: bool) -> list[Any]:
        """Values that decision ``what`` could take instead: cheap to list, `_moved` makes settings of one."""
        if what == "processes x threads":
            shapes = itertools.product(self.values["processes"], self.values["threads"], (False, True))
            own = settings.processes, settings.threads
            other = [shape for shape in shapes if shape[:2] != own and (settings.num_workers or not shape[2])]
            return [(*shape, backend) for shape in other for backend in self._exchanges(settings, shape[0])]
        if what == "global batch":
            return [b for b in self.global_batches if b != settings.global_batch and b % settings.processes == 0]
        if settings.num_workers == 0 and what in ("prefetch_factor", "persistent_workers"):
            return []
        if what == ("backend" if settings.processes == 1 else "data_parallel"):
            return []
        return _near(self.values[what], getattr(settings, what), ordinal=BY_NAME[what].ordinal and not far)

    def _exchanges(self, settings: Settings, processes: int) -> tuple[str | None, ...]:
        """Backends that other processes may start with: those that are there keep theirs, the first ones pick any."""
        if processes == 1:
            return (None,)
        offered = self.values["backend"]
        return (settings.backend,) if settings.backend in offered else offered

    def _moved(self, what: str, settings: Settings, value: Any) -> Settings:
        if what == "processes x threads":
            processes, threads, keep_workers, backend = value
            return self._reshaped(settings, processes, threads, backend, keep_workers=keep_workers)
        if what == "global batch":
            return settings.but(batch_size=value // settings.processes)
        if what == "num_workers" and settings.num_workers == 0:  # the first workers live as long as the user's own
            return settings.but(num_workers=value, persistent_workers=self.values["persistent_workers"][0])
        return settings.but(**{what: value})

    def _reshaped(
        self, settings: Settings, processes: int, threads: int, backend: str | None, *, keep_workers: bool
    ) -> Settings:
        """Same global batch over other processes; loader workers keep their number per process, or else in total."""
        batch = settings.global_batch
        workers = settings.num_workers
        if not keep_workers:
            share = workers * settings.processes // processes
            workers = max((count for count in self.values["num_workers"] if count <= share), default=workers)
        moved = settings.but(
            processes=processes,
            threads=threads,
            backend=backend,
            batch_size=max(1, batch // processes),
            num_workers=workers,
        )
        # A binding that does nothing for the new shape is dropped, not a reason to refuse the move.
        idle = "none" in self.values["binding"] and self._binding(moved)
        return moved.but(binding="none") if idle else moved


def build(context: Context, level: str, fixed: Mapping[str, Any] | None = None) -> Space:
    """The space of ``level``.

    Args:
        context: machine, task and baseline.
        level: ``safe``, ``amp`` or ``max``.
        fixed: values the user pins with ``--fix``; they override the choices from the knob's own level on.

    Raises:
        UsageError: ``fixed`` names an unknown knob.
    """
    fixed = dict(fixed or {})
    unknown = sorted(set(fixed) - set(KNOB_NAMES))
    if unknown:
        raise UsageError(f"--fix {unknown[0]}: no such knob; knobs are: {', '.join(KNOB_NAMES)}")
    values: dict[str, tuple[Any, ...]] = {}
    left_out: list[LeftOut] = []
    for knob in KNOBS:
        own = getattr(context.baseline, knob.name)
        choices = _offered(knob.choices(context), own, includes(level, knob.level), knob.ordinal)
        pinned = knob.name in fixed and includes(level, knob.level)
        values[knob.name] = (fixed[knob.name],) if pinned else choices.values
        left_out += [LeftOut(knob.name, value, reason) for value, reason in choices.left_out]
    batches = _global_batches(context) if level == "max" else (context.baseline.global_batch,)
    if level == "max" and "batch_size" not in fixed:
        values["batch_size"] = tuple(sorted({b // k for b in batches for k in range(1, 65) if b % k == 0}))
    return Space(context, level, values, batches, tuple(left_out))


def _offered(choices: Choices, baseline: Any, moves: bool, ordinal: bool) -> Choices:
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


def _near(values: tuple[Any, ...], current: Any, *, ordinal: bool) -> list[Any]:
    if not ordinal or current not in values:
        return [value for value in values if value != current]
    index = values.index(current)
    return [values[k] for k in (index - 1, index + 1) if 0 <= k < len(values)]


def _neutral(settings: Settings, name: str) -> bool:
    """True where canonical settings hold a value that no choice lists, because the knob does not apply."""
    if name in ("prefetch_factor", "persistent_workers"):
        return settings.num_workers == 0
    return name == "backend" and settings.processes == 1
