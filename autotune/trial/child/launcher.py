"""The first process of a trial: leads its process group, starts the ranks, and ends with the first of them that fails.

One rank trains in the session of the shell, as the user's own process does. Several have a session each, as torchrun
and mpiexec start them, and report it: the tuner pauses a trial by its process groups. The launcher imports no torch
itself: forked from the fork server it has it already, started as a new process it leaves that to the ranks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.decoding import decoded
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.binding import VARIABLE, bind_by_plan
from autotune.runtime.entry import as_main, torchrun
from autotune.trial import process_tree
from autotune.trial.child import shm
from autotune.trial.isolation.redirected import mirror
from autotune.trial.messages import Resume, TrialRequest, UnixConnection
from autotune.trial.paths import mark

if TYPE_CHECKING:
    from autotune.trial.child.script_trial import LoadedScript
    from autotune.trial.child.task import LoadedTask


DYING_SECONDS = 0.2
"""A process that is killed loses its connections a moment before it has ended."""


class ProcessManager:
    """Answers what the ranks of one trial would ask mpiexec (PMI-1), each from a thread, until this process ends.

    Args:
        size: how many ranks there will be. All must be forked before `serve`.
        name: of the job. MPI names its shared memory after it: two trials at once must differ.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self.values = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        """Values that ranks exchange. All run on this machine: one block on node 0."""
        self._pairs = [socket.socketpair() for _ in range(size)]
        self._barrier = threading.Barrier(size)
        self._answers = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0",
            "get_appnum": "cmd=appnum appnum=0 rc=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={name} rc=0",
            "get_universe_size": f"cmd=universe_size size={size} rc=0",
            "put": "cmd=put_result rc=0",
            "get": "cmd=get_result rc=-1 msg=key_not_found value=unknown",
            "barrier_in": "cmd=barrier_out rc=0",
            "finalize": "cmd=finalize_ack rc=0",
        }

    def environment(self, rank: int) -> dict[str, str]:
        """Return what the forked ``rank`` must find in its environment; call it there."""
        end = self._pairs[rank][1]
        os.set_inheritable(end.fileno(), True)
        for other in (end for pair in self._pairs for end in pair if end is not self._pairs[rank][1]):
            other.close()
        fd = end.detach()
        return {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size)}

    def serve(self) -> None:
        """Answer from now on."""
        for ours, theirs in self._pairs:
            theirs.close()
            threading.Thread(target=self._serve, args=(ours,), name="autotune-pmi", daemon=True).start()

    def _serve(self, ours: socket.socket) -> None:
        """Answer each line of one rank with one line. A rank that is gone is the launcher's business."""
        with contextlib.suppress(OSError), ours.makefile("rb") as lines:
            for line in lines:
                words = (word.partition("=") for word in line.decode(errors="replace").split())
                answer = self._answer({name: value for name, _, value in words})
                ours.sendall(answer.encode() + b"\n")

    def _answer(self, request: dict[str, str]) -> str:
        verb, key = request.get("cmd", ""), request.get("key", "")
        if verb == "barrier_in":
            self._barrier.wait()
        elif verb == "put":
            self.values[key] = request.get("value", "")
        elif verb == "get" and key in self.values:
            return f"cmd=get_result rc=0 value={self.values[key]}"
        return self._answers.get(verb, f"cmd={verb} rc=-1 msg=not_supported")


@dataclass(frozen=True)
class Job:
    """The job that every rank gets from the launcher.

    Attributes:
        request: the trial.
        connection: to the tuner.
        task: the task as the fork server has loaded it; None in a new process.
        manager: answers what ranks would ask mpiexec; None if they do not meet through MPI.
        port: of this machine, where ranks may meet; None for a single process that needs no variables of torchrun's.
    """

    request: TrialRequest
    connection: UnixConnection
    task: LoadedTask | LoadedScript | None
    manager: ProcessManager | None
    port: int | None = None


def launch(request: TrialRequest, connection: UnixConnection, task: LoadedTask | LoadedScript | None) -> int:
    """Run one trial to its end; returns the exit code. ``task`` is None in a new process."""
    process_tree.lead_group()
    process_tree.die_with_parent()
    process_tree.prefer_as_oom_victim()
    folder = Path(request.folder)
    if request.script is not None:
        task = _isolated_script(request, task)
    else:
        mirror(Path(request.origin), folder)
        os.chdir(folder)
    _own_temporary_files(folder)
    world = request.world_size
    manager = ProcessManager(world, mark(folder)) if _meets_through_mpi(request) else None
    ranked = world > 1 or (request.script is not None and request.script.ranked)
    port = torchrun.free_port() if ranked else None
    job = Job(request, connection, task, manager, port)
    pids = {_fork_rank(job, rank): rank for rank in range(world)}
    if job.manager is not None:
        job.manager.serve()
    return _wait(pids, connection, shm.Segments(folder))


def _isolated_script(request: TrialRequest, task: LoadedTask | LoadedScript | None) -> LoadedScript:
    """Return the script of the ``request``, in a world of its own."""
    from autotune.trial.child.script_trial import LoadedScript  # imports torch

    assert request.script is not None
    assert request.facts is not None
    script = LoadedScript(request.script, request.facts, None, None, skip=request.facts.skip)
    if isinstance(task, LoadedScript):  # as it was loaded, but for what the tuner has learnt since
        script = dataclasses.replace(task, facts=request.facts)
    script.enter(Path(request.folder))
    return script


def _own_temporary_files(folder: Path) -> None:
    """Make temporary files and shared memory the trial's own."""
    shm.sign(folder)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None


def _meets_through_mpi(request: TrialRequest) -> bool:
    backend = request.spec.settings.backend if request.spec is not None and request.world_size > 1 else None
    return backend is not None and BACKENDS[backend].launcher == MPIEXEC


def _fork_rank(job: Job, rank: int) -> int:
    """Start ``rank``; returns its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    with last_words():
        process_tree.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        if job.request.world_size > 1:
            os.setsid()
            job.connection.send({"event": "rank-started", "pid": os.getpid()})
        if job.port is not None:
            os.environ.update(torchrun.variables(rank, job.request.world_size, job.port))
        if job.request.binding:
            os.environ[VARIABLE] = job.request.binding
        bind_by_plan()  # before any library starts threads; the session reads back if that worked
        if job.manager is not None:
            os.environ.update(job.manager.environment(rank))
        from autotune.trial.child.rank import run_rank  # imports torch

        code = run_rank(job.request, job.connection, job.task, rank)
        as_main.flush()
        os._exit(code)
    raise AssertionError  # not reached


@contextlib.contextmanager
def last_words() -> Iterator[None]:
    """End a forked process if an error leaves it, but for one that resumes a script below it."""
    try:
        yield
    except Resume:
        raise
    except BaseException:
        traceback.print_exc()
        as_main.flush()
        os._exit(1)


def _wait(ranks: dict[int, int], connection: UnixConnection, memory: shm.Segments) -> int:
    """Wait for all ranks. The first that fails is the trial's end: the others would wait for it for half an hour.

    Args:
        ranks: by pid.
        connection: to the tuner, which gets every exit code.
        memory: the trial's shared memory.
    """
    while ranks:
        pid, status = os.wait()
        if pid not in ranks:
            continue
        code = _report_exit(ranks.pop(pid), status, connection)
        if code != 0:
            _report_others(ranks, connection)
            memory.end(process_tree.descendants(os.getpid()))
            process_tree.kill_tree(os.getpid(), include_root=False)
            memory.remove()
            return 1
    return 0


def _report_exit(rank: int, status: int, connection: UnixConnection) -> int:
    code = os.waitstatus_to_exitcode(status)
    connection.send({"event": "rank-ended", "rank": rank, "code": code})
    return code


def _report_others(ranks: dict[int, int], connection: UnixConnection) -> None:
    """Report ranks that end now, too: a signal explains more than the error of a peer that lost its rank."""
    give_up, left = time.monotonic() + DYING_SECONDS, dict(ranks)
    while left and time.monotonic() < give_up:
        for pid in tuple(left):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _report_exit(left.pop(pid), status, connection)
        time.sleep(DYING_SECONDS / 20)


def main(arguments: list[str]) -> None:
    """Start as a launcher that is a new process: descriptor and request as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd, request = arguments
    os._exit(launch(decoded(TrialRequest, json.loads(request)), UnixConnection.from_fd(int(fd)), None))
