"""Routes to other machines."""

from __future__ import annotations

from autotune.probes.facts import Route
from autotune.probes.system import System


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
