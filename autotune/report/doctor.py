"""What the doctor found, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from autotune.doctor.findings import Finding
from autotune.report import formatting

NOTHING = "nothing found that costs speed on this machine"


def text(found: Sequence[Finding]) -> str:
    """Each finding with what mends it, and what that brings. Only lines to copy may be wider than 80 columns."""
    return "\n\n".join("\n".join(_lines(each)) for each in found) if found else NOTHING


def _lines(finding: Finding) -> Iterator[str]:
    yield from textwrap.wrap(f"{finding.name}: {finding.what}", formatting.WIDTH, subsequent_indent="  ")
    yield f"  mend   {finding.mend}"
    yield f"  gain   {finding.gain}"
