"""The other machines of a run as its runner sees them: an agent on each, which starts its ranks of every trial."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from autotune.errors import LaunchError
from autotune.trial.parent.event_loop import EventLoop
from autotune.trial.parent.running_trial import RemoteEnd, RunningTrial
from autotune.trial.parent.tcp_connection import TcpConnection
from autotune.trial.spec import Rendezvous, TrialSpec


@dataclass(frozen=True)
class Agent:
    """One other machine: its name for people, its number, the connection, its type."""

    name: str
    node: int
    connection: TcpConnection
    machine: str = ""


@dataclass
class RemoteRanks:
    """What runs of one trial on other machines."""

    running: set[str]
    """Names of the agents whose ranks have not ended."""
    trial: RunningTrial | None = None
    """The ranks on this machine, once these have started."""
    early: list[tuple[Agent, dict[str, Any]]] = field(default_factory=list)
    """Messages that came before that."""


class Fleet:
    """The agents of a run; none where it has one machine.

    Args:
        agents: one for each of the other machines.
        host: this machine's address among them.
        interface: the network interface that leads to them.
    """

    def __init__(self, agents: Sequence[Agent] = (), host: str = "", interface: str | None = None) -> None:
        self.agents, self.host, self.interface = tuple(agents), host, interface
        self._remote: dict[int, RemoteRanks] = {}

    @property
    def nnodes(self) -> int:
        """How many machines there are, this one included."""
        return 1 + len(self.agents)

    def listen(self, loop: EventLoop) -> None:
        """Take messages of the agents as they come."""
        for agent in self.agents:
            loop.add(agent.connection.fileno(), partial(self._receive, agent))

    def rendezvous(self) -> Rendezvous | None:
        """Where the ranks of the next trial meet; None where all of them are here."""
        if not self.agents:
            return None
        return Rendezvous(self.host, _free_ports(self.host), self.nnodes, 0, self.interface)

    def start(self, number: int, spec: TrialSpec, rendezvous: Rendezvous | None) -> None:
        """Start the other machines' ranks of trial ``number``."""
        if rendezvous is None:
            return
        self._remote[number] = RemoteRanks({agent.name for agent in self.agents})
        for agent in self.agents:
            own = asdict(replace(rendezvous, node=agent.node, interface=None))
            agent.connection.send({"order": "start", "trial": number, "spec": asdict(spec), "rendezvous": own})

    def started(self, trial: RunningTrial) -> None:
        """``trial`` runs here too."""
        remote = self._remote.get(trial.number)
        if remote is not None:
            remote.trial = trial
            for agent, message in remote.early:
                self._record(agent, message)

    def signal(self, trial: RunningTrial, signum: int) -> None:
        """Pause or continue the other machines' ranks."""
        for agent in self._running(trial):
            agent.connection.send({"order": "signal", "trial": trial.number, "signal": signum})

    def stop(self, trial: RunningTrial) -> None:
        """Have the other machines' ranks ended."""
        for agent in self._running(trial):
            agent.connection.send({"order": "stop", "trial": trial.number})

    def ended(self, trial: RunningTrial) -> bool:
        """True once nothing of ``trial`` is left on other machines."""
        return not self._running(trial)

    def forget(self, trial: RunningTrial) -> None:
        """``trial`` is over."""
        self._remote.pop(trial.number, None)

    def close(self) -> None:
        """Send the agents home."""
        for agent in self.agents:
            agent.connection.send({"order": "exit"})
            agent.connection.close()
        self.agents = ()

    def _running(self, trial: RunningTrial) -> list[Agent]:
        remote = self._remote.get(trial.number)
        return [agent for agent in self.agents if remote is not None and agent.name in remote.running]

    def _receive(self, agent: Agent) -> None:
        agent.connection.read()
        while agent.connection.inbox:
            self._record(agent, agent.connection.inbox.popleft())
        if agent.connection.closed:
            raise LaunchError(
                f"{agent.name}: the agent there is gone; what it said last is on its own screen. Start the command on"
                " all machines again; --resume goes on from here"
            )

    def _record(self, agent: Agent, message: dict[str, Any]) -> None:
        remote = self._remote.get(message["trial"])
        if remote is None:
            return
        if remote.trial is None:
            remote.early.append((agent, message))
        elif "event" in message:
            remote.trial.record(message["event"])
        else:
            remote.running.discard(agent.name)
            remote.trial.remote_ends.append(RemoteEnd(agent.name, message["oom_kills"], message["log"]))
            if message["code"] != 0:
                remote.trial.kill()  # ranks here would wait for those that are gone


def _free_ports(host: str) -> tuple[int, int]:
    """Two ports that nobody listens on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as first, socket.socket(family) as second:
        first.bind((host, 0))
        second.bind((host, 0))
        return first.getsockname()[1], second.getsockname()[1]
