"""Judges a trial: exit code, signal and typed report in, `Outcome` out. Text is looked at last."""

from __future__ import annotations

import itertools
import math
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.errors import cut
from autotune.knobs.memory import size
from autotune.knobs.settings import KNOBS, Settings
from autotune.stats.outcome import (
    BUDGET_OVER,
    Compared,
    Completed,
    Crashed,
    NotApplied,
    Outcome,
    OutOfMemory,
    TimedOut,
    WrongNumbers,
)
from autotune.trial.messages import TrialReport

LOSS_TOLERANCE = 0.02
"""Largest relative distance from the fp32 baseline's mean loss over the checked steps; `Knob.loss_tolerance` may allow
more."""
OTHER_BATCH_TOLERANCE = 0.3
NOISE_FACTOR = 4.0
SHM_FULL = "/dev/shm is too small for the batches that loader workers hand over (docker: --shm-size)"
MAX_SKIPPED = 0.10
OOM_TYPES = (
    "torch.OutOfMemoryError",
    "torch.cuda.OutOfMemoryError",
    "MemoryError",
    "numpy._core._exceptions.MemoryError",  # its class is _ArrayMemoryError, its __name__ is not
    "numpy.core._exceptions.MemoryError",
)
OOM_TEXTS = {
    "shm": r"(?i:insufficient shared memory|bus error|No space left on device.*shm|unable to (mmap|allocate shared)"
    r"|unable to write to file </torch_)",
    "device": r"(CUDA|HIP)( error:)? out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|MPS backend out of memory"
    r"|NVML_SUCCESS == .*INTERNAL ASSERT|unable to find an engine",
    "host": r"DefaultCPUAllocator: (can't allocate|not enough) memory|Cannot allocate memory"
    r"|_ArrayMemoryError: Unable to allocate",
}
"""Which memory ran out -> the messages of that."""
NETWORK_TYPES = re.compile(
    r"gaierror|URLError|OfflineModeIsEnabled|LocalEntryNotFoundError|EndpointConnectionError|NewConnectionError"
    r"|MaxRetryError|ConnectTimeout|ConnectError|ClientConnector\w*Error|Proxy\w*Error|CommError|SSLError"
)
NETWORK_TEXTS = re.compile(
    r"Network is unreachable|Temporary failure in name resolution|Name or service not known|nodename nor servname"
    r"|No address associated with hostname|Failed to resolve|Max retries exceeded|Failed to establish a new connection"
    r"|offline mode|HF_HUB_OFFLINE|--allow-network|couldn't connect to|Couldn't reach|Could not resolve host"
    r"|Connection error|unable to connect to",
    re.IGNORECASE,
)
WRITES = {
    r"\[Errno 28\]|No space left on device|os error 28|ENOSPC": (
        "the script wrote more than the {:.1f} GiB that a trial may write, which are kept in memory"
    ),
    "a trial may not write here": (
        "the script writes outside its working folder, and this system cannot undo that after a trial"
    ),
    r"\[Errno 30\]|Read-only file system": "the script writes to a filesystem that a trial can only read",
    r"\[Errno 75\]|Value too large for defined data type": (
        "the script changes files of another user, which a trial without privileges cannot copy"
    ),
    r"\[Errno 18\]|Invalid cross-device link": (
        "the script moves a folder that was there before, or a file to another folder, which a trial here cannot"
    ),
}
"""Text of the error after a write that a trial may not make -> why it failed."""


@dataclass
class TrialEnd:
    """What is known of a trial's processes, from the first message to the end of the last of them.

    Attributes:
        report: the first report that carries an error, else rank 0's; None if none came.
        rank_codes: exit code of every rank that ended by itself (negative: signal), in order.
        code: exit code of the launcher; None while it runs.
        timed_out: phase in which the watchdog ended it; None if it did not.
        oom_kills: how much the memory cgroup's kill counter rose meanwhile; None if there is no counter.
        log: tail of what the trial printed.
        seconds: from request to end.
        start_seconds: from request to the end of the first training step.
    """

    report: TrialReport | None = None
    rank_codes: tuple[int, ...] = ()
    code: int | None = None
    timed_out: str | None = None
    oom_kills: int | None = None
    log: str = ""
    seconds: float = 0.0
    start_seconds: float = 0.0


def judge(end: TrialEnd) -> Outcome:
    """Return the outcome of a trial by how it ended. Losses are judged apart, by `check_losses`."""
    report, killed = end.report, any(code < 0 for code in end.rank_codes)
    if report is not None and report.error_type is not None and not (killed and lost_its_peer(report)):
        return _raised(report, end)
    if report is None or report.error_type is not None or killed:
        return how_it_ended(end)
    if report.not_applied:
        knob, reason = report.not_applied[0]
        return NotApplied(f"{knob}: {reason}", knob=knob)
    if report.differences is not None:
        return Compared(differences=report.differences, draws=report.draws)
    wrong = next((number for number, loss in enumerate(report.losses, 1) if not math.isfinite(loss)), None)
    if not report.finite or wrong is not None:
        return WrongNumbers(f"the loss became NaN or infinite{'' if wrong is None else f' in step {wrong}'}")
    assert report.measurement is not None
    steps = sum(block.steps for block in report.measurement.blocks) + report.measurement.warmup_steps
    if report.measurement.skipped_steps > MAX_SKIPPED * steps:
        return WrongNumbers(f"the GradScaler skipped {report.measurement.skipped_steps} of {steps} steps")
    return Completed(
        measurement=report.measurement,
        losses=report.losses,
        seconds=end.seconds,
        start_seconds=end.start_seconds,
    )


def loss_tolerance(settings: Settings) -> float:
    """Return by how much losses may differ: what the coarsest of the settings' values allows."""
    return max(knob.loss_tolerance.get(getattr(settings, knob.name), LOSS_TOLERANCE) for knob in KNOBS)


def lost_its_peer(report: TrialReport) -> bool:
    """Return True if the error only means that another rank is gone."""
    return any(text in (report.error or "") for text in ("closed by peer", "Connection reset by peer"))


def most_informative(reports: Sequence[TrialReport]) -> TrialReport | None:
    """Return the first error, lost peers last; else a knob that did not take effect, else any report."""
    errors = [report for report in reports if report.error_type is not None]
    own = [report for report in errors if not lost_its_peer(report)]
    lacking = [report for report in reports if report.not_applied]
    return next(iter((*own, *errors, *lacking, *reports)), None)


def _raised(report: TrialReport, end: TrialEnd) -> Outcome:
    text, kind = report.error or "", report.error_type or ""
    if kind == "SystemExit":
        return Crashed(f"called sys.exit({text}) before the trial was over", report.traceback)
    text = text if not text.startswith("Caught ") else short(text, len(text))
    worker_killed = re.search(r"DataLoader worker .*(killed by signal: Killed|exited unexpectedly)", text)
    if worker_killed and end.oom_kills:
        return OutOfMemory("the kernel killed a loader worker: memory limit reached", report.traceback, where="host")
    where = out_of_memory(kind, text)
    if where:
        words = SHM_FULL if where == "shm" else f"{kind}: {short(text)}"
        return OutOfMemory(words, report.traceback, where=where)
    return Crashed(replace(report, error=short(text)).sentence, report.traceback)


def out_of_memory(kind: str, text: str) -> str | None:
    """Return ``host``, ``device`` or ``shm`` if an exception means that memory ran out: by its class, then its text."""
    if kind in OOM_TYPES:
        return "device" if "OutOfMemoryError" in kind else "host"
    if kind in ("RuntimeError", "OSError", "torch.AcceleratorError"):
        return next((where for where, pattern in OOM_TEXTS.items() if re.search(pattern, text)), None)
    return None


def how_it_ended(end: TrialEnd) -> Outcome:
    """Return the outcome of a trial that ended without a report of its own: by timeout, exit code or signal."""
    if end.timed_out == BUDGET_OVER:
        return TimedOut("its share of the budget ended before it was measured", end.log, phase=BUDGET_OVER)
    if end.timed_out is not None:
        return TimedOut(f"no progress while {end.timed_out}", end.log, phase=end.timed_out)
    codes = [code for code in (*end.rank_codes, end.code or 0) if code != 0]
    code = next((code for code in codes if code < 0), codes[0] if codes else 0)  # a signal explains more
    if code in (-signal.SIGBUS, 128 + signal.SIGBUS):
        return OutOfMemory(SHM_FULL, end.log, where="shm")
    if code == -signal.SIGKILL:
        if end.oom_kills:
            return OutOfMemory("the kernel killed the process: memory limit reached", end.log, where="host")
        return Crashed("killed by SIGKILL from outside", end.log)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Crashed(f"ended by {name}", end.log)
    return Crashed(f"the process ended by itself with exit code {code} before the trial was over", end.log)


def check_losses(
    outcome: Outcome, settings: Settings, reference: Sequence[float], *, same_batch: bool = True
) -> Outcome:
    """Return ``outcome``, or `WrongNumbers` if its losses do not track those of the fp32 baseline.

    The mean over the checked steps is compared, with a tolerance by precision. It is wider if losses scatter from step
    to step: random augmentations and dropout draw differently in other processes. With another global batch the
    steps are not the same, so only a large difference counts.
    """
    if not isinstance(outcome, Completed) or not reference or not outcome.losses:
        return outcome
    count = min(len(reference), len(outcome.losses))
    theirs, ours = list(reference[:count]), list(outcome.losses[:count])
    scale = max(abs(sum(theirs) / count), 1e-6)
    distance = abs(sum(ours) - sum(theirs)) / count
    steps = [abs(b - a) for a, b in itertools.pairwise(theirs)]
    scatter = sum(steps) / len(steps) / math.sqrt(count) if steps else 0.0
    tolerance = loss_tolerance(settings) if same_batch else OTHER_BATCH_TOLERANCE
    allowed = max(tolerance * scale, NOISE_FACTOR * scatter)
    if distance <= allowed:
        return outcome
    return WrongNumbers(
        f"losses do not track the fp32 baseline: mean {sum(ours) / count:.4g} against {sum(theirs) / count:.4g}"
        f" over the first {count} steps"
    )


def check_memory(outcome: Outcome, settings: Settings, most: int | None, most_gpu: int | None) -> Outcome:
    """Return ``outcome``, or `OutOfMemory` if a trial held more bytes of the host or of a GPU than it may."""
    if outcome.measurement is None:
        return outcome
    used, held = outcome.measurement.memory, outcome.measurement.memory.host(settings.processes)
    if most is not None and held > most:
        return OutOfMemory(f"held {size(held)} of memory; --max-memory is {size(most)}", where="host")
    if most_gpu is not None and used.gpu > most_gpu:
        return OutOfMemory(f"held {size(used.gpu)} of a GPU; --max-gpu-memory is {size(most_gpu)}", where="device")
    return outcome


def short(text: str, width: int = 160) -> str:
    """Return the most useful line of a message, cut to ``width``: the first; the last if torch wrapped a worker's."""
    lines = text.strip().splitlines() or ["no message"]
    return cut(lines[-1 if lines[0].startswith("Caught ") else 0].strip(), width)


def explain(error_type: str, text: str, *, network: bool, limit: int) -> str | None:
    """Return why a script that runs elsewhere fails in a trial, and what to do; None if a trial is not the reason.

    Args:
        error_type: of the exception that ended it, as `autotune.trial.messages.TrialReport` names it.
        text: of the exception, or the end of the log.
        network: whether the trial had the network.
        limit: bytes that it might write.
    """
    if not network and (NETWORK_TYPES.search(error_type) or NETWORK_TEXTS.search(text)):
        return "the script needs the network, which trials do not have: pass --allow-network, or run it once by itself"
    if error_type == "SystemExit" and text == "2":
        return "the script refused its arguments, which follow it: autotune tune SCRIPT ARGS"
    if error_type == "EOFError" and "EOF when reading a line" in text:
        return "the script asks for input, which trials do not have: let it take that from its arguments"
    return next((why.format(limit / 2**30) for pattern, why in WRITES.items() if re.search(pattern, text)), None)
