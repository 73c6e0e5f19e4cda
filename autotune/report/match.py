"""``autotune profiles match --explain``: a profile against this machine, field by field."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.profiles.match import Comparison
from autotune.report import formatting

WIDTH = 110


def text(comparison: Comparison, clamped: Sequence[str]) -> str:
    """The table as plain text, and below it what would be clamped."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("field", "profile", "here", "verdict"):
        table.add_column(Text(column), overflow="fold")
    for row in comparison.rows:
        table.add_row(*(Text(cell) for cell in (row.field, row.theirs, row.here, row.verdict)))
    lines = [Text(f"clamped  {line}") for line in clamped]
    return formatting.plain(Group(table, Text(f"verdict  {comparison.verdict}"), *lines), WIDTH)
