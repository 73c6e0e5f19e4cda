"""The Unix socket at which a loader's worker hands files over: Python makes it in the temporary folder."""

from __future__ import annotations

LONGEST_PATH = 107
"""Characters in the path of a Unix socket on Linux."""
LONGEST_FOLDER = LONGEST_PATH - len("/pymp-12345678/listener-12345678")


def fits(folder: str) -> bool:
    """Whether workers start where this is the temporary folder."""
    return len(folder) <= LONGEST_FOLDER
