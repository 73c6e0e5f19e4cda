"""Moves: the decisions that lead from one complete choice to another.

Most move one knob. Processes, threads, batch and backend hang together, since the global batch and the CPU budget bind
them, and move as one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.knobs.knob import Knob
from autotune.knobs.settings import Settings
from autotune.knobs.table import CONDITIONAL, KNOBS


@dataclass(frozen=True)
class Offered:
    """The choices: values by knob, and global batches."""

    values: Mapping[str, tuple[Any, ...]]
    global_batches: tuple[int, ...]

    def completed(self, before: Settings, after: Settings) -> Settings:
        """Return ``after``, where knobs that did not apply ``before`` take a value that is offered."""
        new = [knob for knob in CONDITIONAL if knob.applies(after) and not knob.applies(before)]
        odd = {k.name: self.values[k.name][0] for k in new if getattr(after, k.name) not in self.values[k.name]}
        return after.but(**odd) if odd else after


@dataclass(frozen=True)
class OneKnob:
    """Another value of one knob."""

    knob: Knob

    @property
    def name(self) -> str:
        """The knob's."""
        return self.knob.name

    def open(self, offered: Offered) -> bool:
        """Return whether the knob has another value."""
        return len(offered.values[self.name]) > 1

    def alternatives(self, offered: Offered, settings: Settings, *, far: bool) -> list[Any]:
        """List values; none where the knob does nothing."""
        if not self.knob.applies(settings):
            return []
        values, current = offered.values[self.name], getattr(settings, self.name)
        if far or not self.knob.ordinal or current not in values:
            return [value for value in values if value != current]
        index = values.index(current)
        return [values[k] for k in (index - 1, index + 1) if 0 <= k < len(values)]

    def take(self, offered: Offered, settings: Settings, alternative: Any) -> Settings:
        """Return ``settings`` with the value."""
        return offered.completed(settings, settings.but(**{self.name: alternative}))


@dataclass(frozen=True)
class Shape:
    """Processes, and threads of each. An alternative is ``(processes, threads, keep workers, backend)``: loader
    workers keep their number per process, or else in total."""

    name: str = "processes x threads"

    def open(self, offered: Offered) -> bool:
        """Return whether there is another shape."""
        return len(offered.values["processes"]) * len(offered.values["threads"]) > 1

    def alternatives(self, offered: Offered, settings: Settings, *, far: bool) -> list[Any]:
        """Every other shape: no two are neighbours."""
        shapes = itertools.product(offered.values["processes"], offered.values["threads"], (False, True))
        own = settings.processes, settings.threads
        other = [shape for shape in shapes if shape[:2] != own and (settings.num_workers or not shape[2])]
        return [(*shape, backend) for shape in other for backend in _exchanges(offered, settings, shape[0])]

    def take(self, offered: Offered, settings: Settings, alternative: Any) -> Settings:
        """The same global batch over other processes."""
        processes, threads, keep_workers, backend = alternative
        workers = settings.num_workers
        if not keep_workers:
            share = workers * settings.processes // processes
            workers = max((count for count in offered.values["num_workers"] if count <= share), default=workers)
        return settings.but(
            processes=processes,
            threads=threads,
            backend=backend,
            batch_size=max(1, settings.global_batch // processes),
            num_workers=workers,
        )


def _exchanges(offered: Offered, settings: Settings, processes: int) -> tuple[str | None, ...]:
    """Choose backends for other processes: those that are there keep theirs, the first ones pick any."""
    if processes == 1:
        return (None,)
    backends = offered.values["backend"]
    return (settings.backend,) if settings.backend in backends else backends


@dataclass(frozen=True)
class GlobalBatch:
    """Another global batch over the same processes."""

    name: str = "global batch"

    def open(self, offered: Offered) -> bool:
        """Return whether there is another batch."""
        return len(offered.global_batches) > 1

    def alternatives(self, offered: Offered, settings: Settings, *, far: bool) -> list[Any]:
        """List global batches that the processes can share equally."""
        batches = offered.global_batches
        return [b for b in batches if b != settings.global_batch and b % settings.processes == 0]

    def take(self, offered: Offered, settings: Settings, alternative: Any) -> Settings:
        """Return ``settings`` with the batch."""
        return settings.but(batch_size=alternative // settings.processes)


Move = OneKnob | Shape | GlobalBatch
"""A decision. `alternatives` are what could be taken instead, cheap to list; `take` gives the settings with one."""
SHAPE = Shape()
BOUND = ("processes", "threads", "batch_size")
"""Knobs that cannot move alone."""
MOVES: tuple[Move, ...] = (SHAPE, GlobalBatch(), *(OneKnob(knob) for knob in KNOBS if knob.name not in BOUND))
