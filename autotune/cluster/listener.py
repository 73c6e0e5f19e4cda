"""How the machines of one tuning run find each other: one listens, the others knock, and all must be alike."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.core.backends import BACKENDS, MPIEXEC
from autotune.core.cluster import Cluster, endpoint, no_way
from autotune.core.errors import LaunchError, NothingUsable, UsageError, UserCodeError
from autotune.core.machine import machine_type
from autotune.trial.fleet import Agent, Fleet
from autotune.trial.wire import Wire
from autotune.tuning.state import Observer
from probes import network
from probes.facts import Inventory
from probes.system import System

HELLO_SECONDS = 10.0
LOAD_SECONDS = 150.0
RETRY_SECONDS = 0.2
ALIKE = {"autotune": "this project", "torch": "PyTorch", "task": "the task file"}
"""What all machines must have in the same version."""
ONE_MACHINE = "several machines are tuned with what torchrun starts; mpi is tuned on one"


@dataclass(frozen=True)
class Way:
    """To where the machines meet.

    Attributes:
        host, port: there.
        address: this machine's own address on the way.
        interface: its network interface; None where it is not known.
        here: whether they meet on this machine.
    """

    host: str
    port: int
    address: str
    interface: str | None
    here: bool

    @property
    def place(self) -> str:
        """Where the machines meet, for people."""
        return endpoint(self.host, self.port)


def way(cluster: Cluster) -> Way:
    """The way from here to where ``cluster`` meets.

    Raises:
        UsageError: mpiexec's kind of cluster, or there is no way.
    """
    if cluster.hosts:
        raise UsageError("tune starts on every machine by itself: give --nnodes and --rdzv-endpoint on each")
    found = network.route(System(), cluster.host)
    if found is None:
        raise no_way(cluster.host)
    interface = os.environ.get("GLOO_SOCKET_IFNAME", found.interface)
    return Way(cluster.host, cluster.port, found.address, interface, found.here)


def for_several(inventory: Inventory) -> Inventory:
    """``inventory`` without the backends that cannot be tuned on several machines."""
    backends = tuple(
        replace(found, usable=False, reason=ONE_MACHINE)
        if found.name in BACKENDS and BACKENDS[found.name].launcher == MPIEXEC
        else found
        for found in inventory.software.backends
    )
    return replace(inventory, software=replace(inventory.software, backends=backends))


def hello(task: Path, inventory: Inventory) -> dict[str, Any]:
    """What a machine says of itself."""
    return {
        "name": socket.gethostname(),
        "machine": machine_type(inventory).key,
        "autotune": version("torch-autotune"),
        "torch": inventory.software.torch,
        "task": hashlib.sha256(task.read_bytes()).hexdigest()[:12],
    }


@dataclass(frozen=True)
class Door:
    """Where this machine listens for the others: it controls the run.

    Attributes:
        socket: that listens.
        way: to here.
        nnodes: how many machines there will be, this one included.
    """

    socket: socket.socket
    way: Way
    nnodes: int

    @contextlib.contextmanager
    def gather(
        self, own: Mapping[str, Any], seed: int, patience: float, observe: Observer
    ) -> Iterator[tuple[Fleet, tuple[str, ...]]]:
        """The agents of all other machines, ready for trials, and what to mind; they are sent home afterwards.

        Args:
            own: what this machine says of itself, see `hello`.
            seed: of data order and weights.
            patience: seconds to wait for the others.
            observe: told about progress.

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
                while len(agents) < self.nnodes - 1:
                    missing = self.nnodes - 1 - len(agents)
                    observe(stage=f"waiting at {self.way.place} for {missing} more machine{'s' * (missing > 1)}")
                    agents += _admit(self.socket, len(agents) + 1, own, seed, give_up)
            observe(stage="waiting until all machines have loaded the task")
            for agent in agents:
                _wait_loaded(agent)
            fleet = Fleet(agents, self.way.address, self.way.interface)
            yield fleet, _differences(agents, own)
        finally:
            fleet.close()
            for agent in agents:
                agent.wire.close()


def listen(found: Way, nnodes: int) -> Door | None:
    """A door where the machines meet; None where that is not here, or another process opened it: then this one knocks.

    Raises:
        UsageError: nobody can listen there.
    """
    if not found.here:
        return None
    family = socket.AF_INET6 if ":" in found.address else socket.AF_INET
    try:
        return Door(socket.create_server((found.address, found.port), family=family), found, nnodes)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise UsageError(
            f"{found.place}: cannot listen there ({error.strerror}). Choose another port, the same on all:"
            " --rdzv-endpoint HOST:PORT"
        ) from error


def join(found: Way, own: Mapping[str, Any], patience: float) -> tuple[Wire, int]:
    """Knock until the controller opens: the connection to it and the seed of the run.

    Raises:
        NothingUsable: nobody opened within ``patience`` seconds.
        UsageError: it refused this machine.
        LaunchError: what answers there is no tuning run.
    """
    wire = Wire(_knock(found, time.monotonic() + patience))
    wire.send({"hello": dict(own)})
    answer = wire.receive(HELLO_SECONDS)
    if answer is not None and "seed" in answer:
        return wire, int(answer["seed"])
    wire.close()
    if answer is not None and "refused" in answer:
        raise UsageError(f"{found.place} refused this machine: {answer['refused']}")
    raise LaunchError(f"{found.place}: what answers there is no tuning run that waits. Choose another port, on all")


def _knock(found: Way, give_up: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((found.host, found.port), timeout=HELLO_SECONDS)
        except OSError as error:
            if time.monotonic() > give_up:
                raise NothingUsable(
                    f"nobody listens at {found.place} ({error}). Start the same command on that machine too"
                ) from None
            time.sleep(RETRY_SECONDS)


def _admit(door: socket.socket, node: int, own: Mapping[str, Any], seed: int, give_up: float) -> list[Agent]:
    """The next machine; none where what knocked was no machine of a run."""
    door.settimeout(max(0.0, give_up - time.monotonic()))
    try:
        knocking, address = door.accept()
    except (TimeoutError, BlockingIOError):
        raise NothingUsable(
            "not all machines came. Start the same command on each, with the same --nnodes and --rdzv-endpoint"
        ) from None
    wire = Wire(knocking)
    said = (wire.receive(HELLO_SECONDS) or {}).get("hello")
    if not isinstance(said, dict):
        wire.close()
        return []
    agent = Agent(f"{said.get('name')} ({address[0]})", node, wire, str(said.get("machine")))
    other = [what for name, what in ALIKE.items() if said.get(name) != own[name]]
    if other:
        reason = f"{' and '.join(other)} must be the same on all machines"
        wire.send({"refused": reason})
        wire.close()
        raise UsageError(f"{agent.name}: {reason}")
    wire.send({"seed": seed})
    return [agent]


def _differences(agents: Sequence[Agent], own: Mapping[str, Any]) -> tuple[str, ...]:
    """What to mind where machines differ: by type, since profiles hold no names."""
    others = sorted({agent.machine for agent in agents} - {own["machine"]})
    return (f"not all machines are alike, and the slowest sets the pace: also {', '.join(others)}",) if others else ()


def _wait_loaded(agent: Agent) -> None:
    said = agent.wire.receive(LOAD_SECONDS)
    if said is None:
        raise LaunchError(f"{agent.name} left, or has not loaded the task within {LOAD_SECONDS:.0f} s: see its screen")
    if "failed" in said:
        raise UserCodeError(f"{agent.name}: {said['failed']}", str(said.get("traceback", "")))
