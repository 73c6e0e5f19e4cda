"""Real processes: every kind of fault becomes the right outcome, and nothing is left behind."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from autotune.knobs.settings import Settings
from autotune.stats.outcome import Completed, Crashed, Outcome, OutOfMemory, TimedOut, WrongNumbers
from autotune.trial import process_tree
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.judge import TrialEnd, judge
from autotune.trial.parent.runner import Runner, Timeouts

pytestmark = pytest.mark.torch

SHORT = {"min_seconds": 0.05, "max_seconds": 0.15, "warmup_seconds": 0.1}
PATIENT = Timeouts(starting=120.0, stepping=120.0)
"""For what ends by itself: no test depends on how fast the machine is."""
TIMEOUTS = {
    "worker_hangs": Timeouts(starting=1.0, stepping=1.0),
    **dict.fromkeys(("ignores_signals", "stops_itself", "rank_1_hangs"), Timeouts(starting=120.0, stepping=1.0)),
    "hangs": Timeouts(starting=120.0, stepping=2.0),  # it has to come to where it hangs, which is named
}
"""For what never ends."""
ONE = Settings(threads=1, batch_size=8)
WORKERS = ONE.but(num_workers=1)
TWO = Settings(threads=1, processes=2, batch_size=4)
BY_MPI = TWO.but(backend="mpi")

CASES = [
    ("well", ONE, Completed, ""),
    ("well", WORKERS, Completed, ""),
    ("well", TWO, Completed, ""),
    ("raises", ONE, Crashed, "ValueError: expected 3 channels, got 4"),
    ("allocates_too_much", ONE, OutOfMemory, "allocate"),
    ("model_raises", ONE, Crashed, "NameError: name 'Resnet'"),
    ("segv", ONE, Crashed, "SIGSEGV"),
    ("sigbus", ONE, OutOfMemory, "/dev/shm"),
    ("sigkill", ONE, Crashed, "SIGKILL from outside"),
    ("os_exit_0", ONE, Crashed, "exit code 0"),
    ("hangs", ONE, TimedOut, "stepping"),
    ("ignores_signals", ONE, TimedOut, "stepping"),
    ("stops_itself", ONE, TimedOut, "stepping"),
    ("floods", ONE, Completed, ""),
    ("daemon", ONE, Completed, ""),
    ("leaves_shm", ONE, Crashed, "SIGKILL"),
    ("nan", ONE, WrongNumbers, "NaN"),
    ("worker_raises", WORKERS, Crashed, "KeyError"),
    ("worker_segv", WORKERS, Crashed, "worker"),
    ("worker_hangs", WORKERS, TimedOut, "starting"),
    ("rank_1_raises", TWO, Crashed, "ZeroDivisionError: only on rank 1"),
    ("rank_1_killed", TWO, Crashed, "SIGKILL"),
    ("rank_1_hangs", TWO, TimedOut, "stepping"),
    ("well", BY_MPI, Completed, ""),
    ("rank_1_raises", BY_MPI, Crashed, "ZeroDivisionError: only on rank 1"),
    ("rank_1_killed", BY_MPI, Crashed, "SIGKILL"),
    ("rank_1_hangs", BY_MPI, TimedOut, "stepping"),
]


def marked(case: tuple[str, Settings, type[Outcome], str]) -> ParameterSet:
    """A case with a name, and skipped where its backend is missing."""
    how, settings, *_ = case
    name = f"{how}-{settings.processes}x{settings.num_workers}"
    if settings.backend != "mpi":
        return pytest.param(*case, id=name)
    return pytest.param(*case, id=f"{name}-mpi", marks=pytest.mark.mpi)


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def shared_memory() -> set[str]:
    """Return what lies in shared memory, without semaphores and without what other tests' processes have there."""
    names = {name for name in os.listdir("/dev/shm") if name.startswith(("psm_", "torch_", "mpich_"))}
    own = {str(pid) for pid in (os.getpid(), *process_tree.descendants(os.getpid()))}
    return {name for name in names if name.split("_")[1] not in set(os.listdir("/proc")) - own}


def attempt(runner: Runner, folder: Path, how: str, settings: Settings) -> tuple[Outcome, TrialEnd]:
    (folder / "behaviour").write_text(how)
    end = runner.run(TrialSpec(settings=settings, **SHORT), TIMEOUTS.get(how, PATIENT))
    return judge(end), end


def check_details(how: str, outcome: Outcome, end: TrialEnd) -> None:
    """Compare what a user reads beside the reason."""
    assert len(end.log) <= 4096, "a flood is bounded"
    if how == "model_raises":
        lines = outcome.detail.strip().splitlines()
        assert 'stub.py"' in lines[1], "the traceback starts in the user's code"
        assert lines[-1] == "NameError: name 'Resnet' is not defined"
    if how == "hangs":
        assert "_sleep_forever" in outcome.detail, "where it hangs"


@pytest.mark.parametrize(("how", "settings", "kind", "words"), [marked(case) for case in CASES])
def test_every_fault_is_classified_and_leaves_nothing(runner: Runner, folder: Path, how, settings, kind, words) -> None:
    (folder / "behaviour").write_text(how)
    files, memory, others = listing(folder), shared_memory(), process_tree.descendants(os.getpid())
    outcome, end = attempt(runner, folder, how, settings)
    assert type(outcome) is kind, outcome
    assert words in outcome.reason
    check_details(how, outcome, end)
    assert process_tree.descendants(os.getpid()) - others == set()
    assert shared_memory() <= memory
    assert listing(folder) == files
    assert [path.name for path in runner.setup.paths.root.iterdir() if path.name.startswith("t")] == []


@pytest.mark.parametrize("shares", [(ONE, TWO, WORKERS), pytest.param((TWO, BY_MPI), marks=pytest.mark.mpi)])
def test_the_same_seed_gives_the_same_losses_however_the_batch_is_shared(runner: Runner, folder: Path, shares) -> None:
    outcomes = [attempt(runner, folder, "well", settings)[0] for settings in shares]
    losses = [outcome.losses for outcome in outcomes if isinstance(outcome, Completed)]
    assert len(losses) == len(shares)
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-4)


def paused(launcher: int) -> bool:
    """Whether a trial's processes all stop within a second, those with a session of their own too."""
    give_up = time.monotonic() + 1.0
    processes = {launcher, *process_tree.descendants(launcher)}
    states = [Path(f"/proc/{pid}/stat") for pid in processes]
    while any(state.read_text().rpartition(")")[2].split()[0] != "T" for state in states):
        if time.monotonic() > give_up:
            return False
        signal.sigtimedwait([], 0.01)
    return True


@pytest.mark.parametrize(
    "candidates", [(ONE, TWO), pytest.param((BY_MPI, BY_MPI.but(precision="bf16"), TWO), marks=pytest.mark.mpi)]
)
def test_residents_take_turns(runner: Runner, folder: Path, candidates: tuple[Settings, ...]) -> None:
    (folder / "behaviour").write_text("well")
    others = process_tree.descendants(os.getpid())
    with contextlib.ExitStack() as running:
        trials = [
            running.enter_context(runner.start(TrialSpec(settings=settings, resident=True, **SHORT), PATIENT))
            for settings in candidates
        ]
        assert all(trial.ready() for trial in trials)
        assert all(paused(trial.pid) for trial in trials)
        for _ in range(2):
            blocks = [trial.block(0.1) for trial in trials]
            assert all(block is not None and block.steps >= 1 for block in blocks)
    assert process_tree.descendants(os.getpid()) - others == set()
