"""Routes to other machines, read from the kernel's own tables: nothing is sent."""

from __future__ import annotations

import contextlib
import socket

from autotune.probes.facts import Route

ANY_PORT = 9


def route(host: str) -> Route | None:
    """Return the route to ``host`` (a name or an address); None if there is none."""
    import psutil

    everywhere = psutil.net_if_addrs().items()
    own = {each.address.partition("%")[0]: name for name, addresses in everywhere for each in addresses}
    with contextlib.suppress(OSError, UnicodeError):  # the name does not resolve
        for family, *_, address in socket.getaddrinfo(host, ANY_PORT, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as unused:
                unused.connect(address)
                source = str(unused.getsockname()[0])
                return Route(source, own.get(source), here=address[0] in own)
    return None
