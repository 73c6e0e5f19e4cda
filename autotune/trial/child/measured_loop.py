"""A training loop whose steps are counted and timed. The tuner itself makes them, or the user's script.

What measures is a generator that yields wherever one training step is to be made. So the same code measures a step that
the tuner calls and a step of a script that has its own loop.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from autotune import devices
from autotune.devices import CPU, Device
from autotune.knobs.allocator import give_back_free_memory
from autotune.knobs.change import replace
from autotune.knobs.optimizer_impl import parameters_of
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import MemoryUse
from autotune.probes.cpu_time import Neighbours
from autotune.runtime.fingerprints import digest
from autotune.runtime.processes import of_rank_zero
from autotune.runtime.session import Session
from autotune.stats.measurement import MIN_BLOCK_SECONDS, Block
from autotune.trial import process_tree
from autotune.trial.child.snapshot import Snapshot
from autotune.trial.messages import CHECK_STEPS, ScriptOver, TrialReport, TrialSpec, UnixConnection, Without

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Yields wherever one training step is to be made."""
LIFE_SIGN_SECONDS = 0.5
READ_ELSEWHERE = "your script reads its batches in a thread of its own: nobody knows which step takes which"


def neighbours() -> Neighbours:
    """Measure the CPU time of others from now on. The launcher of this trial and all below it (ranks, workers) are
    none."""
    return Neighbours(os.getppid(), process_tree.tree if process_tree.LISTS_CHILDREN else None)


def _local(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return DistributedDataParallel's ``forward`` whose gradients stay in the process."""

    def local(model: DistributedDataParallel, *inputs: Any, **options: Any) -> Any:
        with model.no_sync():
            return forward(model, *inputs, **options)

    return local


def _no_update(closure: Callable[[], Any] | None = None, **_options: Any) -> Any:
    """Compute what an optimizer's step would compute, but update nothing."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


@dataclass(frozen=True)
class Tuner:
    """The connection of a rank to the tuner. Only rank 0 uses it, unless something is wrong."""

    connection: UnixConnection
    rank: int

    def send(self, event: str, **content: Any) -> None:
        """Send one message."""
        if self.rank == 0:
            self.connection.send({"event": event, **content})

    def report(self, report: TrialReport) -> None:
        """Send the report of a trial: rank 0's, and any that reports an error."""
        if self.rank == 0 or report.error is not None or report.not_applied:
            self.connection.send({"event": "report", "rank": self.rank, "report": asdict(report)})

    def request(self) -> dict[str, Any] | None:
        """Return what the tuner requests next; None at the end."""
        return self.connection.receive()[0]


class MeasuredLoop:
    """Counts and times the steps of one rank, in blocks that all ranks agree on.

    Args:
        session: the runtime with the trial's settings applied.
        spec: the trial.
        tuner: gets signs of life, and what was measured.

    Attributes:
        losses: of the first steps.
        finite: False once a loss was not.
        waited: seconds spent waiting for batches.
        batches: taken so far.
        step_items: items of the last step, on this rank.
        other: seconds of other work so far, such as an evaluation between epochs. They are no part of any step.
        batch: the only one, if the loader is left out.
        loader: prepared; None if it is not known.
        beside: the latest of each kind that is read inside a pass over it, by fingerprint.
        over: True if no further step will come.
        reads_elsewhere: batches are read ahead in another thread than the one that trains.
        starved: training waits for its loader.
        failure: why settings could not be put in force, in a live trial.
        queue_empty_at: how many batches were taken when the loader was last read from its beginning.
        on_batch: called with each batch that is read, in trials that record their first steps.
    """

    loader: Any = None
    batch: Any = None
    on_batch: Callable[[Any], object] | None = None
    over: bool = False
    reads_elsewhere: bool = False
    failure: Exception | None = None
    starved: bool = False
    queue_empty_at: int = 0

    def __init__(self, session: Session, spec: TrialSpec, tuner: Tuner) -> None:
        self.session, self.spec, self.tuner = session, spec, tuner
        self.losses: list[Tensor] = []
        self.finite = True
        self.waited = 0.0
        self.beside: dict[str, Any] = {}
        self.batches = 0
        self.step_items = 0.0
        self.other = 0.0
        self._items, self._load_threads = 0.0, 1.0
        self._total: Tensor | None = None  # on the loss's device: nothing here starts one before the training does
        self._last: Tensor | None = None
        self.start: Snapshot | None = None
        """The state before the first step, in a live trial."""
        self._last_sign_at = time.perf_counter()
        self._knows_peak = True
        self._bytes_before = psutil.Process().memory_info().rss

    def switch(self, settings: Settings) -> None:
        """Put other ``settings`` in force from the next step on. The most memory that is held is counted from here."""
        self.spec = dataclasses.replace(self.spec, settings=settings)
        give_back_free_memory()
        for device in self.devices():
            device.forget_peak_memory()
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            self._knows_peak = False

    def reach_beginning(self, steps: int, pace: float) -> Steps[None]:
        """Train on to where `begin_anew` may be called, for so many ``steps`` of about ``pace`` seconds."""
        yield from ()

    def begin_anew(self, work: Callable[[], object]) -> None:
        """Do ``work``, and read the loader from its beginning from the next step on."""
        raise NotImplementedError

    def asked(self) -> dict[str, Any] | None:
        """Return what the tuner requests next, on every rank; None at the end."""
        request = self.tuner.request() if self.session.rank == 0 else None
        return request if self.session.world_size == 1 else of_rank_zero(request, self.session.device)

    def made_step(self, items: float, loss: Tensor | None = None, *, skipped: bool = False) -> None:
        """Count one training step.

        Args:
            items: that this rank trained on.
            loss: their mean loss, detached; None if it is not known.
            skipped: by the gradient scaler, so that its items do not count.
        """
        if loss is not None:
            mean = loss.reshape(()).float() * self.session.part.weight
            self._total = mean if self._total is None else self._total.to(mean.device) + mean
            self._last = mean
            if len(self.losses) < CHECK_STEPS:
                self.losses.append(mean)
        self.step_items = items
        if not skipped:
            self._items += items
        self.goes_on()

    def next_batch(self, read: Callable[[], Any]) -> Any:
        """Return the next batch that ``read`` gives; always the first if the trial leaves out the loader."""
        first = None if self.batches else (time.process_time(), time.thread_time())
        if self.spec.without is not Without.LOADER:
            batch = self.waits_for(read)
        else:
            if self.batch is None:
                self.batch = read()
            batch = copy.copy(self.batch)  # a step may take entries out of a dictionary
        if first is not None:  # it starts workers, which is no waiting; PyTorch's threads do not spin yet
            self._load_threads = (time.process_time() - first[0]) / max(1e-6, time.thread_time() - first[1])
            self.waited = 0.0
        self.batches += 1
        return batch

    def waits_for(self, read: Callable[[], Any]) -> Any:
        """Return the batch that ``read`` gives. What that takes counts as waiting."""
        asked = time.perf_counter()
        batch = read()
        self.waited += time.perf_counter() - asked
        if self.on_batch is not None:
            self.on_batch(batch)
        return batch

    def load_threads(self) -> float:
        """Return the threads that read samples, on average: in each worker, or in this process if there is none."""
        busy = alone = 0.0
        for pid in process_tree.descendants(os.getpid()):
            with contextlib.suppress(psutil.Error):  # it has ended
                seconds = {each.id: each.user_time + each.system_time for each in psutil.Process(pid).threads()}
                busy, alone = busy + sum(seconds.values()), alone + seconds.get(pid, 0.0)
        return busy / alone if alone else self._load_threads

    def trained_with(self) -> list[Optimizer]:
        """Return the optimizers."""
        return self.session.optimizers

    def buffers(self) -> Iterator[Tensor]:
        """Yield the buffers of all models."""
        return (buffer for model in self.session.models for buffer in model.buffers())

    def weights(self) -> str:
        """Return a digest of all weights that are trained."""
        return digest([parameter.detach() for parameter in parameters_of(*self.trained_with())])

    def memory(self) -> MemoryUse:
        """Return what this process and its loader workers have held."""
        optimizers, workers = self.trained_with(), 0
        states = filter(torch.is_tensor, tree_leaves([dict(each.state) for each in optimizers]))
        kept = [each for each in (*parameters_of(*optimizers), *states) if each.layout is torch.strided]
        held = sum(each.nbytes for each in kept if each.device.type == CPU.type)  # gradients are as large as parameters
        for pid in process_tree.descendants(os.getpid()):
            with contextlib.suppress(psutil.Error):  # it has ended
                workers += psutil.Process(pid).memory_full_info().uss
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return MemoryUse(
            fixed=self._bytes_before + held,
            peak=peak if self._knows_peak else psutil.Process().memory_info().rss,
            workers=workers,
            gpu=max(each.peak_memory() for each in self.devices()),
        )

    def devices(self) -> set[Device]:
        """Return the devices of all that is trained, the session's if nothing is."""
        held = {parameter.device for parameter in parameters_of(*self.trained_with())}
        return {devices.of(each) for each in held or {self.session.device}}

    def last_loss(self) -> Tensor | None:
        """Return the mean loss of the last step, over all processes; None if it is not known."""
        return None if self._last is None else self._over_ranks(self._last)

    def checked_losses(self) -> tuple[float, ...]:
        """Return the loss of the global batch at each of the first steps."""
        return tuple(self._over_ranks(torch.stack(self.losses)).tolist()) if self.losses else ()

    def _over_ranks(self, own: Tensor) -> Tensor:
        """Return the mean of ``own`` over all processes."""
        if self.session.world_size == 1:
            return own
        total = own.clone()
        dist.all_reduce(total)
        return total / self.session.world_size

    def leave_out(self) -> None:
        """Make steps without the part that the trial leaves out, from now on."""
        if self.spec.without is Without.UPDATE:
            for optimizer in self.session.optimizers:
                self.instead_of_steps(optimizer, _no_update)
        elif self.spec.without is Without.GRADIENT_SYNC:
            if self.session.sync is not None:
                self.session.sync.stopped = True
            replace(DistributedDataParallel, "forward", _local)  # the script's own; this process ends with the trial

    def instead_of_steps(self, optimizer: Optimizer, work: Callable[..., Any]) -> Callable[[], None]:
        """Do ``work`` in the place of the steps of ``optimizer``, and count it as one. Return what undoes it."""
        own = optimizer.step

        def step(*arguments: Any, **options: Any) -> Any:
            result = work(*arguments, **options)
            self.steps(optimizer)
            return result

        optimizer.step = step  # type: ignore[method-assign]
        return lambda: setattr(optimizer, "step", own)

    def steps(self, optimizer: Optimizer) -> None:
        """Note that ``optimizer`` has made a step."""

    def go_back(self) -> None:
        """Go back to the state before the first step.

        Raises:
            RuntimeError: it was not kept.
        """
        if self.start is None:
            raise RuntimeError("there is too little memory to keep the state of the first step")
        self.start.restore()
        self._total, self.finite = None, True

    def goes_on(self) -> None:
        """Report that training goes on, twice a second at most."""
        now = time.perf_counter()
        if now - self._last_sign_at > LIFE_SIGN_SECONDS:
            self._last_sign_at = now
            self.tuner.send("phase", phase="stepping")

    def block(self, steps: int) -> Steps[Block]:
        """Make ``steps`` training steps between synchronised clock readings. Items are those of all processes.

        Raises:
            ScriptOver: the script came to its end before.
        """
        used = self.devices()
        self._synchronize(used)
        self._items = 0.0
        others = neighbours()
        started = self.clock()
        for _ in range(steps):
            yield
            if self.over:
                raise ScriptOver
        self._synchronize(used)
        seconds = self.clock() - started
        load = others.load()
        self.finite = self.finite and (self._total is None or bool(torch.isfinite(self._total)))
        items = round(self._items * self.session.world_size)
        return Block(items, seconds, steps, load.wait_share, load.cpus)

    def clock(self) -> float:
        """Return seconds of training: the clock stands still during other work."""
        return time.perf_counter() - self.other

    def _synchronize(self, used: set[Device]) -> None:
        """Wait until the devices ``used`` have finished their work, and the other processes have."""
        for device in used:
            device.synchronize()
        if self.session.world_size > 1:
            dist.barrier()

    def agree(self, steps: int) -> int:
        """Return rank 0's number of steps for the next block, on every rank. 0 ends the trial."""
        if self.session.world_size == 1:
            return steps
        message = torch.tensor([steps], device=self.session.device)
        dist.broadcast(message, src=0)
        return int(message.item())

    def timed(self, steps: int) -> Steps[float]:
        """Take ``steps`` training steps, fewer if the script comes to its end; returns this rank's seconds."""
        used, started = self.devices(), self.clock()
        for _ in range(steps):
            yield
            if self.over:
                break
        for device in used:
            device.synchronize()
        return self.clock() - started

    def steps_for(self, seconds: float, pace: float) -> int:
        """Return whole steps that fill ``seconds`` (at least a block) at ``pace`` seconds per step.

        Batches of workers come in bursts: a block takes as many of each worker, if training waits for them. One of a
        live trial, which has few blocks, takes two queues of them.
        """
        steps = max(1, math.ceil(max(seconds, MIN_BLOCK_SECONDS) / max(pace, 1e-7)))
        settings = self.spec.settings
        if not settings.num_workers or not (self.spec.live or self.starved):
            return steps
        turns = math.ceil(steps / settings.num_workers)
        return settings.num_workers * (max(2 * (settings.prefetch_factor or 1), turns) if self.spec.live else turns)
