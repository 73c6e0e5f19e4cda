from __future__ import annotations

from pathlib import Path

import pytest
import torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers import allocator
from autotune.runtime.appliers.allocator import Allocator

HERE = Training(None, None, torch.device("cpu"))


@pytest.mark.parametrize(("text", "applied"), [("7f r-xp /usr/lib/libjemalloc.so.2\n", True), ("", False)])
def test_it_is_looked_up_in_the_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, applied: bool) -> None:
    (tmp_path / "maps").write_text(text)
    monkeypatch.setattr(allocator, "MAPS", tmp_path / "maps")
    assert (Allocator("jemalloc", HERE).start() is None) is applied


def test_without_maps_nobody_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "MAPS", tmp_path / "absent")
    assert "cannot tell" in (Allocator("jemalloc", HERE).why_not() or "")
    assert Allocator("default", HERE).why_not() is None
