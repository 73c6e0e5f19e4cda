"""Other processes beside a tuning run: who took how much of the CPUs, in words, and which rounds were free of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.decide import BASELINE, typical_rate
from autotune.core.proof import QUIET_CPUS, Round, compare

MENTIONED = 0.1
"""Processors that a process keeps busy before it is worth a word."""
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
        name: empty where it belongs to another user.
        niceness: above 0 it yields to what has less.
        cpus: processors that it kept busy, on average.
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
    """All other processes that took something worth a word of ``threads`` CPUs while a run measured."""

    neighbours: tuple[Neighbour, ...] = ()
    threads: int = 1

    @property
    def taken(self) -> float:
        """Processors that they kept busy, on average."""
        return sum(each.cpus for each in self.neighbours)

    @property
    def note(self) -> str:
        """For the profile, which others read: no names. Empty where there is nothing to say."""
        return self._sentence([f"other processes took {self.taken:.1f}"]) if self.neighbours else ""

    @property
    def named(self) -> str:
        """For the user's own terminal. Empty where there is nothing to say."""
        own = sorted((each for each in self.neighbours if each.name), key=lambda each: -each.cpus)[:NAMED]
        rest = [each for each in self.neighbours if each not in own]
        parts = list(map(str, own))
        if rest:
            whose = "other" if own else "other users'"
            parts.append(f"{whose} processes took {sum(each.cpus for each in rest):.1f}")
        return self._sentence(parts) if parts else ""

    def _sentence(self, parts: Sequence[str]) -> str:
        return f"{', '.join(parts)} of {self.threads} CPUs while this was measured: the figures hold for that load"


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
