"""How two machines of a run agree to work together: what each says of itself, and who is refused."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.cluster.rendezvous import Rendezvous
from autotune.errors import LaunchError, NothingUsable, UsageError
from autotune.probes.facts import Inventory
from autotune.profiles.machine import machine_type
from autotune.trial.parent.fleet import Agent
from autotune.trial.parent.tcp_connection import TcpConnection

HANDSHAKE_SECONDS = 10.0
RETRY_SECONDS = 0.2
SAME_VERSION = {"autotune": "this project", "torch": "PyTorch", "task": "the task file"}
"""What all machines must have in the same version."""


def identity(task: Path, inventory: Inventory) -> dict[str, Any]:
    """What a machine says of itself."""
    return {
        "name": socket.gethostname(),
        "machine": machine_type(inventory).key,
        "autotune": version("torch-autotune"),
        "torch": inventory.software.torch,
        "task": hashlib.sha256(task.read_bytes()).hexdigest()[:12],
    }


def connect(rendezvous: Rendezvous, own: Mapping[str, Any], patience: float) -> tuple[TcpConnection, int]:
    """The connection to the machine that controls the run, and the run's seed.

    Raises:
        NothingUsable: nobody listened within ``patience`` seconds.
        UsageError: it refused this machine.
        LaunchError: what answers there is no tuning run.
    """
    connection = TcpConnection(_open_connection(rendezvous, time.monotonic() + patience))
    connection.send({"identity": dict(own)})
    reply = connection.receive(HANDSHAKE_SECONDS)
    if reply is not None and "seed" in reply:
        return connection, int(reply["seed"])
    connection.close()
    if reply is not None and "why_not" in reply:
        raise UsageError(f"{rendezvous.endpoint} refused this machine: {reply['why_not']}")
    raise LaunchError(f"{rendezvous.endpoint}: no tuning run waits there. Choose another port, on all")


def _open_connection(rendezvous: Rendezvous, give_up: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((rendezvous.host, rendezvous.port), timeout=HANDSHAKE_SECONDS)
        except OSError as error:
            if time.monotonic() > give_up:
                raise NothingUsable(
                    f"nobody listens at {rendezvous.endpoint} ({error}). Start the same command on that machine too"
                ) from None
            time.sleep(RETRY_SECONDS)


def accept(listening: socket.socket, node: int, own: Mapping[str, Any], seed: int, give_up: float) -> Agent | None:
    """The next machine; None if what connected is no machine of a run.

    Raises:
        NothingUsable: nothing connected until ``give_up`` on the monotonic clock.
        UsageError: a machine that differs where it must not.
    """
    listening.settimeout(max(0.0, give_up - time.monotonic()))
    try:
        accepted, address = listening.accept()
    except (TimeoutError, BlockingIOError):
        raise NothingUsable(
            "not all machines came. Start the same command on each, with the same --nnodes and --rdzv-endpoint"
        ) from None
    connection = TcpConnection(accepted)
    theirs = (connection.receive(HANDSHAKE_SECONDS) or {}).get("identity")
    if not isinstance(theirs, dict):
        connection.close()
        return None
    agent = Agent(f"{theirs.get('name')} ({address[0]})", node, connection, str(theirs.get("machine")))
    different = [what for name, what in SAME_VERSION.items() if theirs.get(name) != own[name]]
    if different:
        reason = f"{' and '.join(different)} must be the same on all machines"
        connection.send({"why_not": reason})
        connection.close()
        raise UsageError(f"{agent.name}: {reason}")
    connection.send({"seed": seed})
    return agent
