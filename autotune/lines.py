"""Long texts, such as other people's error messages, on one line."""

from __future__ import annotations


def cut(line: str, width: int) -> str:
    """Return ``line``, or its start with ``...`` if it is longer than ``width`` characters."""
    return line if len(line) <= width else line[: width - 3].rstrip() + "..."


def first_line(text: str, width: int) -> str:
    """Return the first line of ``text`` that is not blank, cut to ``width`` characters; empty if there is none."""
    return cut((text.strip().splitlines() or [""])[0], width)
