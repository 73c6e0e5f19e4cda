"""What makes rates of the same settings differ: a model with a few figures, and those figures of a recording. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.honesty.proofs import NEEDED, Generation

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
    "all of it": Noise(luck=0.05, odd=0.1, block=0.05, wander=0.10, drift=-0.4, burst=-0.4, busy=0.5),
}


def simulated(noise: Noise, ratios: dict[str, float], rounds: int, rng: np.random.Generator) -> list[Generation]:
    """One proof's generations: contenders whose true rates are ``ratios`` take blocks in turn, in random order."""
    names = list(ratios)
    machine = _machine(noise, NEEDED * (rounds * len(names) + GAP), rng)
    found: list[Generation] = []
    at = 0
    for _ in range(NEEDED):
        off = ODD * (rng.random(len(names)) < noise.odd) * rng.choice((-1.0, 1.0), len(names))
        own = np.log(list(ratios.values())) + noise.luck * rng.standard_normal(len(names)) + off
        turns = []
        for _ in range(rounds):
            order = rng.permutation(len(names))
            logs = own[order] + machine[at : at + len(names)] + noise.block * rng.standard_normal(len(names))
            turns.append({names[who]: math.exp(log) for who, log in zip(order, logs, strict=True)})
            at += len(names)
        at += GAP
        found.append(turns)
    return found


def _machine(noise: Noise, blocks: int, rng: np.random.Generator) -> np.ndarray:
    """Log speed of the machine, block by block."""
    speed = np.linspace(0.0, noise.drift, blocks)
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
            speed[position] += noise.burst * busy
            busy ^= bool(chance < (ends if busy else begins))
    return speed


def fitted(generations: Sequence[Generation]) -> Noise | None:
    """Process luck, block noise and the machine's wandering of a recording of equal contenders, by their moments.

    Within a round contenders differ by luck and block noise; from round to round within a generation a contender's
    place differs by block noise alone. What all contenders of a round share is the machine. None where no generation
    has two rounds that all contenders took part in.
    """
    most = max((len(turn) for turns in generations for turn in turns), default=0)
    complete = ([turn for turn in turns if len(turn) == most] for turns in generations)
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
    names = sorted(turns[0])
    return np.log([[turn[name] for name in names] for turn in turns])
