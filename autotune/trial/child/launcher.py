"""The first process of a trial: leads its process group, starts the ranks, and ends with the first of them that fails.

One rank trains in the session of the shell, as the user's own process does. Several have a session each, as torchrun
and mpiexec start them, and report it: the tuner pauses a trial by its process groups.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.binding import VARIABLE, bind_by_plan
from autotune.scripts.entry import as_main, torchrun
from autotune.trial import process_tree
from autotune.trial.child import shm
from autotune.trial.child.rank import run_rank
from autotune.trial.child.script_trial import LoadedScript
from autotune.trial.child.task import LoadedTask
from autotune.trial.isolation.redirected import mirror
from autotune.trial.messages import Resume, TrialSpec, UnixConnection
from autotune.trial.paths import mark

DYING_SECONDS = 0.2
"""A process that is killed loses its connections a moment before it has ended."""


class ProcessManager:
    """Answers the ranks of one trial in place of mpiexec (PMI-1), each in a thread, until this process ends.

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
        fd = self._pairs[rank][1].detach()  # MPI closes it
        return {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size)}

    def serve(self) -> None:
        """Answer from now on."""
        for ours, _theirs in self._pairs:
            threading.Thread(target=self._serve, args=(ours,), name="autotune-pmi", daemon=True).start()

    def _serve(self, ours: socket.socket) -> None:
        """Answer each line of one rank with one line. The launcher handles a rank that is gone."""
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


class Launcher:
    """Runs one trial.

    Args:
        request: the trial.
        connection: to the tuner.
        loaded: the task or script, see `ForkServer.task`.

    Attributes:
        ranks: {pid: number} of those that have not ended.
    """

    def __init__(self, spec: TrialSpec, connection: UnixConnection, loaded: LoadedTask | LoadedScript | Path) -> None:
        self.spec, self.connection, self.loaded = spec, connection, loaded
        self.folder, self.world = Path(spec.folder), spec.settings.processes
        self.ranks: dict[int, int] = {}
        self._manager: ProcessManager | None = None
        self._port: int | None = None

    def run(self) -> int:
        """Run the trial to its end; returns the exit code."""
        process_tree.lead_group()
        process_tree.die_with_parent()
        process_tree.prefer_as_oom_victim()
        script = self.loaded if isinstance(self.loaded, LoadedScript) else None
        if script is None:
            mirror(Path.cwd(), self.folder)
            os.chdir(self.folder)
        else:
            script.facts = self.spec.facts or script.facts  # those that the tuner has of it now
            script.isolation.nest(self.folder)
        shm.mark_names(self.folder)  # its shared memory and temporary files are its own
        os.environ["TMPDIR"] = str(self.folder)
        tempfile.tempdir = None
        if self.world > 1 or (script is not None and script.script.ranked):
            self._port = torchrun.free_port()
        backend = self.spec.settings.backend if self.world > 1 else None
        if backend is not None and BACKENDS[backend].launcher == MPIEXEC:
            self._manager = ProcessManager(self.world, mark(self.folder))
        for rank in range(self.world):
            self._fork_rank(rank)
        if self._manager is not None:
            self._manager.serve()
        return self._wait()

    def _fork_rank(self, rank: int) -> None:
        """Start ``rank``."""
        parent = os.getpid()
        if pid := os.fork():
            self.ranks[pid] = rank
            return
        with exit_on_error():
            process_tree.die_with_parent()
            if os.getppid() != parent:
                os._exit(1)
            if self.world > 1:
                os.setsid()
                self.connection.send({"event": "rank-started", "pid": os.getpid()})
            if self._port is not None:
                os.environ.update(torchrun.variables(rank, self.world, self._port))
            if self.spec.binding:
                os.environ[VARIABLE] = self.spec.binding
            bind_by_plan()  # before any library starts threads; the session reads back if that worked
            if self._manager is not None:
                os.environ.update(self._manager.environment(rank))
            code = run_rank(self.spec, self.connection, self.loaded, rank)
            as_main.flush()
            os._exit(code)

    def _wait(self) -> int:
        """Wait for all ranks. The first that fails is the trial's end: the others would wait for it for half an
        hour."""
        while self.ranks:
            if self._report_end(*os.wait()) != 0:
                self._report_others()
                shm.end(process_tree.descendants(os.getpid()))
                process_tree.kill_tree(os.getpid(), include_root=False)
                shm.remove(self.folder)
                return 1
        return 0

    def _report_end(self, pid: int, status: int) -> int:
        """Report the end of a rank and return its exit code; 0 for any other process."""
        if pid not in self.ranks:
            return 0
        code = os.waitstatus_to_exitcode(status)
        self.connection.send({"event": "rank-ended", "rank": self.ranks.pop(pid), "code": code})
        return code

    def _report_others(self) -> None:
        """Report ranks that end now, too: a signal explains more than the error of a peer that lost its rank."""
        give_up = time.monotonic() + DYING_SECONDS
        while self.ranks and time.monotonic() < give_up:
            for pid, status in process_tree.reap():
                self._report_end(pid, status)
            time.sleep(DYING_SECONDS / 20)


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """End a forked process if an error leaves it, except `Resume`, which continues the script."""
    try:
        yield
    except Resume:
        raise
    except BaseException:
        traceback.print_exc()
        as_main.flush()
        os._exit(1)
