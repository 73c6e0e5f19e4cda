"""Other processes beside a tuning run: how much of the CPUs they took, and which rounds were free of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.stats.proof import BASELINE, QUIET_CPUS, Round, typical_rate

MENTIONED = 0.1
"""Processors that others keep busy before that is reported..."""
SERVICES = 0.01
"""...and share of the CPUs: large machines have many services of their own."""
BUSY_CPUS = 0.5
"""A round is disturbed if others keep at least this many processors busy."""
MOST_OF_A_MACHINE = 0.5
"""A machine is busy if others take at least this share of the CPUs: figures no longer describe the machine."""
ENOUGH_REPLICATES, ENOUGH_ROUNDS = 2, 4
"""Of quiet and of disturbed rounds, before they are separated."""
COLLAPSE = 1.5
"""The user's settings collapse beside a neighbour if they are this many times as fast without it."""


@dataclass(frozen=True)
class Neighbour:
    """Another process.

    Attributes:
        pid: its process id.
        name: empty if it belongs to another user.
        niceness: above 0 it yields to what has less.
        cpus: processors that it kept busy on average, with its ended children.
    """

    pid: int
    name: str
    niceness: int
    cpus: float


@dataclass(frozen=True)
class Load:
    """CPU time that others took while a run measured. `autotune.tuning.notes` puts it in words.

    Attributes:
        taken: processors that all other processes kept busy on average, short ones included.
        steal: processors that other guests of the hypervisor kept busy on average.
        neighbours: processes that were seen: an illustration of ``taken``, never all of it.
        threads: CPUs that this process may use.
    """

    taken: float = 0.0
    steal: float = 0.0
    neighbours: tuple[Neighbour, ...] = ()
    threads: int = 1

    @property
    def cpus(self) -> float:
        """Return the processors that others of either kind kept busy."""
        return self.taken + self.steal

    @property
    def is_busy(self) -> bool:
        """Return True if figures measured meanwhile are those of a busy machine."""
        return self.cpus > MOST_OF_A_MACHINE * self.threads

    def is_mentioned(self, cpus: float) -> bool:
        """Return True for more than a machine's own services take."""
        return cpus >= max(MENTIONED, SERVICES * self.threads)


QUIET = Load()


def undisturbed(rounds: Sequence[Round]) -> tuple[list[Round], float | None]:
    """Return the rounds that decide, and how many times slower the user's settings were in the others; None if all do.

    All rounds decide, unless other processes came or went in the middle of the proof and the user's settings collapsed
    beside them: then the quiet rounds do. What others take is a reason from outside, so the choice favours no
    candidate.
    """
    quiet = [turn for turn in rounds if turn.neighbours <= QUIET_CPUS]
    busy = [turn for turn in rounds if turn.neighbours >= BUSY_CPUS]
    if not (_enough(quiet) and _enough(busy)):
        return list(rounds), None
    slower = typical_rate(quiet, BASELINE) / typical_rate(busy, BASELINE)
    return (quiet, slower) if slower >= COLLAPSE else (list(rounds), None)


def _enough(rounds: Sequence[Round]) -> bool:
    replicates = {turn.replicate for turn in rounds if turn.rates.get(BASELINE)}
    return len(replicates) >= ENOUGH_REPLICATES and len(rounds) >= ENOUGH_ROUNDS
