"""A profile that promises a rate, and a regression problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.settings import Settings
from autotune.profiles import file as profiles
from autotune.testing.profiles import profile

IMPOSSIBLE, MODEST = 1e12, 1e-6
"""Samples per second."""


def promise(folder: Path, rate: float, unit: str = "samples") -> Path:
    """A profile whose recommended level was measured at ``rate``."""
    plain = profile(Settings(batch_size=4), rate=rate)
    return profiles.write(folder / "promise.yaml", replace(plain, target=replace(plain.target, unit=unit)))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this project has logged."""
    return [record.getMessage() for record in caplog.records if record.name == "autotune"]
