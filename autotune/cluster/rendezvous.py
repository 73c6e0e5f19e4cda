"""Where the machines of one tuning run meet, and how this machine gets there."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.launch.cluster import Cluster, endpoint, no_route
from autotune.probes import network
from autotune.probes.facts import Inventory
from autotune.probes.system import System

ONE_MACHINE = "several machines are tuned with what torchrun starts; mpi is tuned on one"


@dataclass(frozen=True)
class Rendezvous:
    """Where the machines meet, as seen from this one.

    Attributes:
        host, port: there.
        address: this machine's own address on the route.
        interface: its network interface; None if it is not known.
        here: whether they meet on this machine.
    """

    host: str
    port: int
    address: str
    interface: str | None
    here: bool

    @property
    def endpoint(self) -> str:
        """``HOST:PORT``, for people."""
        return endpoint(self.host, self.port)


def rendezvous(cluster: Cluster) -> Rendezvous:
    """Where ``cluster`` meets, and the route from here.

    Raises:
        UsageError: a cluster that mpiexec starts, or there is no route.
    """
    if cluster.hosts:
        raise UsageError("tune starts on every machine by itself: give --nnodes and --rdzv-endpoint on each")
    route = network.route(System(), cluster.host)
    if route is None:
        raise no_route(cluster.host)
    interface = os.environ.get("GLOO_SOCKET_IFNAME", route.interface)
    return Rendezvous(cluster.host, cluster.port, route.address, interface, route.here)


def without_mpi(inventory: Inventory) -> Inventory:
    """``inventory`` without the backends that cannot be tuned on several machines."""
    backends = tuple(
        replace(found, usable=False, reason=ONE_MACHINE)
        if found.name in BACKENDS and BACKENDS[found.name].launcher == MPIEXEC
        else found
        for found in inventory.software.backends
    )
    return replace(inventory, software=replace(inventory.software, backends=backends))
