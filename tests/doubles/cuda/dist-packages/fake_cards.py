"""The cards of the double, which all processes share through one file: who holds how much memory, and until when each
works. Nothing here imports PyTorch.

``CUDA_DOUBLE`` names the file. ``CUDA_DOUBLE_CARDS``: 1 (default) or 2. ``CUDA_DOUBLE_MEMORY``: bytes of each card.
``CUDA_DOUBLE_WITHOUT``: words out of ``poison threads time memory noise`` (what it does not do), ``nvml`` (which
refuses questions of memory) and ``library`` (NVML's, which is not there).
"""

import fcntl
import mmap
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROWS, COLUMNS = 256, 3
"""Row 0: until when each card works, in ns of the monotonic clock. Others: a process, and its bytes on each card."""
CONTEXT = 300 << 20
"""Bytes that a process takes of a card that it uses, before its first tensor."""
WITHOUT = os.environ.get("CUDA_DOUBLE_WITHOUT", "").split()
MEMORY = int(os.environ.get("CUDA_DOUBLE_MEMORY", 16 << 30))


@dataclass(frozen=True)
class Card:
    """One card. Its ``speed`` is relative to the fastest, ``place`` its column less one."""

    place: int
    name: str
    bus: str
    capability: tuple[int, int]
    speed: float

    @property
    def uuid(self) -> str:
        return f"GPU-{self.bus[9:11] * 4}-0000-0000-0000-000000000000"


FASTEST_FIRST = (
    Card(0, "NVIDIA Double 8000", "00000000:5E:00.0", (8, 6), 1.0),
    Card(1, "NVIDIA Double 4000", "00000000:3B:00.0", (8, 0), 0.4),
)[: int(os.environ.get("CUDA_DOUBLE_CARDS", "1"))]
BY_BUS = sorted(FASTEST_FIRST, key=lambda card: card.bus)


def visible() -> list[Card]:
    """Return the cards in the order in which the driver numbers them, as the variables are now."""
    order = BY_BUS if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" else FASTEST_FIRST
    found: list[Card] = []
    for word in map(str.strip, os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")):
        named = [card for place, card in enumerate(order) if word == str(place) or card.uuid.startswith(word or "-")]
        if not named or named[0] in found:
            break
        found += named
    return found


class Shared:
    """What all processes know of the cards."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["CUDA_DOUBLE"], os.O_RDWR | os.O_CREAT)
        os.truncate(self._file, ROWS * COLUMNS * 8)
        self._cells = memoryview(mmap.mmap(self._file, ROWS * COLUMNS * 8)).cast("q")
        self._row = 0

    @contextmanager
    def _locked(self):
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        yield
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def join(self) -> None:
        """Take a row that no living process has."""
        with self._locked():
            self._row = next(row for row in range(COLUMNS, len(self._cells), COLUMNS) if not _lives(self._cells[row]))
            self._cells[self._row] = os.getpid()
            self._cells[self._row + 1] = self._cells[self._row + 2] = 0

    def held(self, card: Card) -> dict[int, int]:
        """Return the bytes of ``card`` that each living process holds, stopped ones too."""
        rows = [row for row in range(COLUMNS, len(self._cells), COLUMNS) if _lives(self._cells[row])]
        return {self._cells[row]: self._cells[row + 1 + card.place] for row in rows}

    def hold(self, card: Card, size: int) -> int:
        """Hold ``size`` bytes of ``card`` in this process if they are free; return the bytes that are not, 0 if so."""
        with self._locked():
            others = sum(each for pid, each in self.held(card).items() if pid != os.getpid())
            missing = max(0, others + size - MEMORY) if "memory" not in WITHOUT else 0
            self._cells[self._row + 1 + card.place] = self._cells[self._row + 1 + card.place] if missing else size
            return missing

    def work(self, card: Card, seconds: float) -> int:
        """Give ``card`` work of so many ``seconds`` on the fastest. Return when it will be done."""
        with self._locked():
            began = max(time.monotonic_ns(), self._cells[card.place])
            self._cells[card.place] = began + int(seconds / card.speed * 1e9)
            return self._cells[card.place]


def _lives(pid: int) -> bool:
    try:
        return pid > 0 and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
