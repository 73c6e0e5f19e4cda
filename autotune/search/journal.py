"""The file of a study, for a run that must not end because of it: torn lines are mended, a full disk is outlived."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend


class Journal(JournalFileBackend):
    """Optuna's journal file. From the first entry on that the file does not take, entries are kept in memory: the run
    goes on, and ``--resume`` knows what came before."""

    def __init__(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            _mend(path)
        super().__init__(str(path))
        self._path = path
        self._in_file: int | None = None
        self._kept: list[dict[str, Any]] = []

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries at the end."""
        if self._in_file is None and self._written(logs):
            return
        if self._in_file is None:
            self._in_file = sum(1 for _ in super().read_logs(0))
        self._kept += json.loads(json.dumps(logs))

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Entries from this number on."""
        if self._in_file is None or log_number_from < self._in_file:
            yield from super().read_logs(log_number_from)
        if self._in_file is not None:
            yield from self._kept[max(0, log_number_from - self._in_file) :]

    def _written(self, logs: list[dict[str, Any]]) -> bool:
        """Whether the file took ``logs``; it holds nothing of them where it did not."""
        size = os.path.getsize(self._path)
        try:
            super().append_logs(logs)
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._path, size)
            return False
        return True


def _mend(path: Path) -> None:
    """Cut off a last line that is not whole: its writer was killed, and the next entry would be added to it."""
    if not path.is_file():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
