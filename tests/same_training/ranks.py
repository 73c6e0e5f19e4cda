"""Start the rank processes, collect their records, and judge every case."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from autotune.knobs.settings import Settings
from autotune.launch.command import command
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.scripts.entry.torchrun import free_port, variables
from tests.same_training import outcome
from tests.same_training.case import BATCH_NORM, WORLDS, Case
from tests.same_training.legal import refused_by_tuner
from tests.same_training.outcome import DIFFERENT, REFUSED, Line, Outcome
from tests.same_training.record import Record

ROOT = Path(__file__).resolve().parents[2]
WORKER = "tests.same_training.worker"
MOST_RESTARTS = 20
"""After so many cases that ended the ranks, the rest is not run."""
LONGEST = 600.0
"""Seconds for one list of cases."""
FORK_HANGS = sys.version_info < (3, 11, 8)
"""A loader worker may never begin if it is forked while a thread ends (CPython's gh-112275), some 1 in 2,000 cases."""
TIMEOUT = "Timeout (0:"
"""How `faulthandler` begins what it writes of a rank that hangs."""


Started = tuple["subprocess.Popen[bytes]", Path]
"""A process, and the file that its output goes to."""


def run(cases: Sequence[Case], at_once: int = 2) -> list[Outcome]:
    """What became of ``cases``, all of one world. One-process cases run in ``at_once`` processes."""
    if not cases:
        return []
    refused = [(case, reason) for case in cases if (reason := refused_by_tuner(case)) is not None]
    left = [case for case in cases if refused_by_tuner(case) is None]
    judged = [Outcome(case, REFUSED, (reason,)) for case, reason in refused]
    found = _in_folder(left, at_once)
    again = [outcome.case for outcome in found if outcome.hung and FORK_HANGS]
    return judged + [outcome for outcome in found if outcome.case not in again] + _in_folder(again, at_once)


def _in_folder(cases: list[Case], at_once: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="same_training") as folder:
        (Path(folder) / "cases.txt").write_text("\n".join(map(repr, cases)), "utf-8")
        return list(_run(cases, Path(folder), at_once)) if cases else []


def _run(cases: list[Case], folder: Path, at_once: int) -> Iterator[Outcome]:
    """Run all; after a case that ended the ranks, start them again at the next one."""
    world = cases[0].world
    size, lanes = WORLDS[world][0], at_once if world == "1" else 1
    ended: dict[int, str] = {}
    waiting = {lane: lane for lane in range(min(lanes, len(cases)))}
    while waiting and len(ended) < MOST_RESTARTS:
        started = {lane: _start(world, folder, first, lanes) for lane, first in waiting.items()}
        errors = {lane: _finish(processes) for lane, processes in started.items()}
        done = {number for number, lines in _lines(folder, size).items() if len(lines) == size}
        known = done | set(ended)
        missing = {lane: min(set(range(lane, len(cases), lanes)) - known, default=None) for lane in waiting}
        ended |= {number: errors[lane] for lane, number in missing.items() if number is not None}
        waiting = {k: n + lanes for k, n in missing.items() if n is not None and n + lanes < len(cases)}
    lines = _lines(folder, size)
    for number, case in enumerate(cases):
        yield _judged(case, lines.get(number, []), ended.get(number))


def _judged(case: Case, lines: list[Line], error: str | None) -> Outcome:
    tested = [line.tested for line in lines]
    raised = [record for record in tested if isinstance(record, str)]
    if len(lines) < case.processes:
        said = [error or "not run after too many of these", *raised]
        reason = f"hung, or ended the process: {'; '.join(said)}"
        return Outcome(case, DIFFERENT, (reason,), hung=TIMEOUT in reason)
    plain = next((line.plain for line in lines if line.plain is not None), "nothing: no rank ran it")
    if case.processes > 1 and case.model in BATCH_NORM and not raised:
        with torch.random.fork_rng():
            plain = outcome.shared_reference(case, [record for record in tested if isinstance(record, Record)])
    judged = outcome.judge(case, tested, plain)
    return Outcome(case, judged.verdict, judged.reasons, max(line.seconds for line in lines))


def _lines(folder: Path, size: int) -> dict[int, list[Line]]:
    """What the ranks wrote, by case and in the order of ranks."""
    found: dict[int, list[Line]] = {}
    for rank in range(size):
        for path in folder.glob(f"rank{rank}-*.pickle"):
            for line in _read(path):
                found.setdefault(line.number, []).append(line)
    return found


def _read(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):  # the rank ended while it wrote
                return


def _start(world: str, folder: Path, first: int, step: int) -> list[Started]:
    """All ranks of one world, at case ``first``."""
    size, backend = WORLDS[world]
    arguments = [str(folder), str(first), str(step)]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTUNE_", "RANK", "WORLD_"))}
    own |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    said = folder / f"said-{first}"
    if backend == "mpi":
        script = str(Path(__file__).with_name("worker.py"))
        mpi = Settings(processes=size, backend="mpi")
        line = command(mpi, script, arguments, sys.executable, mpiexec=mpiexec(System()) or "mpiexec")
        return [_popen(line, own, said)]
    line = [sys.executable, "-m", WORKER, *arguments]
    if size == 1:
        return [_popen(line, own, said)]
    port = free_port()
    ranks = [variables(rank, size, port) for rank in range(size)]
    return [_popen(line, own | rank, said.with_suffix(f".{rank['RANK']}")) for rank in ranks]


def _popen(line: Sequence[str], environment: dict[str, str], said: Path) -> Started:
    with said.open("w") as file:
        return subprocess.Popen(line, env=environment, cwd=ROOT, stdout=file, stderr=file, start_new_session=True), said


def _finish(ranks: list[Started]) -> str:
    """Wait for all ranks; the last lines of those that failed."""
    failed = []
    for number, (process, said) in enumerate(ranks):
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # loader workers that hang
        if process.returncode:
            lines = said.read_text("utf-8", "replace").strip().splitlines()
            shown = [line for line in lines[:-12] if line.startswith(TIMEOUT)] + lines[-12:]
            failed.append(f"rank {number} ended with {process.returncode}: {' | '.join(shown)}")
    return "; ".join(failed)
