"""A clock for the parts of a training step, and a look at the user's stack every few milliseconds.

Both run in a trial of their own. The clock reads the time when a part begins and ends: at the loader's batch, the
outermost call of a trained model, the backward pass, the gradient exchange and the optimizer's step. What lies between
is the user's own code. A thread notes which function that is.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from autotune.inspect.inspection import CLOCKED, Part, Place
from autotune.trial.child.measured_loop import MeasuredLoop, synchronize

LOOK_SECONDS = 0.002
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
SCRIPT = "<module>"
OURS = os.path.dirname(os.path.dirname(__file__))
HOST_CALLS = ((builtins, "print"), *((Tensor, name) for name in ("item", "tolist", "numpy")))
"""Between the model's call and the backward pass the user's code computes the loss. These calls do not."""


class StepClock:
    """Seconds of each part, from the construction on or since the last `take`.

    Args:
        device: that trains.

    Attributes:
        part: that runs now; None in the trial's own code.
        loading: seconds in the loader in which this thread ran on a CPU.
        callers: identities of the user's frames that lead to the training loop.
    """

    def __init__(self, device: torch.device) -> None:
        self.part: Part | None = Part.LOOP
        self.loading = 0.0
        self.callers: frozenset[int] = frozenset()
        self._device = device
        self._seconds: dict[Part | None, float] = {}
        self._since = time.perf_counter()
        self._outside = Part.LOOP
        """What the user's code outside all parts belongs to."""
        self._inside = False
        """True in a call of a model and in the backward pass."""
        self._trained: set[int] = set()
        """Identities of models that were called."""
        self._batches = 0

    def take(self) -> dict[Part, float]:
        """Return the seconds so far, and start again."""
        self.enter(self.part)
        found = {part: self._seconds.get(part, 0.0) for part in CLOCKED}
        self._seconds.clear()
        return found

    def enter(self, part: Part | None) -> Part | None:
        """Count time for ``part`` from now on; return whose it was."""
        synchronize(self._device)
        now = time.perf_counter()
        before, self.part = self.part, part
        self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._since = now
        return before

    def during(self, work: Callable[..., Any], part: Part | None) -> Callable[..., Any]:
        """Wrap ``work``, whose time belongs to ``part``. What follows is the user's code again."""

        @functools.wraps(work)
        def timed(*arguments: Any, **options: Any) -> Any:
            inside, self._inside = self._inside, True
            self.enter(part)
            try:
                return work(*arguments, **options)
            finally:
                self._inside = inside
                self.enter(self._outside)

        return timed

    def loads(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``work``, which reads a batch. A script without models computes on it at once."""
        timed = self.during(work, Part.LOADER)

        def load(*arguments: Any) -> Any:
            # Our own frames end with this call, and their identities may be given to others.
            self.callers = frozenset(id(each) for each in above(sys._getframe(1)) if is_users(each))
            began = time.thread_time()
            try:
                return timed(*arguments)
            finally:
                self.loading += time.thread_time() - began
                self._batches += 1
                self.enter(Part.LOOP if self._trained or self._batches == 1 else Part.PASSES)

        return load

    def calls(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `nn.Module.__call__`. From the outermost call of a trained model on, the passes run; an evaluation
        is the user's code."""

        @functools.wraps(call)
        def timed(module: nn.Module, *arguments: Any, **options: Any) -> Any:
            if self._inside or not self._is_trained(module):
                return call(module, *arguments, **options)
            trains = torch.is_grad_enabled()
            before = self.enter(Part.PASSES if trains else self._outside)
            self._inside = True
            try:
                return call(module, *arguments, **options)
            finally:
                self._inside = False
                if not trains:
                    self.enter(before)

        return timed

    def between(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``work``, which is the user's own code also between the model's call and the backward pass."""

        @functools.wraps(work)
        def timed(*arguments: Any, **options: Any) -> Any:
            if self._inside or self.part is not Part.PASSES:
                return work(*arguments, **options)
            self.enter(Part.LOOP)
            try:
                return work(*arguments, **options)
            finally:
                self.enter(Part.PASSES)

        return timed

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
    with contextlib.ExitStack() as stack:

        def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
            original = getattr(owner, name)
            setattr(owner, name, make(original))
            stack.callback(setattr, owner, name, original)

        replace(loop, "next_batch", clock.loads)
        replace(loop, "made_step", lambda work: clock.during(work, None))
        replace(nn.Module, "__call__", clock.calls)
        replace(torch.autograd, "backward", lambda work: clock.during(work, Part.PASSES))
        replace(Optimizer, "zero_grad", lambda work: clock.during(work, Part.UPDATE))
        for owner, name in HOST_CALLS:
            replace(owner, name, clock.between)
        if loop.session.sync is not None:
            replace(loop.session.sync, "exchange", lambda work: clock.during(work, Part.EXCHANGE))
        stack.callback(register_optimizer_step_pre_hook(clock.updates).remove)
        stack.callback(register_optimizer_step_post_hook(clock.updated).remove)
        yield clock


class StackWatch(threading.Thread):
    """Notes every few milliseconds in which of the user's functions the calling thread is.

    Args:
        clock: tells the part.
    """

    def __init__(self, clock: StepClock) -> None:
        super().__init__(daemon=True)
        self._clock, self._watched, self._over = clock, threading.get_ident(), threading.Event()
        self._seen: Counter[tuple[Part, str, str, int]] = Counter()
        self._looks: Counter[Part] = Counter()

    def run(self) -> None:
        """Look until the end."""
        while not self._over.wait(LOOK_SECONDS):
            part, frame = self._clock.part, sys._current_frames().get(self._watched)
            if part is not None and frame is not None:
                self._looks[part] += 1
                own = users_frame(frame, part, self._clock.callers)
                if own is not None:
                    code = own.f_code
                    self._seen[part, code.co_name, code.co_filename, own.f_lineno or code.co_firstlineno] += 1
                del own
            del frame

    def __enter__(self) -> StackWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def places(self) -> dict[Part, Place]:
        """Return the function in which each part spends most of its time."""
        functions: dict[Part, Counter[tuple[str, str, int]]] = {}
        for (part, name, file, line), count in self._seen.items():
            key = name, file, line if name == SCRIPT else 0
            functions.setdefault(part, Counter())[key] += count
        return {part: self._place(part, *found.most_common(1)[0]) for part, found in functions.items()}

    def _place(self, part: Part, function: tuple[str, str, int], count: int) -> Place:
        name, file, own = function
        lines = Counter({key[3]: count for key, count in self._seen.items() if key[:3] == (part, name, file)})
        return Place(name, os.path.basename(file), own or lines.most_common(1)[0][0], count / self._looks[part])


def users_frame(frame: FrameType, part: Part, callers: frozenset[int]) -> FrameType | None:
    """Return the outermost of the user's functions that the training loop, or the ``part``, has called; the loop itself
    if it has called none. None for a part that runs no code of the user.

    Args:
        frame: the innermost one.
        part: that runs.
        callers: identities of the frames of the loop and above it.
    """
    found = None
    for each in above(frame):
        begins = each.f_code.co_filename == __file__
        if begins and (part is not Part.LOOP or found is not None):
            return found
        if is_users(each):
            if id(each) in callers:
                return found or each
            found = each
    return found


def above(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield ``frame`` and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_users(frame: FrameType) -> bool:
    """Return whether ``frame`` runs the user's own code: none of a library, of Python or of this package."""
    file = frame.f_code.co_filename
    return not (file.startswith((*LIBRARIES, OURS, "<")) or any(name in file for name in PACKAGES))
