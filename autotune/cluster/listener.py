"""The machine that controls a run: it listens for the others and gathers them."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.cluster.handshake import accept
from autotune.cluster.rendezvous import Rendezvous
from autotune.errors import LaunchError, UsageError, UserCodeError
from autotune.trial.parent.fleet import Agent, Fleet
from autotune.tuning.events import Observer, StageStarted, ignore

LOAD_SECONDS = 150.0


@dataclass(frozen=True)
class Listener:
    """Where this machine listens for the others: it controls the run.

    Attributes:
        socket: that listens.
        rendezvous: where the machines meet, which is here.
        nnodes: how many machines there will be, this one included.
    """

    socket: socket.socket
    rendezvous: Rendezvous
    nnodes: int

    @contextlib.contextmanager
    def gather(
        self, own: Mapping[str, Any], seed: int, patience: float, observe: Observer = ignore
    ) -> Iterator[tuple[Fleet, tuple[str, ...]]]:
        """The agents of all other machines, ready for trials, and notes for people; in the end the agents leave.

        Args:
            own: this machine's `autotune.cluster.handshake.identity`.
            seed: of data order and weights.
            patience: seconds to wait for the others.
            observe: called with an event for every wait.

        Raises:
            UsageError: a machine differs where it must not.
            NothingUsable: not all machines came.
            UserCodeError: a machine could not load the task.
            LaunchError: a machine left.
        """
        agents: list[Agent] = []
        fleet = Fleet()
        try:
            with self.socket:
                give_up = time.monotonic() + patience
                while missing := self.nnodes - 1 - len(agents):
                    more = f"{missing} more machine{'s' * (missing > 1)}"
                    observe(StageStarted(f"waiting at {self.rendezvous.endpoint} for {more}"))
                    agent = accept(self.socket, len(agents) + 1, own, seed, give_up)
                    agents += [agent] if agent else []
            observe(StageStarted("waiting until all machines have loaded the task"))
            for agent in agents:
                _wait_loaded(agent)
            fleet = Fleet(agents, self.rendezvous.address, self.rendezvous.interface)
            yield fleet, _differences(agents, own)
        finally:
            fleet.close()
            for agent in agents:
                agent.connection.close()


def listen(rendezvous: Rendezvous, nnodes: int) -> Listener | None:
    """A listener where the machines meet; None if that is not here, or if another process of this machine listens
    already: then this one connects.

    Raises:
        UsageError: nobody can listen there.
    """
    if not rendezvous.here:
        return None
    family = socket.AF_INET6 if ":" in rendezvous.address else socket.AF_INET
    try:
        return Listener(socket.create_server((rendezvous.address, rendezvous.port), family=family), rendezvous, nnodes)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise UsageError(
            f"{rendezvous.endpoint}: cannot listen there ({error.strerror}). Choose another port, the same on all:"
            " --rdzv-endpoint HOST:PORT"
        ) from error


def _differences(agents: Sequence[Agent], own: Mapping[str, Any]) -> tuple[str, ...]:
    """A note if machines differ: by type, since profiles hold no names."""
    others = sorted({agent.machine for agent in agents} - {own["machine"]})
    return (f"not all machines are alike, and the slowest sets the pace: also {', '.join(others)}",) if others else ()


def _wait_loaded(agent: Agent) -> None:
    reply = agent.connection.receive(LOAD_SECONDS)
    if reply is None:
        raise LaunchError(f"{agent.name} left, or has not loaded the task within {LOAD_SECONDS:.0f} s: see its screen")
    if "failed" in reply:
        raise UserCodeError(f"{agent.name}: {reply['failed']}", str(reply.get("traceback", "")))
