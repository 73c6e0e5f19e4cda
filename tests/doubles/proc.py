"""A ``/proc`` of a few processes, written by hand and replayed by `Recorded`."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.recorded import Recorded, Recording

TUNER = 10
"""Process id of the one that tunes; 1 started it."""


@dataclass(frozen=True)
class Row:
    """One process: seconds of its own and of its children that have ended; ``owner`` 0 is the user who looks."""

    pid: int
    parent: int = 1
    seconds: float = 0.0
    ended: float = 0.0
    name: str = "python"
    niceness: int = 0
    cpus: str = "0-1"
    owner: int = 0


class ProcTree:
    """A machine whose ``/proc`` is written anew for each moment."""

    def __init__(self, folder: Path, cpus: tuple[int, ...] = (0, 1), files: Mapping[str, str] | None = None):
        self.root = folder
        self.cpus = cpus
        self.files = dict(files or {})
        self.owners: dict[str, int] = {}

    @property
    def system(self) -> Recorded:
        """The machine, whose user is root and may run on ``cpus``."""
        return Recorded(self.root, Recording(affinity=self.cpus, uid=0, pid=TUNER, owners=self.owners))

    def at(self, cpus: Mapping[int, tuple[float, ...]], *rows: Row, files: Mapping[str, str] | None = None) -> None:
        """Write a moment: seconds of each CPU in the order of ``/proc/stat`` (user, nice, system, idle, ...).

        The machine has been idle for 100 s before.
        """
        shutil.rmtree(self.root / "proc", ignore_errors=True)
        since = {cpu: (*values[:3], values[3] + 100, *values[4:]) for cpu, values in cpus.items()}
        ticks = {cpu: " ".join(str(round(100 * seconds)) for seconds in values) for cpu, values in since.items()}
        self._write("/proc/stat", "\n".join(["cpu  9 9 9 9", *(f"cpu{cpu} {text}" for cpu, text in ticks.items())]))
        for row in (Row(TUNER, name="autotune"), *rows) if all(row.pid != TUNER for row in rows) else rows:
            own, ended = round(100 * row.seconds), round(100 * row.ended)  # half in the kernel
            times = f"{own // 2} {own - own // 2} {ended // 2} {ended - ended // 2} 20 {row.niceness} 1 0 {row.pid}"
            self._write(f"/proc/{row.pid}/stat", f"{row.pid} ({row.name}) S {row.parent} 1 1 0 0 0 0 0 0 0 {times} 0 0")
            self._write(f"/proc/{row.pid}/status", f"Name:\t{row.name}\nCpus_allowed_list:\t{row.cpus}")
            self.owners[f"/proc/{row.pid}"] = row.owner
        for path, text in {**self.files, **(files or {})}.items():
            self._write(path, text)

    def _write(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n", encoding="ascii")
