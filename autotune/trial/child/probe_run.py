"""Run the user's script as Python itself would, and find where it begins to train: its fork point.

The script runs in a process of its own. If it may begin to train now, it is forked: the parent stops there, and the
child goes on as the probe run. If the probe run trains, the parent serves trials. If it comes to the next such place
without having trained, the parent ends and the probe run takes over. So whatever comes before training is done once.

Just before the first thing that forbids forks (a thread, a CUDA context, shared memory) a copy is kept, too. It serves
if the script cannot be forked where it trains. Not before a process: its queues were made by then, and copies would
share them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing.heap
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from multiprocessing import active_children
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune import devices
from autotune.decoding import decoded
from autotune.knobs.change import Method, replace
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.system import System
from autotune.runtime.loaders import reads_like
from autotune.runtime.sharing import Passing
from autotune.scripts import adapters
from autotune.scripts.apply import models_trained_by
from autotune.scripts.entry import as_main, torchrun
from autotune.scripts.hooks import Begin, Hooks, Listener, place_of
from autotune.trial import process_tree
from autotune.trial.child.beside import above, is_users
from autotune.trial.child.script_facts import BACKWARDS, STEPS, Seen, script_facts
from autotune.trial.isolation.isolate import reopen_files
from autotune.trial.messages import TrialReport, error_report
from autotune.trial.target import Script

SEED = 0
ENOUGH_STEPS = 3
"""Training steps that a probe run looks at."""
ENOUGH_SECONDS = 3.0
NO_VARIABLE = (
    "expected, but not set",
    "int() argument must be a string, a bytes-like object or a real number, not 'None",
)
"""Of ``init_process_group`` ("environment variable RANK expected, but not set") and ``int(os.environ.get("RANK"))``."""
SHARED, SEMAPHORE = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"), "/dev/shm/sem."
"""Where `multiprocessing.Value` and ``share_memory()`` are mapped, and the locks beside them."""
NO_TRAINING = (
    "the script came to its end without a training step that could be seen: no optimizer stepped, and no model of"
    " torch.nn was called in training, in this process. Training in processes of its own cannot be tuned yet"
)
FEW_STEPS = (
    "the script came to its end after {} training step(s), and a trial takes more: let it train for longer while it is"
    " tuned"
)
OWN_PROCESSES = (
    "the script trains in processes of its own (torch.multiprocessing), which cannot be tuned yet: let torchrun start"
    " them"
)


def needs_torchrun(error: BaseException | None) -> bool:
    """Return True if ``error``, which ended a script, may be that a variable is missing that torchrun sets."""
    if isinstance(error, KeyError):
        return bool(error.args) and error.args[0] in torchrun.variables(port=1)
    return isinstance(error, TypeError | ValueError) and any(text in str(error) for text in NO_VARIABLE)


def run(script: Script, hooks: Hooks, asks_for_rank: Callable[[], object] | None = None) -> as_main.Ended:
    """Run ``script`` from its start, with ``hooks`` installed. ``asks_for_rank`` is called once, before a variable is
    read that torchrun sets."""
    os.environ.update(script.variables)
    if script.ranked and "RANK" not in os.environ:
        os.environ.update(torchrun.variables())
    adapters.silence(script.path.read_text(errors="replace") if script.path.is_file() else "")
    hooks.install()
    random.seed(SEED)  # an unseeded script is the same in every trial
    numpy.random.seed(SEED)
    if asks_for_rank is not None:
        _before_rank_is_known(asks_for_rank)
    return as_main.ended(partial(as_main.run, script.words))


def _before_rank_is_known(then: Callable[[], object]) -> None:
    """Call ``then`` once, before the first variable is read that differs between processes."""
    names = torchrun.variables(port=1)
    _once_before([(type(os.environ), "__getitem__")], then, lambda _environment, name: name in names)


def before_forks_are_unsafe(then: Callable[[], object]) -> None:
    """Call ``then`` once, before the first thread or context of a device is started, or memory is shared."""
    device = getattr(torch, devices.built().type, None)
    starts = [(threading.Thread, "start"), (device, "_lazy_init"), (multiprocessing.heap.Arena, "__init__")]
    _once_before([(owner, name) for owner, name in starts if hasattr(owner, name)], then)


def _once_before(
    methods: Iterable[tuple[Any, str]], then: Callable[[], object], counts: Callable[..., bool] = lambda *_: True
) -> None:
    """Call ``then`` once, before the first call of any of ``methods`` that ``counts``. All are put back by then."""
    undo: list[Callable[[], None]] = []

    def first(original: Method) -> Method:
        def call(*arguments: Any, **options: Any) -> Any:
            if undo and counts(*arguments):
                while undo:
                    undo.pop()()
                then()
            return original(*arguments, **options)

        return call

    undo += [replace(owner, name, first) for owner, name in methods]


class ProbeRun(Listener):
    """Observes the script until it trains.

    Args:
        script: the user's.
        hooks: report what it does.
        serve: called in the process at the fork point. It returns in trials only, to whose listener the
            hooks report from then on.
        send: sends the guard of this process an error, or the facts of the script if no process is at the fork point.
    """

    def __init__(
        self,
        script: Script,
        hooks: Hooks,
        serve: Callable[[TaskFacts, int], object],
        send: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self.script, self.hooks = script, hooks
        hooks.threads_wait = True
        self._serve, self._send = serve, send
        self.seen = Seen(hooks)
        self.no_fork_reason: str | None = None
        self._process = os.getpid()
        self._places = self._loaders = 0
        self._verdict: int | None = None
        self._kept: int | None = None
        self._begun_at = ""
        self._pass: weakref.ref[ProbedPass] | None = None
        self._steps = self._backwards = self._batches = 0
        self._all_steps = self._all_backwards = 0
        self._trained_at = 0.0

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Look at a place where training may begin, or at another epoch of a training that has begun."""
        before = self._pass() if self._pass is not None else None
        inside = before is not None and not before.over
        if not is_training(self.hooks) or os.getpid() != self._process:
            return begin()
        if inside:
            self.seen.reads_beside(loader)
            return begin()
        trains_on = self.seen.loader
        if trains_on is not None and (self._steps or self._backwards) and reads_like(loader, trains_on):
            self._look()
        else:
            self._loaders += 1
            if self._is_trial_from_here():
                return self.hooks.listener.iterates(loader, begin)
            self.seen.begin(loader)
        passing = ProbedPass(self.hooks, begin(), self.takes)
        self._pass = weakref.ref(passing)
        return passing

    def calls(self, model: nn.Module) -> None:
        """Look at the first call of a model in training, which is such a place if no loader is iterated."""
        if os.getpid() != self._process:
            return
        if self.seen.loader is None and not self.seen.models and any(p.requires_grad for p in model.parameters()):
            if self._is_trial_from_here():
                self.hooks.listener.calls(model)
                return
            self.seen.begin(known_by=BACKWARDS)
        if not any(model is known for known in self.seen.models):
            self.seen.models.append(model)
        kind = next((parameter.device.type for parameter in model.parameters()), "cpu")
        self.seen.autocasts |= torch.is_autocast_enabled(kind)

    def takes(self, batch: Any) -> Any:
        """Count a batch, and return it: the step before it is over."""
        self._batches += 1
        if self._batches == 1:
            self.seen.batch = batch
        elif self._backwards or self._steps:
            self._look()
        return batch

    def goes_backward(self, loss: Tensor) -> None:
        """Count a backward pass. A model that compiles itself is not seen when it is called."""
        if os.getpid() != self._process:
            return
        if self.hooks.compiles and self.seen.loader is None and not self.seen.models and not self._places:
            if self._is_trial_from_here():
                self.hooks.listener.goes_backward(loss)
                return
            self.seen.begin(known_by=BACKWARDS)
        self._backwards += 1
        self._all_backwards += 1
        self._trained_at = self._trained_at or time.monotonic()
        without_steps = not self._steps and not self.hooks.optimizers
        if self._places and self.seen.loader is None and without_steps:
            self._look(least=2 * ENOUGH_STEPS)

    def steps(self, optimizer: Optimizer) -> None:
        """Count a step of an optimizer."""
        if os.getpid() != self._process:
            self.trains_elsewhere()
        self._steps += 1
        self._all_steps += 1
        self._trained_at = self._trained_at or time.monotonic()
        if self.seen.loader is None:
            if not self._places and self._is_trial_from_here():
                return
            self.seen.known_by = STEPS
            self._look()

    def trains_elsewhere(self) -> None:
        """End the run: the script trains in processes that it has started itself."""
        with contextlib.suppress(OSError):  # another of them was first
            self._send({"error": asdict(TrialReport(error=OWN_PROCESSES, error_type=""))})
        leave(1)

    def script_ended(self, ended: as_main.Ended) -> int:
        """Report why the script has no fork point: it failed, or came to its end before it had trained enough."""
        as_main.flush()
        steps = self._all_steps or self._all_backwards
        report = TrialReport(error=FEW_STEPS.format(steps) if steps else NO_TRAINING, error_type="")
        if ended.failure is not None:
            report = error_report(ended.failure)
        self._send({"error": asdict(report), "needs_torchrun": needs_torchrun(ended.error)})
        return 1

    def _is_trial_from_here(self) -> bool:
        """Fork at this place if possible. Return True in a trial, and False in the probe run."""
        self._places += 1
        self._steps = self._backwards = self._batches = 0
        self._trained_at = 0.0
        if self._verdict is not None:
            os.close(self._verdict)
            self._verdict = None
        self.no_fork_reason = why_not_fork(self._begun_at)
        if self.no_fork_reason is not None:
            return False
        self._verdict = self._stop_here()
        return self._verdict is None

    def keep_copy(self) -> None:
        """Keep a copy of this process before the script does something that forbids forks, if none does by now."""
        self._begun_at = _users_place()
        if os.getpid() == self._process and why_not_fork() is None:
            self._kept = self._stop_here()

    def _stop_here(self) -> int | None:
        """Stop this process here; a fork of it goes on as the probe run, and gets the descriptor to which it writes its
        facts if trials shall begin here. Trials get None. If nothing is written, this process ends."""
        verdict, facts = os.pipe()
        if os.fork() == 0:
            self._process = os.getpid()
            os.close(verdict)
            reopen_files()  # the waiting process will start trials at this place
            return facts
        os.close(facts)
        with open(verdict, "rb") as pipe:
            found = pipe.read()
        if not found:
            os._exit(0)  # the probe run has gone on
        if self._kept is not None:
            os.close(self._kept)
        known = decoded(TaskFacts, json.loads(found))
        self._serve(known, max(0, known.skip - self._loaders))
        return None

    def _look(self, least: int = ENOUGH_STEPS) -> None:
        """End the probe run if it has seen enough."""
        if (self._steps or self._backwards) < least and time.monotonic() - self._trained_at < ENOUGH_SECONDS:
            return
        self.seen.models = self.seen.models or models_trained_by(self.hooks.optimizers)
        skip = 0 if self.seen.loader is None else self._loaders - 1
        if self.no_fork_reason is not None:  # a running training reads only the one loader anew
            self.seen.reads = self.seen.reads[:1]
        facts = self.hooks.unseen(lambda: script_facts(self.script.name, self.seen, skip))
        facts = dataclasses.replace(facts, no_fork_reason=self.no_fork_reason)
        waiting = self._kept if self._verdict is None else self._verdict
        if waiting is not None:
            os.write(waiting, json.dumps(asdict(facts)).encode())
        else:
            self._send(asdict(facts))
        leave()


class ProbedPass(Passing):
    """One pass over a loader that the probe run looks at; ``over`` is True once it has come to its end."""

    def __init__(self, hooks: Hooks, inner: Iterator[Any], takes: Callable[[Any], Any]) -> None:
        super().__init__(inner, takes)
        self._hooks, self.over = hooks, False

    def __next__(self) -> Any:
        try:
            return self._hooks.unseen(super().__next__)
        except StopIteration:
            self.over = True
            raise


def is_training(hooks: Hooks) -> bool:
    """Return True if the script may be training now: gradients are recorded, and there is an optimizer."""
    return torch.is_grad_enabled() and bool(hooks.optimizers)


def leave(code: int = 0) -> None:
    """End this process at once, whatever the script would still do."""
    as_main.flush()
    for child in active_children():
        child.kill()
    os._exit(code)


def _users_place() -> str:
    """Return where the script is now, as ``(train.py:40)``; empty if none of its frames is above."""
    frame = next(filter(is_users, above(sys._getframe())), None)
    return "" if frame is None else f" ({place_of(frame)})"


def why_not_fork(place: str = "") -> str | None:
    """Return why a fork now could hang or corrupt the child; None if it is safe. ``place`` is where that began."""
    device, threads = devices.built(), process_tree.own_threads()
    if device.has_context():
        return f"{device.type.upper()} is started before training{place}"
    if threads > 1:
        return f"{threads - 1} extra thread(s) run before training{place}"
    if "mpi4py.MPI" in sys.modules:
        return "the task imports mpi4py, which has started MPI"
    if children := active_children():  # loader workers answer one process only
        return f"the script runs {len(children)} process(es) of its own by then"
    if device.fails_in_forks():
        return f"a fork cannot start {device.type.upper()}: its driver may have been asked before training{place}"
    return _shared_memory()


def _shared_memory() -> str | None:
    """Return why memory of the script forbids a fork: what one trial writes there, the others would read."""
    maps = System().read("/proc/self/maps") or ""
    paths = (line.split(None, 5)[-1] for line in maps.splitlines() if " rw-s " in line)
    shared = any(path.startswith(SHARED) and not path.startswith(SEMAPHORE) for path in paths)
    return "the script holds shared memory, which trials would change for each other" if shared else None
