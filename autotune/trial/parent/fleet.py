"""The other machines of a run as its runner sees them: an agent on each, which starts its part of every trial."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from autotune.core.errors import LaunchError
from autotune.trial.parent.running_trial import Trial
from autotune.trial.parent.tcp_connection import Wire
from autotune.trial.spec import Meeting, TrialSpec


@dataclass(frozen=True)
class Agent:
    """One other machine: its name for people, its number, the connection, its type."""

    name: str
    node: int
    wire: Wire
    machine: str = ""


@dataclass
class Part:
    """What runs of one trial on other machines."""

    running: set[str]
    trial: Trial | None = None
    """Its part here, once that has started."""
    early: list[tuple[Agent, dict[str, Any]]] = field(default_factory=list)
    """What was said before that."""


class Fleet:
    """The agents of a run; none where it has one machine.

    Args:
        agents: one for each of the other machines.
        host: this machine's address among them.
        interface: the network interface that leads to them.
    """

    def __init__(self, agents: Sequence[Agent] = (), host: str = "", interface: str | None = None) -> None:
        self.agents, self.host, self.interface = tuple(agents), host, interface
        self.parts: dict[int, Part] = {}

    @property
    def nnodes(self) -> int:
        """How many machines there are, this one included."""
        return 1 + len(self.agents)

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Let ``selector`` call `_hear` when an agent says something."""
        for agent in self.agents:
            selector.register(agent.wire, selectors.EVENT_READ, partial(self._hear, agent))

    def meeting(self) -> Meeting | None:
        """Where the ranks of the next trial meet; None where all of them are here."""
        if not self.agents:
            return None
        return Meeting(self.host, _free_ports(self.host), self.nnodes, 0, self.interface)

    def start(self, number: int, spec: TrialSpec, meeting: Meeting | None) -> None:
        """Start the other machines' part of trial ``number``."""
        if meeting is None:
            return
        self.parts[number] = Part({agent.name for agent in self.agents})
        for agent in self.agents:
            own = replace(meeting, node=agent.node, interface=None)
            agent.wire.send({"order": "start", "trial": number, "spec": spec.as_dict(), "meeting": asdict(own)})

    def started(self, trial: Trial) -> None:
        """``trial`` runs here too."""
        part = self.parts.get(trial.number)
        if part is not None:
            part.trial = trial
            for agent, message in part.early:
                self._book(agent, message)

    def signal(self, trial: Trial, signum: int) -> None:
        """Pause or continue the other machines' part."""
        for agent in self._running(trial):
            agent.wire.send({"order": "signal", "trial": trial.number, "signal": signum})

    def stop(self, trial: Trial) -> None:
        """Have the other machines' part ended."""
        for agent in self._running(trial):
            agent.wire.send({"order": "stop", "trial": trial.number})

    def ended(self, trial: Trial) -> bool:
        """True once nothing of ``trial`` is left on other machines."""
        return not self._running(trial)

    def forget(self, trial: Trial) -> None:
        """``trial`` is over."""
        self.parts.pop(trial.number, None)

    def close(self) -> None:
        """Send the agents home."""
        for agent in self.agents:
            agent.wire.send({"order": "exit"})
            agent.wire.close()
        self.agents = ()

    def _running(self, trial: Trial) -> list[Agent]:
        part = self.parts.get(trial.number)
        return [agent for agent in self.agents if part is not None and agent.name in part.running]

    def _hear(self, agent: Agent) -> None:
        agent.wire.read()
        while agent.wire.inbox:
            self._book(agent, agent.wire.inbox.popleft())
        if agent.wire.closed:
            raise LaunchError(
                f"{agent.name}: the agent there is gone; what it said last is on its own screen. Start the command on"
                " all machines again; --resume goes on from here"
            )

    def _book(self, agent: Agent, message: dict[str, Any]) -> None:
        part = self.parts.get(message["trial"])
        if part is None:
            return
        if part.trial is None:
            part.early.append((agent, message))
            return
        if "event" in message:
            part.trial.take(message["event"])
            return
        part.running.discard(agent.name)
        part.trial.elsewhere.append((agent.name, message))
        if message["code"] != 0:
            # Ranks here would wait for those that are gone.
            part.trial.server.request("kill", pid=part.trial.pid)


def _free_ports(host: str) -> tuple[int, int]:
    """Two ports that nobody listens on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as first, socket.socket(family) as second:
        first.bind((host, 0))
        second.bind((host, 0))
        return first.getsockname()[1], second.getsockname()[1]
