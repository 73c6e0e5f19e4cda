"""One trial of a script: its own training loop, with settings in force, measured step by step."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.knobs.allocator import raise_thresholds
from autotune.knobs.optimizer_impl import parameters_of
from autotune.knobs.task import TaskFacts
from autotune.runtime.digests import digest
from autotune.runtime.entry import as_main
from autotune.runtime.sharing import Passing
from autotune.scripts.apply import Applied, Order, SharedBatch, models_trained_by
from autotune.scripts.hooks import Begin, Hooks, Listener
from autotune.trial import process_tree
from autotune.trial.child import probe_run
from autotune.trial.child.measured_loop import MeasuredLoop, Steps
from autotune.trial.child.measuring import Tuner, trying
from autotune.trial.child.probe_run import TrainingLoader, leave
from autotune.trial.child.script_facts import BACKWARDS, BATCHES, STEPS
from autotune.trial.child.step_recorder import recording
from autotune.trial.child.task import batch_length
from autotune.trial.isolation.isolate import Isolation
from autotune.trial.messages import Resume, TrialReport, TrialSpec, error_report
from autotune.trial.target import Script

OTHER_SHARE = "a process takes {:g} samples, but its share of the batch is {}"
PARTED = "the weights of the ranks differ at the end of the trial: they trained together in their first steps only"
TOO_SHORT = "the script ended after {} training steps, before the trial was over: let it train for longer"


@dataclass
class LoadedScript:
    """A script whose trials this process can start.

    Attributes:
        script: the user's.
        facts: what the tuner knows of it.
        hooks: of this process, in which the script stands; None if every trial runs the script from its start.
        isolation: of this process, which keeps what the script does from the user's world; None if each trial
            isolates itself, as a new process.
        numbers: state of Python's random numbers where the script stands: a fork seeds them anew.
        skip: how many loaders it will iterate before the training loader.
    """

    script: Script
    facts: TaskFacts
    hooks: Hooks | None
    isolation: Isolation | None
    numbers: object = None
    skip: int = 0

    def enter(self, folder: Path) -> None:
        """Isolate a trial from the user's world, and from other trials.

        Args:
            folder: the trial's own, in the study's scratch folder.
        """
        if self.isolation is not None:
            self.isolation.nest(folder)
        else:
            probe_run.enter_isolation(self.script, folder.parent)

    def try_out(self, spec: TrialSpec, tuner: Tuner) -> int:
        """Train, and measure or record; returns the exit code of a script that came to its end before the trial did.

        Raises:
            Resume: to the script, which stands at its fork point and trains on.
        """
        facts, hooks, shared = self.facts, self.hooks or Hooks(), None
        if spec.settings.processes > 1:  # each takes its share of the batch that the script states as one
            shared = SharedBatch(facts.current["batch_size"], spec.settings.batch_size, facts.samples or 0)
        raise_thresholds()
        order = Order(spec.settings, spec.own or spec.settings, facts.compared, None, facts.device, shared)
        applied = Applied(order, strict=True)
        loop = ScriptLoop(spec, tuner, facts, hooks, applied, TrainingLoader(hooks, self.skip))
        if self.numbers is not None:
            random.setstate(cast(Any, self.numbers))
        if shared is not None:
            hooks.share(shared)
        if self.hooks is not None:
            raise Resume(loop)
        hooks.listener = loop
        return loop.script_ended(probe_run.run(self.script, hooks))


class ScriptLoop(MeasuredLoop, Listener):
    """The training loop of a script, measured: each time a step is over, the measuring goes on.

    Args:
        spec: the trial.
        tuner: gets what was measured.
        facts: what the tuner knows of the script.
        hooks: report nothing of what the measuring does itself.
        applied: the trial's settings.
        training: recognises the loader that the script trains on.
    """

    def __init__(
        self,
        spec: TrialSpec,
        tuner: Tuner,
        facts: TaskFacts,
        hooks: Hooks,
        applied: Applied,
        training: TrainingLoader,
    ) -> None:
        if spec.without and facts.script != BATCHES:
            raise ValueError(f"no step of this script can be seen without its {spec.without}")
        super().__init__(applied.session, spec, tuner.show_life)
        self.tuner, self.facts, self.hooks, self.applied, self.training = tuner, facts, hooks, applied, training
        self._known_by = facts.script
        self._measured: Steps[TrialReport] | None = None
        self._loss: Tensor | None = None
        self._batch_items = 1.0
        self._made = 0
        self._stepping: Optimizer | None = None
        self.step_is_open = False
        """True while the script works on a batch."""

    # What the script does ---------------------------------------------------------------------------------------------

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Count batches of the training loader; leave every other loader alone."""
        if self._known_by != BATCHES or not self.training.is_it(loader):
            return begin()
        self.hooks.unseen(lambda: self.applied.loader(loader))
        self.loader = loader
        self._begin()
        return _Passes(self, lambda: self.hooks.unseen(begin), endless=self.spec.endless)

    def goes_backward(self, loss: Tensor) -> None:
        """Add up the losses of a step. A step may take long: it may hold twenty of them."""
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
            self.hooks.unseen(lambda: self.applied.before_step(optimizer))

    def steps(self, optimizer: Optimizer) -> None:
        """Count the steps of the first optimizer that makes one, if there is no training loader."""
        if self._known_by != STEPS:
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

    def takes(self, batch: Any, waited: float) -> None:
        """Take a batch that has come after ``waited`` seconds."""
        self.waited += waited
        self.batches += 1
        if self.facts.unit == "samples":
            self._batch_items = float(batch_length(batch))
        share = self.spec.settings.batch_size
        fixed = self.spec.settings.processes > 1 and not self.spec.evidence
        if fixed and self.batches == 1 and self._batch_items != share:
            raise RuntimeError(OTHER_SHARE.format(self._batch_items, share))

    def ends_step(self, *, interrupted: bool = False) -> None:
        """End a step: measure on, and end the process if that was the last.

        Args:
            interrupted: other work than training was done meanwhile.
        """
        self.interrupted = self.interrupted or interrupted
        loss, self._loss = self._loss, None
        self._made += 1
        self.made_step(self._batch_items, loss)
        self._go_on()

    def script_ended(self, ended: as_main.Ended) -> int:
        """Report that the script came to its end before the trial did: too early, unless only its first steps count."""
        if not self.spec.endless and self._made and ended.failure is None:
            self.over = True
            self.ends_step()
        self.tuner.report(error_report(ended.failure or RuntimeError(TOO_SHORT.format(self._made))))
        return 1

    def _measuring(self) -> Steps[TrialReport]:
        if self.spec.evidence:
            return (yield from recording(self, self.tuner, self.hooks))
        report = yield from trying(self, self.tuner)
        several = self.spec.settings.processes > 1 and not self.spec.first_steps
        if several and not self.spec.without and not self._is_same_everywhere():
            raise RuntimeError(PARTED)
        return report

    def trained_with(self) -> list[Optimizer]:
        """Return the script's optimizers."""
        return self.hooks.optimizers

    def buffers(self) -> Iterator[Tensor]:
        """Yield the buffers of all models that are trained."""
        return (buffer for model in models_trained_by(self.hooks.optimizers) for buffer in model.buffers())

    def _is_same_everywhere(self) -> bool:
        """Return whether all ranks have the same weights, bit for bit."""
        own = digest([parameter.detach() for parameter in parameters_of(*self.hooks.optimizers)])
        least = torch.tensor(list(bytes.fromhex(own)), device=self.session.device)
        most = least.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return bool((least == most).all())

    def _go_on(self) -> None:
        assert self._measured is not None
        try:
            self.hooks.unseen(self._measured.__next__)
        except StopIteration as end:
            self.tuner.report(end.value)
        except BaseException as error:
            self.tuner.report(error_report(error))
            _leave(1)
        else:
            return
        _leave(0)


class _Passes(Passing):
    """Passes over the training loader; without end in trials that measure, which leave out what is between epochs."""

    def __init__(self, loop: ScriptLoop, begin: Begin, *, endless: bool) -> None:
        super().__init__(begin())
        self._loop, self._begin, self._endless = loop, begin, endless
        self._first = self._empty = True

    def __next__(self) -> Any:
        loop = self._loop
        if loop.step_is_open:
            loop.step_is_open = False
            loop.ends_step(interrupted=self._first)  # the script has left another pass
        self._first = False
        asked = time.perf_counter()
        batch = loop.hooks.unseen(lambda: loop.next_batch(self._next))
        loop.step_is_open, self._empty = True, False
        loop.takes(batch, time.perf_counter() - asked)
        return batch

    def _next(self) -> Any:
        try:
            return next(self._inner)
        except StopIteration:
            if self._empty or not self._endless:
                self._loop.training.passed = True
                raise
            self._inner, self._empty = self._begin(), True
            return next(self._inner)


def _leave(code: int) -> None:
    """End this process and all that the script has started: the surest way out of any script."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch would raise if a loader worker is killed
    process_tree.kill_tree(os.getpid(), include_root=False)
    leave(code)
