"""The process manager that forked ranks find instead of mpiexec's: MPICH's PMI-1 protocol, as far as starting needs it.

Ranks started by mpiexec are new processes that import torch for seconds. MPICH asks its process manager for little
more than "who am I, of how many", in lines of text over an inherited socket; answering them here lets ranks be forked
like those of every other backend. MPI itself is loaded after the fork only.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable

MAXES = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"


class ProcessManager:
    """Serves the ranks of one trial from a thread, until this process ends.

    Args:
        size: how many ranks there will be. All must be forked before `serve`.
        name: of the job. MPI names its shared memory after it: two trials at once must differ.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size, self.name = size, name
        self.values = {"PMI_process_mapping": f"(vector,(0,1,{size}))"}
        """What ranks tell each other. All run on this machine: one block on node 0."""
        self._pairs = [socket.socketpair() for _ in range(size)]
        self._waiting: list[socket.socket] = []
        self._verbs: dict[str, Callable[[dict[str, str]], str]] = {
            "init": lambda _: "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": lambda _: MAXES,
            "get_appnum": lambda _: "cmd=appnum appnum=0 rc=0",
            "get_my_kvsname": lambda _: f"cmd=my_kvsname kvsname={self.name} rc=0",
            "get_universe_size": lambda _: f"cmd=universe_size size={self.size} rc=0",
            "put": self._put,
            "get": self._get,
            "finalize": lambda _: "cmd=finalize_ack rc=0",
        }

    def environment(self, rank: int) -> dict[str, str]:
        """What the forked ``rank`` must find in its environment; call it there."""
        end = self._pairs[rank][1]
        os.set_inheritable(end.fileno(), True)
        for other in (end for pair in self._pairs for end in pair if end is not self._pairs[rank][1]):
            other.close()
        fd = end.detach()
        return {"PMI_FD": str(fd), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size)}

    def serve(self) -> None:
        """Answer from now on."""
        for _, theirs in self._pairs:
            theirs.close()
        threading.Thread(target=self._serve, name="autotune-pmi", daemon=True).start()

    def _serve(self) -> None:
        """One line in, one line out. A rank that is gone is the leader's business."""
        rests = {ours: b"" for ours, _ in self._pairs}
        while rests:
            for ours in select.select(list(rests), [], [])[0]:
                received = _receive(ours)
                if not received:
                    del rests[ours]
                    ours.close()
                    continue
                *lines, rests[ours] = (rests[ours] + received).split(b"\n")
                for line in lines:
                    words = (word.partition("=") for word in line.decode(errors="replace").split())
                    self._answer(ours, {name: value for name, _, value in words})

    def _answer(self, ours: socket.socket, request: dict[str, str]) -> None:
        verb = request.get("cmd", "")
        if verb == "barrier_in":
            self._waiting.append(ours)
            if len(self._waiting) == self.size:
                for waiting in self._waiting:
                    _send(waiting, "cmd=barrier_out rc=0")
                self._waiting.clear()
            return
        answer = self._verbs.get(verb)
        _send(ours, answer(request) if answer else f"cmd={verb} rc=-1 msg=not_supported")

    def _put(self, request: dict[str, str]) -> str:
        self.values[request.get("key", "")] = request.get("value", "")
        return "cmd=put_result rc=0"

    def _get(self, request: dict[str, str]) -> str:
        value = self.values.get(request.get("key", ""))
        if value is None:
            return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
        return f"cmd=get_result rc=0 value={value}"


def _receive(ours: socket.socket) -> bytes:
    try:
        return ours.recv(4096)
    except OSError:
        return b""


def _send(ours: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        ours.sendall(text.encode() + b"\n")
