"""``autotune diff``: two profiles, knob by knob."""

from __future__ import annotations

from pathlib import Path

from autotune.report import diff as report
from autotune.store.profiles import read


def diff(left: Path, right: Path) -> None:
    """Print what differs."""
    print(report.text(read(left), read(right), (left.name, right.name)))
