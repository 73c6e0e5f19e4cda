"""Routes to other machines, asked of the kernel's own tables: nothing is sent."""

from __future__ import annotations

import socket

from autotune.probes.facts import Route


def route(host: str) -> Route | None:
    """Return the route to ``host`` (a name or an address); None if there is none."""
    import psutil

    everywhere = psutil.net_if_addrs().items()
    own = {each.address.partition("%")[0]: name for name, addresses in everywhere for each in addresses}
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:  # the name does not resolve
        return None
    for address in (str(each[4][0]) for each in found):
        source = _source(address)
        if source is not None:
            return Route(source, own.get(source), here=address in own)
    return None


def _source(address: str) -> str | None:
    """Return the local address that packets to ``address`` would have; None if there is no route."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as unused:
            unused.connect((address, 9))
            return str(unused.getsockname()[0])
    except OSError:
        return None
