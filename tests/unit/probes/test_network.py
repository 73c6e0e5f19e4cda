"""Routes to other machines."""

from __future__ import annotations

import contextlib
import socket
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from autotune.probes import network
from autotune.probes.facts import Route

INTERFACES = {"lo": ("127.0.0.1",), "eth0": ("192.168.0.2",), "ib0": ("10.0.0.2", "fd00::2%ib0")}
NAMES = {"far": "10.0.0.9", "10.0.0.9": "10.0.0.9", "self": "10.0.0.2", "lost": "203.0.113.1"}
SOURCES = {"10.0.0.9": "10.0.0.2", "10.0.0.2": "10.0.0.2"}


def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
    if host not in NAMES:
        raise socket.gaierror
    return [(0, 0, 0, "", (NAMES[host], 9))]


class Unused(contextlib.nullcontext[Any]):
    """A socket whose route is known."""

    def __init__(self, *_: Any) -> None:
        super().__init__(self)

    def connect(self, address: tuple[str, int]) -> None:
        if address[0] not in SOURCES:
            raise OSError
        self.source = SOURCES[address[0]]

    def getsockname(self) -> tuple[str, int]:
        return self.source, 1


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("far", Route("10.0.0.2", "ib0", here=False)),
        ("10.0.0.9", Route("10.0.0.2", "ib0", here=False)),
        ("self", Route("10.0.0.2", "ib0", here=True)),
        ("lost", None),
        ("nobody.invalid", None),
    ],
)
def test_a_machine_of_several_interfaces(monkeypatch: pytest.MonkeyPatch, name: str, route: Route | None) -> None:
    own = {name: [SimpleNamespace(address=each) for each in found] for name, found in INTERFACES.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: own)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "socket", Unused)
    assert network.route(name) == route


def test_this_very_machine() -> None:
    route = network.route("127.0.0.1")
    assert (route.address, route.here) == ("127.0.0.1", True)
    assert route.interface in ("lo", "lo0")
