"""How long the name of a temporary folder may be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from autotune.trial.worker_socket import LONGEST_PATH, fits


@pytest.mark.parametrize(("length", "fit"), [(4, True), (75, True), (76, False)])
def test_a_dataloaders_worker_was_seen_to_start_with_75_characters_and_not_with_76(length: int, fit: bool) -> None:
    assert fits("x" * length) is fit


def test_the_kernel_takes_no_longer_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = "./".ljust(LONGEST_PATH, "x")
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(path)
        with pytest.raises(OSError, match="too long"):
            other.bind(f"{path}x")
