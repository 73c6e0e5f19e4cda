"""``autotune diff``: two profiles, knob by knob."""

from __future__ import annotations

from pathlib import Path

from autotune.profiles.file import read
from autotune.report import diff as report


def diff(left: Path, right: Path) -> None:
    """Print what differs."""
    print(report.text(read(left), read(right), (left.name, right.name)))
