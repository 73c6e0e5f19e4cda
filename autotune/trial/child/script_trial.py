"""One trial of a script: its own training loop, with settings in force, measured step by step."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.knobs.allocator import raise_mmap_threshold
from autotune.knobs.settings import BY_NAME, Settings
from autotune.knobs.task_facts import TaskFacts
from autotune.runtime import fingerprints
from autotune.runtime.loaders import length, reads_like
from autotune.runtime.processes import agreed, of_rank_zero
from autotune.runtime.sharing import Passing
from autotune.scripts.apply import Applied, Order, SharedBatch, models_trained_by
from autotune.scripts.entry import as_main
from autotune.scripts.hooks import Begin, Hooks, Listener
from autotune.trial import process_tree
from autotune.trial.child import probe_run
from autotune.trial.child.first_steps import MOST_SECONDS
from autotune.trial.child.measured_loop import READ_ELSEWHERE, MeasuredLoop, Steps, Tuner
from autotune.trial.child.measuring import trying
from autotune.trial.child.probe_run import is_training, leave
from autotune.trial.child.script_facts import BACKWARDS, BATCHES, STEPS
from autotune.trial.child.task import batch_length
from autotune.trial.isolation.isolate import Isolation
from autotune.trial.messages import Resume, ScriptOver, TaskContractError, TrialReport, TrialSpec, error_report
from autotune.trial.target import Script

OTHER_SHARE = "a process takes {:g} samples, but its share of the batch is {}"
PARTED = "the weights of the ranks differ at the end of the trial: they trained together in their first steps only"
TOO_SHORT = "the script ended after {} training steps, before the trial was over: let it train for longer"


@dataclass
class LoadedScript:
    """A script whose trials this process can start.

    Attributes:
        script: the user's.
        facts: of it, as the tuner has them.
        skip: how many loaders it will iterate before the training loader.
        isolation: of this process, which keeps the script from the user's files.
        hooks: of this process.
        numbers: state of Python's random numbers at the fork point: a fork seeds them anew. None if every trial
            runs the script from its start.
    """

    script: Script
    facts: TaskFacts
    skip: int
    isolation: Isolation
    hooks: Hooks = field(default_factory=Hooks)
    numbers: tuple[Any, ...] | None = None

    def try_out(self, spec: TrialSpec, tuner: Tuner) -> int:
        """Train, and measure or record; returns the exit code of a script that came to its end before the trial did.

        Raises:
            Resume: to the script, which trains on from its fork point.
        """
        facts, shared = self.facts, None
        self.hooks.threads_wait = False
        if spec.settings.processes > 1:  # each takes its share of the batch that the script states as one
            shared = SharedBatch(facts.current["batch_size"], spec.settings.batch_size, facts.samples)
        if spec.mmap_threshold:
            raise_mmap_threshold(spec.mmap_threshold)
        order = Order(spec.settings, spec.own or spec.settings, facts.compared, None, facts.device, shared)
        loop = ScriptLoop(self, spec, tuner, Applied(order, strict=True))
        if shared is not None:
            self.hooks.share(shared)
        if self.numbers is not None:
            random.setstate(self.numbers)
            raise Resume(loop)
        self.hooks.listener = loop
        return loop.script_ended(probe_run.run(self.script, self.hooks))


class ScriptLoop(MeasuredLoop, Listener):
    """The training loop of a script, measured: each time a step is over, the measuring goes on.

    A step is one of an optimizer, with all batches that were read for it. Epochs end as they do in the script; what it
    does between them, and passes over the training loader in which no optimizer steps, are other work.

    Attributes:
        loader: the latest that the script trains on; None before training begins.
        made: steps so far.
        stepped: True if an optimizer has stepped since the last step was ended, or if none ever did.
        pending: items of the batches that were read since then.
    """

    def __init__(self, loaded: LoadedScript, spec: TrialSpec, tuner: Tuner, applied: Applied) -> None:
        self.facts, self.hooks, self.applied = loaded.facts, loaded.hooks, applied
        if spec.without and self.facts.script != BATCHES:
            raise ValueError(f"no step of this script can be seen without its {spec.without}")
        super().__init__(applied.session, spec, tuner)
        self.stepped = True
        self._left_at = 0.0
        self._skip, self._known_by = loaded.skip, self.facts.script
        self._measured: Steps[TrialReport] | None = None
        self._loss: Tensor | None = None
        self.pending = 0.0
        self.made = 0
        self._stepping: Optimizer | None = None
        self._pass: weakref.ref[_Pass] | None = None
        self._awaits_pass = False
        self._reader = self._trainer = threading.main_thread().ident
        self._batch_items, self._ahead = 0.0, 0

    # What the script does ---------------------------------------------------------------------------------------------

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Count batches of the training loader; leave every other loader alone."""
        if self._known_by != BATCHES or not self._trains_on(loader):
            return self._reads_beside(loader, begin)
        if self.batches:
            self.other += time.perf_counter() - self._left_at
        self.reads()  # the script may have left the pass before in the middle
        self._pass = None
        if self._awaits_pass:
            self._awaits_pass = False
            self._go_on()
        self.prepare(lambda: self.applied.loader(loader))
        self._begin()
        passing = _Pass(self, lambda: self.hooks.unseen(begin))
        self._pass = weakref.ref(passing)
        return passing

    def _reads_beside(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Put settings in force for a loader that is read inside a pass, if the probe run has seen one like it."""
        if self._passing() is None or not is_training(self.hooks) or self.spec.live:  # it could not be read anew
            return begin()
        kind = fingerprints.of_loader(loader)
        if kind not in self.facts.compared.loaders:
            return begin()
        self.beside[kind] = loader
        self.prepare(lambda: self.applied.loader(loader))
        return _PassBeside(self, self.hooks.unseen(begin))

    def _trains_on(self, loader: DataLoader[Any]) -> bool:
        """Return True if ``loader`` is the first that the script iterates in training, or one built like it."""
        if not is_training(self.hooks):
            return False
        if self.loader is None and self._skip > 0:
            self._skip -= 1
            return False
        if self.loader is not None and not reads_like(loader, self.loader, later=self._passing() is None):
            return False
        self.loader = loader
        return True

    def goes_backward(self, loss: Tensor) -> None:
        """Add up the losses of a step. A step may have many, and take long."""
        if self._known_by != BATCHES:
            self._begin()
        if self._measured is None:
            return
        if self._known_by == BACKWARDS and loss.numel() == 1:
            self.ends_step()
        self.goes_on()
        if loss.numel() == 1:
            value = loss.detach().reshape(()).float()
            self._loss = value if self._loss is None else self._loss + value

    def before_step(self, optimizer: Optimizer) -> None:
        """Put settings in force for an optimizer and its models when it first steps."""
        if self._measured is not None or self._known_by == STEPS:
            self.prepare(lambda: self.applied.before_step(optimizer))

    def steps(self, optimizer: Optimizer) -> None:
        """Note that a step was made; count those of the first optimizer that makes one if there is no training
        loader, or one that is read in another thread."""
        self.stepped, self._left_at, self._trainer = True, time.perf_counter(), threading.get_ident()
        self.reads_elsewhere = self._known_by == BATCHES and self._reader != self._trainer
        if self._known_by == BATCHES and not self.reads_elsewhere:
            self._stepping = optimizer
            return
        if self._known_by == BACKWARDS:
            return
        self._begin()
        self._stepping = self._stepping or optimizer
        if optimizer is self._stepping:
            self.ends_step()

    # Measuring --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin the first step."""
        if self._measured is None:
            self._measured = self._measuring()
            self._go_on()

    def reads(self) -> None:
        """End a step if it was made: this thread, if it is the one that trains, begins to read for the next."""
        self._reader = threading.get_ident()
        if self.pending and self.stepped and self._reader == self._trainer:
            self.ends_step()

    def takes(self, batch: Any) -> None:
        """Take a batch of the next step."""
        self._left_at = time.perf_counter()
        items = float(batch_length(batch)) if self.facts.unit == "samples" else 1.0
        self.pending, self._batch_items = self.pending + items, items
        share = self.spec.settings.batch_size
        fixed = self.spec.settings.processes > 1 and not self.spec.evidence
        if fixed and self.batches == 1 and items != share:
            raise RuntimeError(OTHER_SHARE.format(items, share))

    def ends_step(self) -> None:
        """End a step: measure on, and end the process if that was the last."""
        loss, self._loss = self._loss, None
        items, self.pending = (self.pending if self._known_by == BATCHES else 1.0), 0.0
        self.stepped = self._stepping is None
        self.made += 1
        if self.reads_elsewhere:
            self._ahead = self._ahead or self.batches
            items = self._batch_items * max(1, round((self.batches - self._ahead) / max(1, self.made - 1)))
        self.made_step(items, loss)
        if not self._awaits_pass:
            self._go_on()

    def ends_pass(self, began: float, *, trained: bool) -> None:
        """Note that a pass which began at ``began`` is over. If no optimizer stepped in it, it was no training."""
        for device in self.devices():
            device.synchronize()
        self._left_at, self._pass = time.perf_counter(), None
        if not trained and self._reader == self._trainer:
            self.other += self._left_at - began
            self.pending, self._loss = 0.0, None

    def script_ended(self, ended: as_main.Ended) -> int:
        """Report that the script came to its end before the trial did: too early, unless enough was seen."""
        if self.made and ended.failure is None:
            self.over = True
            self._go_on()
        self.tuner.report(error_report(ended.failure or RuntimeError(TOO_SHORT.format(self.made))))
        return 1

    def switch(self, settings: Settings) -> None:
        """Put other ``settings`` in force from the next step on. Loaders that these or those before change are read
        anew: persistent workers would go on."""
        order = self.applied.order
        self.applied.remove()
        self.applied = Applied(dataclasses.replace(order, settings=settings), strict=True)
        self.session = self.applied.session
        super().switch(settings)
        others = map(settings.difference, (order.baseline, order.settings))
        from_own, from_before = (any(BY_NAME[name].applied == "loader" for name in other) for other in others)
        if self.reads_elsewhere:
            self.failure = TaskContractError(READ_ELSEWHERE) if from_own else None
        elif from_own or from_before:
            self._read_anew()

    def reach_beginning(self, steps: int, pace: float) -> Steps[None]:
        """Train on to where the script begins a pass; if that may take long, to where enough of one is left."""
        batches = length(self.loader) if self._known_by == BATCHES else None
        of_step = max(1.0, self.batches / max(1, self.made))
        if batches is not None and batches / of_step <= max(2 * steps, MOST_SECONDS / max(pace, 1e-7)):
            self._awaits_pass = True
            yield
        elif batches is not None:
            while (passing := self._passing()) is not None and passing.left < steps * of_step and not self.over:
                yield
        if self.over:
            raise ScriptOver

    def begin_anew(self, work: Callable[[], object]) -> None:
        """Do ``work``, and read the loader from its beginning from the next step on."""
        work()
        self._read_anew()

    def _read_anew(self) -> None:
        """Read the loader from its beginning, in the pass that runs or in the next one; its workers are new ones."""
        if (passing := self._passing()) is not None:
            passing.begin_anew()
        elif self.loader is not None:
            self.loader._iterator = None

    def _passing(self) -> _Pass | None:
        return self._pass() if self._pass is not None else None

    def _measuring(self) -> Steps[TrialReport]:
        """Make the steps of the trial. Ranks that share the work have the same weights at its end, bit for bit."""
        report = yield from trying(self)
        if self.spec.settings.processes > 1 and not (self.spec.first_steps or self.spec.without):
            own, device = self.weights(), self.session.device
            if not agreed(of_rank_zero(own, device) == own, device):
                raise RuntimeError(PARTED)
        return report

    def trained_with(self) -> list[Optimizer]:
        """Return the script's optimizers."""
        return self.hooks.optimizers

    def buffers(self) -> Iterator[Tensor]:
        """Yield the buffers of all models that are trained."""
        return (buffer for model in models_trained_by(self.hooks.optimizers) for buffer in model.buffers())

    def prepare(self, work: Callable[[], object]) -> None:
        """Put settings in force for what the script trains with."""
        try:
            self.hooks.unseen(work)
        except Exception as error:
            if not self.spec.live:
                raise
            self.failure = error

    def _go_on(self) -> None:
        """Measure on. At the end of the trial, end all that the script has started, and this process: the surest way
        out of any script."""
        assert self._measured is not None
        try:
            self.hooks.unseen(self._measured.__next__)
            return
        except StopIteration as end:
            report, code = end.value, 0
        except BaseException as error:
            short = ScriptOver(TOO_SHORT.format(self.made))
            report, code = error_report(short if isinstance(error, ScriptOver) else error), 1
        self.tuner.report(report)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch would raise if a loader worker is killed
        process_tree.kill_tree(os.getpid(), include_root=False)
        leave(code)


class _PassBeside(Passing):
    """One pass over a loader that the script reads inside a pass over its training loader."""

    def __init__(self, loop: ScriptLoop, inner: Iterator[Any]) -> None:
        super().__init__(inner)
        self._loop = loop

    def __next__(self) -> Any:
        return self._loop.hooks.unseen(lambda: self._loop.waits_for(lambda: next(self._inner)))


class _Pass(Passing):
    """One pass of the script over its training loader. It ends as in the script, also if it is read anew meanwhile."""

    def __init__(self, loop: ScriptLoop, begin: Begin) -> None:
        super().__init__(begin())
        self._loop, self._begin = loop, begin
        self._began = time.perf_counter()
        self._steps_before, self._is_read_anew = loop.made, False
        self._batches = length(loop.loader)
        self.left = math.inf if self._batches is None else self._batches

    def __next__(self) -> Any:
        loop = self._loop
        loop.reads()
        try:
            if (self._is_read_anew or loop.spec.without) and not self.left:
                raise StopIteration
            batch = loop.hooks.unseen(lambda: loop.next_batch(self._next))
        except StopIteration:
            loop.ends_pass(self._began, trained=loop.made > self._steps_before or loop.stepped)
            raise
        self.left -= 1
        loop.takes(batch)
        return batch

    def begin_anew(self) -> None:
        """Read the loader from its beginning, as it is now set up."""
        loop = self._loop
        self._inner, self._is_read_anew = iter(()), True  # its workers end
        loop.loader._iterator = None
        loop.prepare(lambda: loop.applied.loader(loop.loader))
        self._inner = self._begin()
        loop.queue_empty_at = loop.batches

    def _next(self) -> Any:
        try:
            return next(self._inner)
        except StopIteration:
            if not self._is_read_anew or self._batches is None:
                raise
            self._inner = self._begin()
            return next(self._inner)
