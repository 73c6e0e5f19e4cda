"""Network interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import host, interface, laptop

from probes import network


def test_laptop(tmp_path: Path) -> None:
    lo, wlan = network.probe(laptop().at(tmp_path))
    assert (lo.name, lo.up, lo.loopback, lo.speed) == ("lo", True, True, None)
    assert (wlan.name, wlan.up, wlan.loopback) == ("wlp0s20f3", True, False)


@pytest.mark.parametrize(
    ("operstate", "flags", "speed", "up", "bits"),
    [
        ("up", "0x1003", "100000", True, 100_000_000_000),
        ("down", "0x1003", "-1", False, None),
        ("unknown", "0x9", "", True, None),
        ("unknown", "0x8", "4294967295x", False, None),
        ("unknown", "", "0", False, None),
    ],
)
def test_states(tmp_path: Path, operstate: str, flags: str, speed: str, up: bool, bits: int | None) -> None:
    files = interface("eth0", operstate=operstate, flags=flags, speed=speed, type="1")
    (found,) = network.probe(host([(0,)], cpuinfo="").having(files).at(tmp_path))
    assert (found.up, found.speed) == (up, bits)
