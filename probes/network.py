"""Network interfaces, and routes to other machines."""

from __future__ import annotations

from autotune.probes.facts import NetworkInterface, Route
from autotune.probes.system import System

_LOOPBACK_TYPE = "772"
"""ARPHRD_LOOPBACK in the kernel's ``if_arp.h``."""
_UP = 1


def probe(system: System) -> tuple[NetworkInterface, ...]:
    """Return the interfaces by name. On macOS psutil reads them; here that import would take longer than all of it."""
    if system.platform == "darwin":
        import psutil

        found = sorted(psutil.net_if_stats().items())
        return tuple(NetworkInterface(n, s.isup, n.startswith("lo")) for n, s in found)
    return tuple(_interface(system, name) for name in system.list("/sys/class/net") if name != "bonding_masters")


def route(system: System, host: str) -> Route | None:
    """Return the route to ``host`` (a name or an address); None if there is none. Nothing is sent."""
    own = system.interface_addresses()
    everywhere = {address for addresses in own.values() for address in addresses}
    for address in system.addresses(host):
        source = system.source(address)
        if source is not None:
            interfaces = [name for name, addresses in own.items() if source in addresses]
            return Route(source, next(iter(interfaces), None), address in everywhere)
    return None


def _interface(system: System, name: str) -> NetworkInterface:
    folder = f"/sys/class/net/{name}"
    state, flags = system.read(f"{folder}/operstate") or "unknown", system.read(f"{folder}/flags") or "0"
    return NetworkInterface(
        name=name,
        # Drivers that do not track the link (the loopback among them) say "unknown" while it works.
        up=state == "up" or (state == "unknown" and bool(_flags(flags) & _UP)),
        loopback=system.read(f"{folder}/type") == _LOOPBACK_TYPE,
    )


def _flags(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0
