"""What makes rates of the same settings differ: a model with a few figures, and those figures of a recording. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.honesty.proofs import NEEDED, Generation, Turn

ODD = 0.15
"""How far off an odd process is: one pair in six was, on a noisy machine."""
GAP = 8
"""Blocks' worth of time in which the contenders of the next generation start and warm up."""


@dataclass(frozen=True)
class Noise:
    """Standard deviations of log rates, unless said otherwise.

    Attributes:
        luck: of one process: memory layout, placement.
        odd: probability that a process is off by `ODD`, either way.
        block: of one block, independent of all others.
        wander: of the machine's speed, which is autocorrelated from block to block...
        memory: ...by this much.
        drift: change of the machine's log speed from the first block of a proof to the last.
        burst: log of what a neighbour's burst takes from every block it meets.
        busy: share of the time in bursts.
        length: mean blocks that a burst lasts.
        shift: log of what a neighbour takes that comes or goes in the middle of the proof, and stays.
        spared: share of what neighbours take that all but the first contender are spared.
        luck_of_first: of the first contender's processes; None: as the others'.
    """

    luck: float = 0.02
    odd: float = 0.0
    block: float = 0.02
    wander: float = 0.0
    memory: float = 0.8
    drift: float = 0.0
    burst: float = 0.0
    busy: float = 0.0
    length: float = 3.0
    shift: float = 0.0
    spared: float = 0.0
    luck_of_first: float | None = None

    def truth(self, ratio: float) -> tuple[float, float]:
        """Return the least and greatest true ratio: on a quiet machine, and beside a neighbour that never rests."""
        beside = ratio * math.exp(-self.spared * (self.burst + self.shift))
        return min(ratio, beside), max(ratio, beside)


MODELS = {
    "quiet": Noise(luck=0.01, block=0.01),
    "process luck 5 %": Noise(luck=0.05),
    "process luck 10 %": Noise(luck=0.10),
    "process luck 20 %": Noise(luck=0.20),
    "one process in ten off by 15 %": Noise(odd=0.1),
    "blocks 10 %": Noise(block=0.10),
    "machine wanders 10 %": Noise(wander=0.10),
    "machine drifts by a third": Noise(drift=-0.4),
    "bursts take a third, half the time": Noise(burst=-0.4, busy=0.5),
    "a niced neighbour takes a tenth": Noise(burst=-0.1, busy=0.9, length=20.0),
    "an equal neighbour's bursts: a fifth of the speed": Noise(burst=-1.6, busy=0.4, length=10.0),
    "an equal neighbour's bursts: a tenth of the speed": Noise(burst=-2.3, busy=0.5, length=20.0),
    "an equal neighbour comes or goes: a fifth": Noise(shift=-1.6),
    "an equal neighbour's bursts hit one only": Noise(burst=-1.6, busy=0.3, length=10.0, spared=0.8),
    "one contender's processes differ by 20 %": Noise(luck_of_first=0.20),
    "all of it": Noise(luck=0.05, odd=0.1, block=0.05, wander=0.10, drift=-0.4, burst=-0.4, busy=0.5),
}


def simulated(
    noise: Noise, ratios: dict[str, float], rounds: int, rng: np.random.Generator, count: int = NEEDED
) -> list[Generation]:
    """Simulate the generations of a proof: contenders of true rates ``ratios`` take blocks in random turns."""
    names = list(ratios)
    shape = (count, rounds, len(names))
    speed, taken = _machine(noise, count * (rounds * len(names) + GAP), rng)
    luck = np.full(len(names), noise.luck)
    luck[0] = noise.luck if noise.luck_of_first is None else noise.luck_of_first
    felt = np.array([1.0] + [1.0 - noise.spared] * (len(names) - 1))
    own = np.log(list(ratios.values())) + luck * rng.standard_normal((count, 1, len(names)))
    own = own + ODD * (rng.random(own.shape) < noise.odd) * rng.choice((-1.0, 1.0), own.shape)
    place = rng.permuted(np.broadcast_to(np.arange(len(names)), shape), axis=2)
    starts = np.arange(count)[:, None] * (rounds * len(names) + GAP) + np.arange(rounds) * len(names)
    at = starts[:, :, None] + place
    logs = own + speed[at] + felt * taken[at] + noise.block * rng.standard_normal(shape)
    beside = (taken[at] < 0).mean(axis=2)
    return [
        [Turn(dict(zip(names, rates, strict=True)), busy) for rates, busy in zip(turns, busy_turns, strict=True)]
        for turns, busy_turns in zip(np.exp(logs).tolist(), beside.tolist(), strict=True)
    ]


def _machine(noise: Noise, blocks: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the log speed of the machine, and log of what neighbours take, block by block."""
    speed, taken = np.linspace(0.0, noise.drift, blocks), np.zeros(blocks)
    if noise.wander:
        steps = noise.wander * math.sqrt(1.0 - noise.memory**2) * rng.standard_normal(blocks)
        state = noise.wander * float(rng.standard_normal())
        for position, step in enumerate(steps):
            state = noise.memory * state + step
            speed[position] += state
    if noise.busy:
        ends, begins = 1.0 / noise.length, noise.busy / (1.0 - noise.busy) / noise.length
        busy = bool(rng.random() < noise.busy)
        for position, chance in enumerate(rng.random(blocks)):
            taken[position] = noise.burst * busy
            busy ^= bool(chance < (ends if busy else begins))
    if noise.shift:
        change = int(blocks * rng.random())
        taken[slice(change, None) if rng.random() < 0.5 else slice(change)] += noise.shift
    return speed, taken


def fitted(generations: Sequence[Generation]) -> Noise | None:
    """Estimate process luck, block noise and the machine's wandering from a recording of equal contenders.

    Within a round contenders differ by luck and block noise; from round to round within a generation a contender's
    place differs by block noise alone. What all contenders of a round share is the machine. None where no generation
    has two rounds that all contenders took part in.
    """
    most = max((len(turn.rates) for turns in generations for turn in turns), default=0)
    complete = ([turn for turn in turns if len(turn.rates) == most] for turns in generations)
    whole = [_logs(turns) for turns in complete if len(turns) > 1]
    if most < 2 or not whole:
        return None
    places = [rows - rows.mean(axis=1, keepdims=True) for rows in whole]
    shared = most / (most - 1)  # a place is relative to a mean that the contender itself is part of
    block = shared * statistics.mean(float(place.var(axis=0, ddof=1).mean()) for place in places)
    luck = statistics.mean(float(place.mean(axis=0).var(ddof=1)) - block / len(place) for place in places)
    machine = np.concatenate([rows.mean(axis=1) for rows in whole])
    return Noise(luck=math.sqrt(max(0.0, luck)), block=math.sqrt(block), wander=float(machine.std()))


def _logs(turns: Generation) -> np.ndarray:
    names = sorted(turns[0].rates)
    return np.log([[turn.rates[name] for name in names] for turn in turns])
