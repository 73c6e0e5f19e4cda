"""One trial of a script: its own training loop, with settings in force, measured step by step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotune.runtime.appliers.optimizer import parameters_of
from autotune.runtime.session import Session
from autotune.script.shared_batch import SharedBatch
from autotune.script.tuned import BATCHES, Tuned
from autotune.script.watch import Watch, Watcher
from autotune.trial import process_tree
from autotune.trial.child import script_run
from autotune.trial.child.loaded_task import batch_length
from autotune.trial.child.measured_loop import MeasuredLoop, Steps
from autotune.trial.child.measuring import Tuner, measuring, warming
from autotune.trial.child.reports import send_report
from autotune.trial.child.resume import Resume
from autotune.trial.child.scout import Frontier, leave
from autotune.trial.child.script_witness import Witness, digest
from autotune.trial.isolation.isolate import Isolation
from autotune.trial.script import Script
from autotune.trial.spec import TrialReport, TrialSpec
from autotune.trial.user_errors import error_report

OTHER_SHARE = "a process takes {:g} samples, where its share of the batch is {}"
PARTED = "the weights of the ranks differ at the end of the trial: they trained together in their first steps only"
TOO_SHORT = "the script ended after {} training steps, before the trial was over: let it train for longer"


@dataclass
class LoadedScript:
    """A script whose trials this process can start.

    Attributes:
        script: the user's.
        frontier: where it trains.
        watch: of this process, which stands at the frontier; None where every trial runs the script from its start.
        isolation: of this process, which keeps what the script does from the user's world; None where each trial
            isolates itself.
    """

    script: Script
    frontier: Frontier
    watch: Watch | None
    isolation: Isolation | None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LoadedScript:
        """From `TrialRequest.script`."""
        return cls(Script.from_dict(data["script"]), Frontier(**data["frontier"]), None, None)

    def enter(self, folder: Path) -> None:
        """Isolate a trial from the user's world, and from other trials.

        Args:
            folder: the trial's own, in the study's scratch folder.
        """
        if self.isolation is not None:
            self.isolation.nest(folder)
        else:
            script_run.enter_isolation(self.script, folder.parent)

    def try_out(self, spec: TrialSpec, tuner: Tuner) -> int:
        """Train and measure; returns the exit code of a script that came to its end before the trial did.

        Raises:
            Resume: to the script, which stands at its frontier and trains on.
        """
        watch = self.watch or Watch()
        meter = _Meter(spec, tuner, self.frontier, watch)
        tuned = Tuned(watch, meter.open_session, known_by=self.frontier.facts["script"], skip=self._skip, meter=meter)
        return self._train(watch, tuned, meter.script_ended, spec.settings.processes)

    def testify(self, witness: Witness) -> int:
        """Train, and let ``witness`` tell how; returns the exit code of a script that came to its end before.

        Raises:
            Resume: to the script, which stands at its frontier and trains on.
        """
        watch = self.watch or Watch()
        witness.attend(watch, self._skip)
        return self._train(watch, witness, witness.script_ended, witness.ranks)

    @property
    def _skip(self) -> int:
        """How many loaders are iterated before the training loader."""
        return 0 if self.watch is not None else int(self.frontier.facts["skip"])

    def _train(self, watch: Watch, watcher: Watcher, ended: Callable[[script_run.Ended], int], processes: int) -> int:
        if self.watch is not None:
            raise Resume(watcher, ended)
        watch.watcher = watcher
        if processes > 1:
            watch.shared_batch = self._shared_batch(processes)
        return ended(script_run.run(self.script, watch))

    def _shared_batch(self, processes: int) -> SharedBatch:
        facts = self.frontier.facts
        batch = facts["current"]["batch_size"]
        return SharedBatch(batch, batch // processes, facts["samples"])


class _Meter(MeasuredLoop):
    """Measures the steps of a script: each time one is over, the measuring goes on.

    Args:
        spec: the trial.
        tuner: is told what was measured.
        frontier: of the script.
        watch: is told nothing of what the measuring does itself.
    """

    session: Session

    def __init__(self, spec: TrialSpec, tuner: Tuner, frontier: Frontier, watch: Watch) -> None:
        self.spec, self.tuner, self.frontier, self.watch = spec, tuner, frontier, watch
        self._measured: Steps[TrialReport] | None = None
        self._loss: Tensor | None = None
        self._batch_items = 1.0
        self._made = 0

    def open_session(self) -> Session:
        """Settings in force from here on."""
        device = str(self.frontier.facts["device"])
        return Session(self.spec.settings, device=device, init_method=f"file://{Path.cwd()}/.rendezvous", moves=False)

    def begins(self, session: Session) -> None:
        """The first step begins."""
        if self.spec.without and self.frontier.facts["script"] != BATCHES:
            raise ValueError(f"no step of this script can be seen without its {self.spec.without.value}")
        super().__init__(session, self.spec, self.tuner.show_life)
        self._measured = self._measuring()
        self._go_on()

    def takes(self, batch: Any, waited: float) -> None:
        """A batch has come."""
        self.waited += waited
        self.batches += 1
        if self.frontier.facts["unit"] == "samples":
            self._batch_items = float(batch_length(batch))
        share = self.spec.settings.batch_size
        if self.session.world_size > 1 and self.batches == 1 and self._batch_items != share:
            raise RuntimeError(OTHER_SHARE.format(self._batch_items, share))

    def goes_backward(self, loss: Tensor) -> None:
        """The losses of a step are added up. A step may take long: it may hold twenty of them."""
        self.goes_on()
        if loss.numel() == 1:
            value = loss.detach().reshape(()).float()
            self._loss = value if self._loss is None else self._loss + value

    def ends_step(self, *, interrupted: bool = False) -> None:
        """A step is over: measure on, and end the process where that was the last."""
        self.interrupted = self.interrupted or interrupted
        loss, self._loss = self._loss, None
        self._made += 1
        self.made_step(self._batch_items, loss)
        self._go_on()

    def script_ended(self, ended: script_run.Ended) -> int:
        """The script came to its end before the trial did."""
        report = error_report(ended.failure or RuntimeError(TOO_SHORT.format(self._made)))
        send_report(report, self.tuner.connection, self.tuner.rank)
        return 1

    def _measuring(self) -> Steps[TrialReport]:
        warmed = yield from warming(self, self.tuner)
        told = yield from measuring(self, warmed, self.tuner)
        if self.session.world_size > 1 and not self.spec.without and not self._is_same_everywhere():
            raise RuntimeError(PARTED)
        return told

    def _is_same_everywhere(self) -> bool:
        """Whether all ranks have the same weights, bit for bit."""
        own = digest(parameters_of(*self.watch.optimizers))
        least = torch.tensor(list(bytes.fromhex(own)), device=self.session.device)
        most = least.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return bool((least == most).all())

    def _go_on(self) -> None:
        assert self._measured is not None
        try:
            self.watch.unwatched(self._measured.__next__)
        except StopIteration as end:
            if self.tuner.rank == 0 or end.value.not_applied:
                send_report(end.value, self.tuner.connection, self.tuner.rank)
        except BaseException as error:
            send_report(error_report(error), self.tuner.connection, self.tuner.rank)
            _leave(1)
        else:
            return
        _leave(0)


def _leave(code: int) -> None:
    """End this process and all that the script has started: the surest way out of any script."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # PyTorch would raise where a loader worker is killed
    process_tree.kill_tree(os.getpid(), include_root=False)
    leave(code)
