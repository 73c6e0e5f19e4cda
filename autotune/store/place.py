"""Whether a profile can be written where it is to go."""

from __future__ import annotations

import tempfile
from pathlib import Path

from autotune.core.errors import UsageError


def writable(path: Path) -> Path:
    """``path``, in a folder that is there. Finds out now, not after the run, that the profile cannot be written.

    Raises:
        UsageError: it cannot.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder. Name the profile's file: --profile {path / 'OUT.yaml'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(
            f"{path.parent}: profiles cannot be written there ({error.strerror}). Choose another place:"
            " --profile OUT.yaml"
        ) from error
    return path
