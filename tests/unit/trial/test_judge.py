"""How trials end, as data, and what is made of it. Real processes do the same in `test_misbehaving`."""

import errno
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from autotune.knobs.precision import PRECISION
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import MemoryUse
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import (
    BUDGET_OVER,
    Completed,
    Crashed,
    NotApplied,
    Outcome,
    OutOfMemory,
    TimedOut,
    WrongNumbers,
)
from autotune.trial.isolation import redirected as guard
from autotune.trial.messages import TrialReport
from autotune.trial.parent.judge import (
    OTHER_BATCH_TOLERANCE,
    SHM_FULL,
    TrialEnd,
    check_losses,
    check_memory,
    explain,
    judge,
    loss_tolerance,
    most_informative,
    out_of_memory,
    short,
)

OWN = Settings(threads=1, batch_size=8)
MEASURED = Measurement((Block(80, 1.0, 10), Block(80, 1.0, 10)), warmup_seconds=0.3, warmup_steps=5)
GOOD = TrialReport(measurement=MEASURED, losses=(1.0, 0.9, 0.8))
KILLED = "DataLoader worker (pid 7) is killed by signal: Killed."
GONE = "DataLoader worker (pid(s) 7, 8) exited unexpectedly"
WORKER_KILLED = "the kernel killed a loader worker: memory limit reached"
BY_ITSELF = "the process ended by itself with exit code {} before the trial was over"
KERNEL = "the kernel killed the process: memory limit reached"
NAN = WrongNumbers("the loss became NaN or infinite")
LOST_PEER = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"


def raised(kind: str, text: str, traceback: str = "Traceback") -> TrialReport:
    return TrialReport(error=text, error_type=kind, traceback=traceback)


def ended(report: TrialReport | None = None, *codes: int, code: int | None = None, **more: Any) -> TrialEnd:
    """An end with these ranks' codes; the launcher's follows from them where it is not given."""
    launcher = code if code is not None else int(any(codes))
    return TrialEnd(report=report, rank_codes=codes or (0,), code=launcher, **more)


TABLE: list[tuple[str, TrialEnd, Outcome]] = [
    ("measured", ended(GOOD), Completed(measurement=MEASURED, losses=GOOD.losses)),
    (
        "what it cost is kept",
        ended(GOOD, seconds=3.0, start_seconds=1.0),
        Completed(measurement=MEASURED, losses=GOOD.losses, seconds=3.0, start_seconds=1.0),
    ),
    ("raised", ended(raised("ValueError", "bad shape"), 1), Crashed("ValueError: bad shape", "Traceback")),
    (
        "left early",
        ended(raised("SystemExit", "3"), 1),
        Crashed("called sys.exit(3) before the trial was over", "Traceback"),
    ),
    (
        "Ctrl-C of its own",
        ended(raised("KeyboardInterrupt", ""), 1),
        Crashed("KeyboardInterrupt: no message", "Traceback"),
    ),
    ("ended at 0", ended(None), Crashed(BY_ITSELF.format(0), "")),
    ("ended at 5", ended(None, 5), Crashed(BY_ITSELF.format(5), "")),
    ("segfault", ended(None, -signal.SIGSEGV, log="core"), Crashed("ended by SIGSEGV", "core")),
    ("killed, counter risen", ended(None, -9, oom_kills=1, log="tail"), OutOfMemory(KERNEL, "tail", where="host")),
    ("killed, counter unchanged", ended(None, -9, oom_kills=0), Crashed("killed by SIGKILL from outside", "")),
    ("killed, no counter", ended(None, -9, oom_kills=None), Crashed("killed by SIGKILL from outside", "")),
    ("bus error", ended(None, -signal.SIGBUS), OutOfMemory(SHM_FULL, "", where="shm")),
    ("bus error through a shell", ended(None, 135), OutOfMemory(SHM_FULL, "", where="shm")),
    ("bus error of the launcher", TrialEnd(None, (), -signal.SIGBUS), OutOfMemory(SHM_FULL, "", where="shm")),
    (
        "hung",
        ended(None, -9, timed_out="compiling", log="stacks"),
        TimedOut("no progress while compiling", "stacks", phase="compiling"),
    ),
    (
        "cut short by the budget",
        ended(None, -9, timed_out=BUDGET_OVER, log="tail"),
        TimedOut("its share of the budget ended before it was measured", "tail", phase=BUDGET_OVER),
    ),
    (
        "hung, though the kill counter rose",
        ended(None, -9, timed_out="stepping", oom_kills=1),
        TimedOut("no progress while stepping", "", phase="stepping"),
    ),
    (
        "not in force",
        ended(TrialReport(measurement=MEASURED, not_applied=(("threads", "asked 4, 2 are in force"), ("x", "y")))),
        NotApplied("threads: asked 4, 2 are in force", knob="threads"),
    ),
    ("NaN within", ended(replace(GOOD, finite=False)), NAN),
    ("NaN at the start", ended(replace(GOOD, losses=(1.0, float("nan")))), WrongNumbers(f"{NAN.reason} in step 2")),
    ("infinite", ended(replace(GOOD, losses=(float("inf"),))), WrongNumbers(f"{NAN.reason} in step 1")),
    ("one rank reported, another was killed", ended(GOOD, 0, -9, oom_kills=2), OutOfMemory(KERNEL, "", where="host")),
    ("a rank hears of a segfault", ended(raised("RuntimeError", LOST_PEER), -11, 1), Crashed("ended by SIGSEGV", "")),
    (
        "the network itself failed",
        ended(raised("RuntimeError", LOST_PEER), 1),
        Crashed(f"RuntimeError: {short(LOST_PEER)}", "Traceback"),
    ),
    (
        "a worker killed by the kernel",
        ended(raised("RuntimeError", KILLED), 1, oom_kills=1),
        OutOfMemory(WORKER_KILLED, "Traceback", where="host"),
    ),
    (
        "a worker gone, counter risen",
        ended(raised("RuntimeError", GONE), 1, oom_kills=2),
        OutOfMemory(WORKER_KILLED, "Traceback", where="host"),
    ),
    (
        "a worker killed by somebody",
        ended(raised("RuntimeError", KILLED), 1, oom_kills=0),
        Crashed(f"RuntimeError: {KILLED}", "Traceback"),
    ),
]


@pytest.mark.parametrize(("end", "outcome"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_ends_and_what_is_made_of_them(end: TrialEnd, outcome: Outcome) -> None:
    assert judge(end) == outcome


@pytest.mark.parametrize(
    "signum", [*(s for s in signal.Signals if s not in (signal.SIGBUS, signal.SIGKILL)), signal.SIGRTMIN + 1]
)
def test_every_signal_is_a_crash_with_a_name(signum: int) -> None:
    outcome = judge(ended(None, -signum))
    assert isinstance(outcome, Crashed)
    assert "ended by " in outcome.reason


@pytest.mark.parametrize(
    ("kind", "text", "where"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total", "device"),
        ("torch.cuda.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.87 GiB (GPU 0; 14.76 GiB", "device"),
        ("RuntimeError", "CUDA out of memory. Tried to allocate 1.12 MiB (GPU 0; 22.37 GiB total capacity)", "device"),
        ("RuntimeError", "MPS backend out of memory (MPS allocated: 9.05 GB, max allowed: 9.07 GB).", "device"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "device"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory", "host"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: not enough memory: you", "host"),
        ("MemoryError", "", "host"),
        ("OSError", "[Errno 12] Cannot allocate memory", "host"),
        ("RuntimeError", "DataLoader worker (pid 4161) is killed by signal: Bus error. It is possible that", "shm"),
        (
            "RuntimeError",
            "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            "RuntimeError: unable to allocate shared memory(shm) for file </torch_14431_477071399_0>: No space left\n",
            "shm",
        ),
        ("RuntimeError", "unable to mmap 8388608 bytes from file </torch_18_5>: Cannot allocate memory (12)", "shm"),
        (
            "RuntimeError",
            "Caught MemoryError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  ...\n"
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 PiB for an array with shape (9,)\n",
            "host",
        ),
        ("torch.AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'", "device"),
        ("RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "device"),
        ("RuntimeError", "NVML_SUCCESS == r INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp", "device"),
        ("RuntimeError", "GET was unable to find an engine to execute this computation", "device"),
        ("RuntimeError", "unable to write to file </torch_31911_952036340_6686>: No space left on device (28)", "shm"),
        ("ValueError", "out of memory: the replay buffer holds 5 episodes", None),
        ("my_project.OutOfMemoryError", "CUDA out of memory", None),
        ("KeyError", "'DefaultCPUAllocator: can't allocate memory'", None),
        ("RuntimeError", "out of memory budget for this experiment", None),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", None),
        ("RuntimeError", "can't start new thread", None),
        ("OSError", "[Errno 28] No space left on device: 'checkpoints/last.pt'", None),
        ("OSError", "[Errno 24] Too many open files", None),
    ],
)
def test_real_texts_say_where_memory_ran_out_and_the_class_decides_before_the_text(kind, text, where) -> None:
    outcome = judge(ended(raised(kind, text), 1))
    assert type(outcome) is (OutOfMemory if where else Crashed)
    assert getattr(outcome, "where", None) == where
    assert outcome.detail == "Traceback"
    assert (out_of_memory(kind, text) is None) == (where is None)


def test_the_cause_is_more_telling_than_who_lost_a_peer() -> None:
    lost, cause = raised("RuntimeError", LOST_PEER), raised("ValueError", "bad shape")
    lacking = TrialReport(measurement=MEASURED, not_applied=(("threads", "why"),))
    assert most_informative([GOOD, lost, cause, lacking]) is cause
    assert most_informative([GOOD, lacking, lost]) is lost
    assert most_informative([GOOD, lacking]) is lacking
    assert most_informative([GOOD]) is GOOD
    assert most_informative([]) is None


@pytest.mark.parametrize(("skipped", "kind"), [(0, Completed), (2, Completed), (3, WrongNumbers), (25, WrongNumbers)])
def test_the_scaler_may_skip_a_tenth_of_the_25_steps(skipped: int, kind: type[Outcome]) -> None:
    report = replace(GOOD, measurement=replace(MEASURED, skipped_steps=skipped))
    assert type(judge(ended(report))) is kind


class TestLosses:
    FLAT = (2.0,) * 8

    @pytest.mark.parametrize("precision", PRECISION.kind.values)
    @pytest.mark.parametrize(("share", "good"), [(0.0, True), (0.9, True), (1.1, False), (5.0, False)])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_tolerance_by_precision(self, precision: str, share: float, good: bool, sign: int) -> None:
        shift = 1 + sign * share * loss_tolerance(Settings(precision=precision))
        outcome = Completed(losses=tuple(loss * shift for loss in self.FLAT))
        checked = check_losses(outcome, OWN.but(precision=precision), self.FLAT)
        assert (checked == outcome) is good
        assert isinstance(checked, WrongNumbers) is not good

    @pytest.mark.parametrize(("share", "good"), [(0.9, True), (1.1, False)])
    def test_another_global_batch_is_judged_for_gross_departures_only(self, share: float, good: bool) -> None:
        outcome = Completed(losses=tuple(loss * (1 + share * OTHER_BATCH_TOLERANCE) for loss in self.FLAT))
        checked = check_losses(outcome, OWN, self.FLAT, same_batch=False)
        assert isinstance(checked, Completed) is good

    def test_scattering_losses_widen_it(self) -> None:
        noisy = (2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0)  # steps of 1: the mean may be off by 4 / sqrt(8)
        near = Completed(losses=tuple(loss + 1.3 for loss in noisy))
        far = Completed(losses=tuple(loss + 1.5 for loss in noisy))
        assert check_losses(near, OWN, noisy) == near
        assert isinstance(check_losses(far, OWN, noisy), WrongNumbers)

    def test_losses_near_zero_and_below_are_compared_too(self) -> None:
        likelihood = (-3.0,) * 8
        assert check_losses(Completed(losses=likelihood), OWN, likelihood) == Completed(losses=likelihood)
        assert isinstance(check_losses(Completed(losses=(-1.0,) * 8), OWN, likelihood), WrongNumbers)
        assert check_losses(Completed(losses=(0.0,) * 8), OWN, (0.0,) * 8).measured

    @pytest.mark.parametrize(
        ("outcome", "reference"),
        [
            (Crashed("why"), (1.0,)),
            (OutOfMemory("why"), (1.0,)),
            (Completed(losses=()), (1.0,)),
            (Completed(losses=(9.0,)), ()),
        ],
    )
    def test_what_cannot_be_compared_passes(self, outcome: Outcome, reference: tuple[float, ...]) -> None:
        assert check_losses(outcome, OWN, reference) is outcome


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (" \n ", "no message"),
        ("x" * 161, "x" * 157 + "..."),
        ("Caught KeyError in DataLoader worker process 0.\nOriginal Traceback\nKeyError: 'x'\n", "KeyError: 'x'"),
    ],
)
def test_short(text: str, line: str) -> None:
    assert short(text) == line


NETWORK = [
    ("socket.gaierror", "[Errno -3] Temporary failure in name resolution"),
    ("urllib.error.URLError", "<urlopen error [Errno -2] Name or service not known>"),
    ("requests.exceptions.ConnectionError", "HTTPSConnectionPool(host='x'): Max retries exceeded with url: /"),
    ("huggingface_hub.errors.OfflineModeIsEnabled", "Cannot reach https://huggingface.co: offline mode is enabled."),
    ("huggingface_hub.errors.LocalEntryNotFoundError", "Cannot find the requested files in the disk cache"),
    ("OSError", "We couldn't connect to 'https://huggingface.co' to load the files"),
    ("ConnectionError", "Couldn't reach 'imdb' on the Hub (OfflineModeIsEnabled)"),
    ("OSError", "[Errno 101] Network is unreachable"),
    ("PermissionError", f"[Errno 13] {guard.NETWORK}: 'example.org'"),
    ("RuntimeError", "curl: (6) Could not resolve host: example.org"),
    ("botocore.exceptions.ProxyConnectionError", "Failed to connect to proxy URL: http://127.0.0.1:9"),
]


@pytest.mark.parametrize(
    ("kind", "error", "word"),
    [
        *((*each, "--allow-network") for each in NETWORK),
        ("OSError", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "1.5 GiB"),
        ("OSError", OSError(errno.EROFS, os.strerror(errno.EROFS), "/run/x"), "only read"),
        ("OSError", OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW), "/data/x"), "another user"),
        ("OSError", OSError(errno.EXDEV, os.strerror(errno.EXDEV), "runs"), "moves a folder"),
        ("PermissionError", PermissionError(errno.EACCES, guard.WRITE, "/data/x"), "outside its working folder"),
        ("ValueError", "expected 3 channels, got 4", None),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'train.csv'", None),
        ("PermissionError", "[Errno 13] Permission denied: '/root/x'", None),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory", None),
    ],
)
def test_what_a_trial_may_not_do_has_its_reason_and_other_errors_speak_for_themselves(kind, error, word) -> None:
    found = explain(kind, str(error), network=False, limit=3 * 2**29)
    assert found is None if word is None else word in (found or "")


def test_a_trial_that_held_more_than_the_user_allows_counts_as_out_of_memory() -> None:
    done = Completed(measurement=replace(MEASURED, memory=MemoryUse(peak=3 * 2**30, workers=2**30, gpu=2**30)))
    assert check_memory(done, OWN, None, None) is check_memory(done, OWN, 4 * 2**30, 2**30) is done
    two = check_memory(done, OWN.but(processes=2), 4 * 2**30, None)
    assert two == OutOfMemory("held 8.0 GiB of memory; --max-memory is 4.0 GiB", where="host")
    device = check_memory(done, OWN, None, 2**29)
    assert device == OutOfMemory("held 1.0 GiB of a GPU; --max-gpu-memory is 512 MiB", where="device")
    assert check_memory(Crashed("no"), OWN, 1, 1) == Crashed("no")
