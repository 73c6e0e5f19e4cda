"""One rank of one trial: load, apply, warm up, measure, report."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.knobs.settings import Settings
from autotune.knobs.worker_threads import set_threads
from autotune.runtime.session import Session
from autotune.trial import process_tree
from autotune.trial.child.measured_loop import MeasuredLoop, Result, Steps, Tuner
from autotune.trial.child.measuring import trying
from autotune.trial.child.script_trial import LoadedScript
from autotune.trial.child.task import UNFINISHED, LoadedTask, check_split, facts, load, with_split
from autotune.trial.messages import Resume, TrialSpec, UnixConnection, error_report
from autotune.trial.target import THREAD_VARIABLES, stated_threads


class TrainingLoop(MeasuredLoop):
    """One rank's model, optimizer and loader, of a task file."""

    def __init__(self, task: LoadedTask, session: Session, spec: TrialSpec, tuner: Tuner) -> None:
        super().__init__(session, spec, tuner)
        self.task = task
        self.model = task.build_model(spec.seed)
        self.optimizer = task.build_optimizer(self.model)
        self.count = task.counter()
        self._prepare()

    def _prepare(self) -> None:
        """Put the session's settings in force, on a new loader."""
        loader = self.task.build_loader(self.spec.settings.global_batch, self.spec.seed)
        self.session.prepare(self.model, self.optimizer, loader)
        self.loader, self.stream = loader, self._batches()
        self.queue_empty_at = self.batches

    def switch(self, settings: Settings) -> None:
        """Put other ``settings`` in force from the next step on."""
        self.stream = iter(())  # its workers end
        self.session.close()
        self.session = Session(settings, device=self.task.device)
        super().switch(settings)
        self._prepare()

    def begin_anew(self, work: Callable[[], object]) -> None:
        """Do ``work``, and read the loader from its beginning from the next step on."""
        work()
        self.stream, self.queue_empty_at = self._batches(), self.batches

    def _batches(self) -> Iterator[Any]:
        while True:
            empty = True
            for batch in self.loader:
                empty = False
                yield batch
            if empty:
                raise ValueError("the DataLoader yielded no batch: the dataset is empty or smaller than one batch")

    def run(self, steps: Steps[Result]) -> Result:
        """Make every step that ``steps`` ask for; returns what they return."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            self.step()

    def step(self) -> None:
        """Make one optimizer step, on one batch."""
        batch = self.next_batch(self.stream.__next__)
        skipped = self.session.skipped_steps
        loss = self.task.loss(self.model, batch)
        self.session.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        items = self.count(batch) * self.session.part.share
        self.made_step(items, loss.detach(), skipped=self.session.skipped_steps != skipped)


def run_rank(spec: TrialSpec, connection: UnixConnection, task: LoadedTask | LoadedScript | Path, rank: int) -> int:
    """Run the trial on this rank and send its report; returns the exit code."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    tuner = Tuner(connection, rank)
    try:
        if not spec.describe:
            _put_back_threads(spec.settings)
        if isinstance(task, LoadedScript):
            return task.try_out(spec, tuner)
        if isinstance(task, Path):
            task = load(task)
        if spec.describe:
            _describe(task, spec.seed, connection)
        else:
            _measure(task, spec, tuner)
        return 0
    except Resume:
        raise
    except BaseException as error:
        tuner.report(error_report(error))
        return 1


def _put_back_threads(settings: Settings) -> None:
    """Give libraries other than PyTorch as many threads as in the user's run: the fork server has loaded them with one.
    Those that are loaded later find the user's own variables."""
    own = stated_threads(os.environ)
    if settings.processes > 1:
        own = {"OMP_NUM_THREADS": settings.threads} | own
    for name in THREAD_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update({name: str(number) for name, number in own.items()})
    cpus = len(os.sched_getaffinity(0)) if process_tree.LINUX else os.cpu_count() or 1
    set_threads(lambda variables: next((own[name] for name in variables if name in own), cpus))


def _describe(task: LoadedTask, seed: int, connection: UnixConnection) -> None:
    """Send the facts, and once more with what the user's step shows: a crash of that must not cost what was sent."""
    found = facts(task, seed)
    connection.send({"event": "facts", "facts": asdict(with_split(found, None, UNFINISHED))})
    connection.send({"event": "facts", "facts": asdict(with_split(found, *check_split(task, seed)))})


def _measure(task: LoadedTask, spec: TrialSpec, tuner: Tuner) -> None:
    """Measure or compare a new loop with the settings in force, and send the report."""
    session = Session(spec.settings, device=task.device, init_method=f"file://{Path.cwd()}/.rendezvous")
    loop = TrainingLoop(task, session, spec, tuner)
    tuner.report(loop.run(trying(loop)))
