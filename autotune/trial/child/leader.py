"""The first process of a trial: leads the session, starts the ranks, and ends with the first of them that fails.

Stopping and continuing its process group pauses the whole trial. It imports no torch of its own accord: forked from
the zygote it has it already, started fresh it leaves that to the ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.core.backends import BACKENDS, MPIEXEC
from autotune.core.binding import VARIABLE, own_place
from autotune.runtime.binding import bind
from autotune.trial import process_tree
from autotune.trial.child import shm
from autotune.trial.child.pmi import ProcessManager
from autotune.trial.paths import mirror
from autotune.trial.spec import Meeting
from autotune.trial.unix_connection import Channel

if TYPE_CHECKING:
    from autotune.trial.child.loaded_task import Task

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def lead(request: dict[str, Any], channel: Channel, task: Task | None) -> int:
    """Run one trial to its end; returns the exit code. ``task`` is None in a fresh process."""
    with contextlib.suppress(PermissionError):
        os.setsid()
    process_tree.die_with_parent()
    process_tree.prefer_as_oom_victim()
    folder = Path(request["folder"])
    mirror(Path(request["origin"]), folder)
    os.chdir(folder)
    shm.sign(folder)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    world = request["spec"]["settings"]["processes"] if request["job"] == "trial" else 1
    manager = ProcessManager(world) if world > 1 and _needs_mpi(request) else None
    here = range(world)
    if request["meeting"] is not None:
        meeting = Meeting.from_dict(request["meeting"])
        here = range(world // meeting.nnodes * meeting.node, world // meeting.nnodes * (meeting.node + 1))
        if meeting.interface is not None:
            os.environ.update(dict.fromkeys(INTERFACES, meeting.interface))
    ranks = {_start_rank(rank, here, world, request, channel, task, manager): rank for rank in here}
    if manager is not None:
        manager.serve()
    return _wait(ranks, channel, shm.Segments(folder))


def _needs_mpi(request: dict[str, Any]) -> bool:
    backend = request["spec"]["settings"]["backend"]
    return backend is not None and BACKENDS[backend].launcher == MPIEXEC


def _start_rank(
    rank: int,
    here: range,
    world: int,
    request: dict[str, Any],
    channel: Channel,
    task: Task | None,
    manager: ProcessManager | None,
) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        process_tree.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        if world > 1:
            places = {"RANK": rank, "LOCAL_RANK": rank - here.start}
            places |= {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": len(here)}
            os.environ.update({name: str(value) for name, value in places.items()})
        _bind(request["binding"])
        if manager is not None:
            os.environ.update(manager.environment(rank))
        from autotune.trial.child import rank as one_rank

        code = one_rank.work(request, channel, task, rank)
    finally:
        _flush()
        os._exit(code)


def _bind(plan: str) -> None:
    """This rank to its place, before any library starts threads. What does not work is read back by the session."""
    if plan:
        os.environ[VARIABLE] = plan
    place = own_place(os.environ)
    if place is not None:
        with contextlib.suppress(OSError):
            bind(place)


def _wait(ranks: dict[int, int], channel: Channel, memory: shm.Segments) -> int:
    """Wait for all ranks. The first that fails is the trial's end: the others would wait for it for half an hour."""
    while ranks:
        pid, status = os.wait()
        rank = ranks.pop(pid, None)
        if rank is None:
            continue
        code = os.waitstatus_to_exitcode(status)
        channel.send({"event": "rank-ended", "rank": rank, "code": code})
        if code != 0:
            _report_ended(ranks, channel)
            memory.end(process_tree.descendants(os.getpid()))
            process_tree.kill_tree(os.getpid(), include_root=False)
            memory.remove()
            return 1
    return 0


def _report_ended(ranks: dict[int, int], channel: Channel) -> None:
    """Ranks that ended meanwhile: a signal that ended one says more than the echo in another."""
    for pid, rank in ranks.items():
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            channel.send({"event": "rank-ended", "rank": rank, "code": os.waitstatus_to_exitcode(status)})


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def main(arguments: list[str]) -> None:
    """Entry of a fresh leader: descriptor and request as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os._exit(lead(json.loads(arguments[1]), Channel.from_fd(int(arguments[0])), None))
