"""Other processes beside a tuning run: who took how much of the CPUs, in words, and which rounds were free of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.stats.decide import BASELINE, typical_rate
from autotune.stats.proof import QUIET_CPUS, Round, compare

MENTIONED = 0.1
"""Processors that others keep busy before that is worth a word..."""
SERVICES = 0.01
"""...and share of the CPUs: large machines have many services of their own."""
NAMED = 2
"""Processes that are named; the others are summed up."""
BUSY_CPUS = 0.5
"""A round is disturbed from so many processors on that others keep busy."""
ENOUGH_GENERATIONS, ENOUGH_ROUNDS = 2, 4
"""Of quiet and of disturbed rounds, before they are told apart."""
COLLAPSE = 1.5
"""The user's settings collapse beside a neighbour where they are this many times as fast without it."""


@dataclass(frozen=True)
class Neighbour:
    """Another process.

    Attributes:
        pid: its process id.
        name: empty if it belongs to another user.
        niceness: above 0 it yields to what has less.
        cpus: processors that it kept busy on average, with its children that ended unseen.
    """

    pid: int
    name: str
    niceness: int
    cpus: float

    def __str__(self) -> str:
        nice = f", nice {self.niceness}" if self.niceness > 0 else ""
        return f"{self.name} (pid {self.pid}{nice}) took {self.cpus:.1f}"


@dataclass(frozen=True)
class Load:
    """What others took of the CPUs while a run measured.

    Attributes:
        taken: processors that all other processes kept busy on average, short ones included.
        stolen: processors that other guests of the hypervisor kept busy on average.
        neighbours: processes that were seen: an illustration of ``taken``, never all of it.
        threads: CPUs that this process may use.
    """

    taken: float = 0.0
    stolen: float = 0.0
    neighbours: tuple[Neighbour, ...] = ()
    threads: int = 1

    @property
    def cpus(self) -> float:
        """Processors that others of either kind kept busy."""
        return self.taken + self.stolen

    @property
    def note(self) -> str:
        """For the profile, which others read: no names. Empty if there is nothing to report."""
        return self._sentence([f"other processes took {self.taken:.1f}"] if self._mentioned(self.taken) else [])

    @property
    def named(self) -> str:
        """For the user's own terminal. Empty if there is nothing to report."""
        if not self._mentioned(self.taken):
            return self._sentence([])
        own = sorted((each for each in self.neighbours if each.name), key=lambda each: -each.cpus)[:NAMED]
        rest = self.taken - sum(each.cpus for each in own)
        if not own or rest <= -MENTIONED:
            return self.note
        return self._sentence([*map(str, own), *([f"other processes took {rest:.1f}"] if rest >= MENTIONED else [])])

    def _mentioned(self, cpus: float) -> bool:
        """Return True for more than a machine's own services take."""
        return cpus >= max(MENTIONED, SERVICES * self.threads)

    def _sentence(self, parts: Sequence[str]) -> str:
        guests = [f"the hypervisor's other guests took {self.stolen:.1f}"] if self._mentioned(self.stolen) else []
        if not (parts or guests):
            return ""
        words = ", ".join([*parts, *guests])
        return f"{words} of {self.threads} CPUs while this was measured: the figures hold for that load"


QUIET = Load()


def undisturbed(rounds: Sequence[Round]) -> tuple[list[Round], tuple[str, ...]]:
    """The rounds that decide, and what the user should know about the others.

    All rounds decide, but where other processes came or went in the middle of the proof and the user's settings
    collapsed beside them: there the quiet rounds do. What others take is a reason from outside, so the choice favours
    no contender.
    """
    quiet = [turn for turn in rounds if turn.neighbours <= QUIET_CPUS]
    busy = [turn for turn in rounds if turn.neighbours >= BUSY_CPUS]
    if not (_enough(quiet) and _enough(busy)):
        return list(rounds), ()
    before, beside = typical_rate(quiet, BASELINE), typical_rate(busy, BASELINE)
    if not beside or before < COLLAPSE * beside:
        return list(rounds), ()
    ratios = {name: compare(busy, name, BASELINE).value for name in busy[-1].rates if name != BASELINE}
    others = ", ".join(f"{name} {value:.1f}x" for name, value in ratios.items())
    return quiet, (
        f"beside other processes your settings were {before / beside:.1f} times slower than in the quiet rounds, which"
        f" decide; beside them the levels measured {others} of your settings",
    )


def _enough(rounds: Sequence[Round]) -> bool:
    generations = {turn.generation for turn in rounds if turn.rates.get(BASELINE)}
    return len(generations) >= ENOUGH_GENERATIONS and len(rounds) >= ENOUGH_ROUNDS
