"""A clock for the parts of a training step, and a sampler of the user's stack.

Both run in a trial of their own. The clock reads the time when a part begins and ends: at the loader's batch, the
outermost call of a trained model, the backward pass, gradient sync and the optimizer's step. What lies between
is the user's own code, but for the loss: that counts with the passes. A sampling thread records which function that is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune import devices
from autotune.inspect.verdict import CLOCKED, Part, Place
from autotune.knobs.change import replace
from autotune.trial.child.beside import above, is_users
from autotune.trial.child.measured_loop import MeasuredLoop

Counted = contextlib.AbstractContextManager[None]
NOTHING = contextlib.nullcontext()
LOOK_SECONDS = 0.002
SCRIPT = "<module>"


class StepClock:
    """Seconds of each part of a training on ``device``, from the construction on or since the last `take`.

    Attributes:
        part: that runs now; None in the trial's own code.
        loading: seconds in the loader in which this thread ran on a CPU.
        callers: the user's functions that lead to the training loop.
    """

    def __init__(self, device: torch.device) -> None:
        self.part: Part | None = Part.LOOP
        self.loading = 0.0
        self.callers: frozenset[CodeType] = frozenset()
        self._device = devices.of(device)
        self._seconds: defaultdict[Part | None, float] = defaultdict(float)
        self._since = time.perf_counter()
        self._outside = Part.LOOP
        """What the user's code outside all parts belongs to."""
        self._inside = False
        """True while a part counts that no other interrupts: the loader, a model's call, the backward pass."""
        self._trained: set[int] = set()
        """The ``id`` of each model that was called."""
        self._has_read = False

    def take(self) -> dict[Part, float]:
        """Return the seconds so far, and start again."""
        self.enter(self.part)
        found = {part: self._seconds[part] for part in CLOCKED}
        self._seconds.clear()
        return found

    def enter(self, part: Part | None) -> None:
        """Count time for ``part`` from now on."""
        self._device.synchronize()
        now = time.perf_counter()
        self._seconds[self.part] += now - self._since
        self.part, self._since = part, now

    @contextlib.contextmanager
    def within(self, part: Part | None, after: Part | None = None) -> Iterator[None]:
        """Count time for ``part``, then for ``after``; by default for the user's own code."""
        inside, self._inside = self._inside, True
        self.enter(part)
        try:
            yield
        finally:
            self._inside = inside
            self.enter(after or self._outside)

    @contextlib.contextmanager
    def load(self, *_: Any) -> Iterator[None]:
        """Count the read of a batch. A script without models computes on it at once."""
        self.callers = frozenset(each.f_code for each in above(sys._getframe()) if is_users(each))
        after = Part.PASSES if self._has_read and not self._trained else Part.LOOP
        began, self._has_read = time.thread_time(), True
        try:
            with self.within(Part.LOADER, after):
                yield
        finally:
            self.loading += time.thread_time() - began

    def call(self, module: nn.Module) -> Counted:
        """Count a model's call. The passes begin with the outermost call of a trained model; an evaluation is the
        user's code."""
        if self._inside or not self._is_trained(module):
            return NOTHING
        if torch.is_grad_enabled():
            return self.within(Part.PASSES, Part.PASSES)
        return self.within(self._outside, self.part)

    def updates(self, *_: Any) -> None:
        """Note that an optimizer's step begins. A closure's passes run inside."""
        self._outside = Part.UPDATE
        self.enter(Part.UPDATE)

    def updated(self, *_: Any) -> None:
        """Note that it ends."""
        self._outside = Part.LOOP
        self.enter(Part.LOOP)

    def _is_trained(self, module: nn.Module) -> bool:
        if id(module) not in self._trained and any(p.requires_grad for p in module.parameters()):
            self._trained.add(id(module))
        return id(module) in self._trained


@contextlib.contextmanager
def step_clock(loop: MeasuredLoop) -> Iterator[StepClock]:
    """Run a clock with the steps of ``loop``; everything is put back afterwards."""
    clock = StepClock(loop.session.device)

    def during(part: Part | None) -> Callable[[Any], Counted]:
        return lambda _: clock.within(part)

    timed_calls: list[tuple[Any, str, Callable[[Any], Counted]]] = [
        (loop, "waits_for", clock.load),
        (loop, "made_step", during(None)),
        (nn.Module, "__call__", clock.call),
        (torch.autograd, "backward", during(Part.PASSES)),
        (Optimizer, "zero_grad", during(Part.UPDATE)),
    ]
    if loop.session.sync is not None:
        timed_calls.append((loop.session.sync, "average", during(Part.GRADIENT_SYNC)))
    with contextlib.ExitStack() as stack:
        for owner, name, counted in timed_calls:
            stack.callback(replace(owner, name, functools.partial(_timed, counted)))
        stack.callback(register_optimizer_step_pre_hook(clock.updates).remove)
        stack.callback(register_optimizer_step_post_hook(clock.updated).remove)
        yield clock


def _timed(counted: Callable[[Any], Counted], work: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``work`` in the context that ``counted`` returns for its first argument."""

    def timed(*arguments: Any, **options: Any) -> Any:
        with counted(arguments[0] if arguments else None):
            return work(*arguments, **options)

    return timed


class StackSampler(threading.Thread):
    """Records every few milliseconds which of the user's functions runs in the calling thread, by part."""

    def __init__(self, clock: StepClock) -> None:
        super().__init__(daemon=True)
        self._clock, self._sampled, self._over = clock, threading.get_ident(), threading.Event()
        self._seen: dict[Part, dict[tuple[str, str, int], Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        """Samples of each line, by part and by function. Each line of a script's top level counts as a function."""
        self._looks: Counter[Part] = Counter()

    def run(self) -> None:
        """Sample until the end."""
        while not self._over.wait(LOOK_SECONDS):
            self._sample()  # in a call of its own, which keeps no frame alive, and so no tensor

    def _sample(self) -> None:
        part, frame = self._clock.part, sys._current_frames().get(self._sampled)
        if part is None or frame is None:
            return
        self._looks[part] += 1
        own = _users_frame(frame, part, self._clock.callers)
        if own is not None:
            code, line = own.f_code, own.f_lineno or own.f_code.co_firstlineno
            self._seen[part][code.co_name, code.co_filename, line if code.co_name == SCRIPT else 0][line] += 1

    def __enter__(self) -> StackSampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def places(self) -> dict[Part, Place]:
        """Return the function in which each part spends most of its time; at a script's top level, the line."""
        found = {}
        for part, seen in self._seen.items():
            (name, file, _), lines = max(seen.items(), key=lambda item: item[1].total())
            line = lines.most_common(1)[0][0]
            found[part] = Place(name, os.path.basename(file), line, lines.total() / self._looks[part])
        return found


def _users_frame(frame: FrameType, part: Part, callers: frozenset[CodeType]) -> FrameType | None:
    """Return the outermost of the user's functions that the training loop, or the ``part``, has called; the loop itself
    if it has called none. None for a part that runs no code of the user. ``callers`` are the loop and what is above."""
    found = None
    for each in above(frame):
        begins = each.f_code.co_filename == __file__
        if begins and (part is not Part.LOOP or found is not None):
            return found
        if is_users(each):
            if each.f_code in callers:
                return found or each
            found = each
    return found
