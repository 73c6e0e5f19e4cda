"""One trial of a script: its own training loop, with settings in force, measured step by step."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from autotune.runtime.session import Session
from autotune.script.tuned import BATCHES, Tuned
from autotune.script.watch import Watch
from autotune.trial import process_tree
from autotune.trial.child import script_run
from autotune.trial.child.loaded_task import batch_length
from autotune.trial.child.measured_loop import MeasuredLoop, Steps
from autotune.trial.child.measuring import Tuner, measuring, warming
from autotune.trial.child.reports import send_report
from autotune.trial.child.resume import Resume
from autotune.trial.child.scout import Frontier, leave
from autotune.trial.isolation.isolate import Isolation
from autotune.trial.script import Script
from autotune.trial.spec import TrialReport, TrialSpec
from autotune.trial.user_errors import error_report

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
        skip = 0 if self.watch is not None else self.frontier.facts["skip"]
        tuned = Tuned(watch, meter.open_session, known_by=self.frontier.facts["script"], skip=skip, meter=meter)
        if self.watch is not None:
            raise Resume(tuned)
        watch.watcher = tuned
        return meter.script_ended(script_run.run(self.script, watch))


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
            raise ValueError(f"no step of this script can be seen without its {self.spec.without}")
        super().__init__(session, self.spec, self.tuner.show_life)
        self._measured = self._measuring()
        self._go_on()

    def takes(self, batch: Any, waited: float) -> None:
        """A batch has come."""
        self.waited += waited
        self.batches += 1
        if self.frontier.facts["unit"] == "samples":
            self._batch_items = float(batch_length(batch))

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
        return (yield from measuring(self, warmed, self.tuner))

    def _go_on(self) -> None:
        assert self._measured is not None
        try:
            self.watch.unwatched(self._measured.__next__)
        except StopIteration as end:
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
