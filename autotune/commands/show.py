"""``autotune show`` and ``autotune validate``: one profile."""

from __future__ import annotations

from pathlib import Path

from autotune.profiles.file import read
from autotune.report import show as report


def show(path: Path) -> None:
    """Print the profile for people."""
    print(report.text(read(path)))


def validate(path: Path) -> None:
    """Check the profile against the schema."""
    profile = read(path)
    print(f"{path}: valid {profile.schema} for {profile.key}, target {profile.target.name}")
