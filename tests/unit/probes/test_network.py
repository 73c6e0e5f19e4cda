"""Routes to other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.probes import network
from autotune.probes.facts import Route
from autotune.probes.system import System
from tests.doubles.recorded import Recorded, Recording


class TestRoute:
    """How another machine is reached, by name or address, from a machine of several interfaces."""

    HERE = Recording(
        names={"far": ("10.0.0.9",), "self": ("10.0.0.2",), "lost": ("203.0.113.1",), "10.0.0.9": ("10.0.0.9",)},
        sources={"10.0.0.9": "10.0.0.2", "10.0.0.2": "10.0.0.2"},
        interfaces={"lo": ("127.0.0.1",), "eth0": ("192.168.0.2",), "ib0": ("10.0.0.2", "fd00::2")},
    )

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
    def test_recorded(self, tmp_path: Path, name: str, route: Route | None) -> None:
        assert network.route(Recorded(tmp_path, self.HERE), name) == route

    def test_this_very_machine(self) -> None:
        route = network.route(System(), "127.0.0.1")
        assert (route.address, route.here) == ("127.0.0.1", True)
        assert route.interface in ("lo", "lo0")
        assert network.route(System(), "nobody.invalid") is None
