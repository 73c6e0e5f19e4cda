"""Messages between the tuner and its trial processes: JSON-able frozen data over a Unix socket."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from autotune.knobs.allocator import GLIBC_RAISES_TO
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import TaskFacts
from autotune.stats.measurement import Measurement

CHECK_STEPS = 8
"""Optimizer steps at the start of every trial whose losses are compared with the fp32 baseline."""
EVIDENCE_STEPS = 3
"""Optimizer steps of a rank of a script that are recorded to find if several ranks share the work of one."""
OURS = str(Path(__file__).resolve().parents[1])
MAX_MESSAGE = 128 * 1024
IN_FILE = "content is in the last descriptor"
KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
"""macOS has no SEQPACKET for Unix sockets; datagrams keep borders too (but never signal the end)."""


class Without(str, Enum):
    """The part of a training step that a trial leaves out, to measure what the step takes without it."""

    NOTHING = ""
    LOADER = "loader"
    """Every step trains on the first batch."""
    UPDATE = "optimizer"
    """The optimizer's step changes nothing."""
    GRADIENT_SYNC = "gradient_sync"
    """Gradients stay in each process."""


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """One trial: which settings, how long, with which seed. Last is what the tuner adds when it starts it."""

    settings: Settings
    seed: int = 0
    min_seconds: float = 0.3
    """Least measured time after warm-up."""
    max_seconds: float = 1.0
    """Most measured time after warm-up."""
    target_error: float = 0.015
    """Stop at this relative standard error."""
    warmup_seconds: float = 2.0
    """Cap on the warm-up; past it the trial measures anyway."""
    give_up_below: float = 0.0
    """Stop early, after warm-up, once the rate is clearly below this (items per second)."""
    resident: bool = False
    """Stay after warm-up and measure a block whenever the parent asks (race and proof)."""
    without: Without = Without.NOTHING
    """The part that every step leaves out."""
    own: Settings | None = None
    """The user's own settings: in a script, knobs with equal values are left alone."""
    first_steps: str = ""
    """File of the baseline's first steps: recorded there if there is none, else compared with the trial's own."""
    live: bool = False
    """Of a resident trial: its settings may change from block to block. What fails to be put in force ends nothing."""
    mmap_threshold: int = GLIBC_RAISES_TO
    """Let a script's memory be as in its run, see `autotune.knobs.allocator.raise_mmap_threshold`; 0 lets it alone."""
    evidence: bool = False
    """Of a script: measure nothing, but send each rank's `RankEvidence`."""
    describe: bool = False
    """Of a task file: measure nothing, but send its `TaskFacts`, and once more with what its step shows."""
    inspect: str = ""
    """Measure by this function in place of blocks: ``module:name`` of a generator that is called with the warm loop
    and the seconds of a step. What it returns is `TrialReport.inspection`. Empty for blocks."""
    folder: str = ""
    """The trial's own."""
    binding: str = ""
    """`autotune.knobs.binding.AffinityPlan` as text; empty if nothing is bound."""
    facts: TaskFacts | None = None
    """Of an unmodified script; None for a task."""


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """The report of a child on its own trial. One of ``measurement``, ``error`` and ``differences`` is set."""

    measurement: Measurement | None = None
    losses: tuple[float, ...] = ()
    finite: bool = True
    error: str | None = None
    """Short text of the exception that ended it."""
    error_type: str | None = None
    """Its class; empty if ``error`` is a sentence of ours, to which a class and a traceback would add nothing."""
    traceback: str = ""
    over: bool = False
    """The script came to its own end."""
    not_applied: tuple[tuple[str, str], ...] = ()
    """``(knob, reason)`` for everything asked that did not take effect."""
    differences: tuple[tuple[str, str], ...] | None = None
    """``(what, how)`` of first steps that were compared; empty if they are the same, or were recorded."""
    draws: bool = False
    """True if reading samples draws random numbers."""
    inspection: Mapping[str, Any] | None = None
    """What `TrialSpec.inspect` has found, as plain data."""

    @property
    def sentence(self) -> str:
        """Return the error in words."""
        return ": ".join(filter(None, (self.error_type, self.error)))


@dataclass(frozen=True, kw_only=True)
class RankEvidence:
    """One rank's first training steps.

    Attributes:
        rank: the process.
        world: ranks of the process group; 1 if there is none.
        backend: what the group exchanges tensors of the CPU with; empty if there is none.
        samples: of the first batch.
        batches: digest of each of the first batches.
        epoch: batches of one pass over the loader; None if it is not known.
        batches_per_step: between two optimizer steps, on average.
        weights: digest of all weights that optimizers hold, after the last step.
        changed: True if steps have changed the weights.
        gradient: norm of the gradients of a step, as a geometric mean.
        options: of the optimizers' parameter groups, at the last step: learning rates and the like.
        schedules: how often each learning rate scheduler has stepped.
        loader: fingerprint of the loader that it trains on.
        advice: how a framework that the script uses starts processes, in words.
    """

    rank: int
    world: int
    backend: str
    samples: int
    batches: tuple[str, ...]
    epoch: int | None
    batches_per_step: float
    weights: str
    changed: bool
    gradient: float
    options: tuple[Mapping[str, Any], ...]
    schedules: tuple[int, ...]
    loader: str = ""
    advice: str = ""


class TaskContractError(TypeError):
    """In a trial: what the user's code does not allow. Its text needs no traceback."""


class ScriptOver(Exception):
    """In a trial: the script has come to its own end in the middle of a block."""


def error_report(error: BaseException) -> TrialReport:
    """Return the report of an exception; its traceback starts at the user's first frame."""
    if isinstance(error, TaskContractError):
        return TrialReport(error=str(error), error_type="")
    if isinstance(error, ScriptOver):
        return TrialReport(error=str(error), error_type="", over=True)
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return TrialReport(error=str(error), error_type=name, traceback=user_traceback(error))


def user_traceback(error: BaseException) -> str:
    """Return the traceback from the user's first frame on: our own frames above it do not help the user."""
    position = error.__traceback__
    while position is not None and position.tb_frame.f_code.co_filename.startswith((OURS, "<frozen importlib")):
        position = position.tb_next
    start = position if position is not None else error.__traceback__
    return "".join(traceback.format_exception(type(error), error, start))


class UnixConnection:
    """One end of a connected pair of sockets, which carries JSON and keeps message borders.

    A ``SOCK_SEQPACKET`` socket may be written by several processes at once without mixing their messages, passes file
    descriptors, and needs no file name, no port and no framing. What is too long for a message goes in a file without
    a name, whose descriptor the message passes.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @classmethod
    def pair(cls) -> tuple[UnixConnection, UnixConnection]:
        """Return two connected ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, KIND)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE)
        return cls(ours), cls(theirs)

    @classmethod
    def from_fd(cls, fd: int) -> UnixConnection:
        """Return the end behind an inherited descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Return the descriptor that `EventLoop` waits for."""
        return self.socket.fileno()

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send one message, and descriptors with it. Raises OSError when the other end is gone."""
        data = json.dumps(message, default=os.fspath).encode()
        if len(data) > MAX_MESSAGE:
            with tempfile.TemporaryFile() as file:
                file.write(data)
                file.flush()
                self.send({IN_FILE: True}, (*fds, file.fileno()))
        elif fds:
            socket.send_fds(self.socket, [data], list(fds))
        else:
            self.socket.send(data)

    def receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        """Return the next message and its descriptors; None if the other end is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.socket, MAX_MESSAGE, 4)
        except ConnectionResetError:
            return None, []
        message = json.loads(data) if data else None
        if message == {IN_FILE: True}:
            with open(fds.pop(), "rb") as file:
                file.seek(0)
                message = json.load(file)
        return message, fds

    def close(self) -> None:
        """Close this end."""
        self.socket.close()


class Resume(BaseException):
    """Unwinds to the script, which goes on as a trial, observed by a `autotune.scripts.hooks.Listener`."""

    def __init__(self, listener: Any) -> None:
        super().__init__()
        self.listener = listener
