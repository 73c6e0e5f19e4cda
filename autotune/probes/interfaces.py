"""The network of a machine: names, routes and interfaces. Nothing is sent."""

from __future__ import annotations

import socket


class Interfaces:
    """The network of the machine this process runs on."""

    def addresses(self, host: str) -> tuple[str, ...]:
        """IP addresses of a host name; empty where it does not resolve."""
        try:
            return tuple(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, None)))
        except OSError:
            return ()

    def source(self, address: str) -> str | None:
        """The local address that packets to ``address`` would have; None where there is no route. Nothing is sent."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                return str(probe.getsockname()[0])
        except OSError:
            return None

    def interface_addresses(self) -> dict[str, tuple[str, ...]]:
        """IP addresses of every interface."""
        import psutil

        kinds = (socket.AF_INET, socket.AF_INET6)
        found = psutil.net_if_addrs().items()
        return {name: tuple(a.address.partition("%")[0] for a in all_ if a.family in kinds) for name, all_ in found}
