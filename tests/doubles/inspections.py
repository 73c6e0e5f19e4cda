"""Example inspections."""

from dataclasses import replace
from typing import Any

from autotune.inspect.verdict import CLOCKED, Inspection, Operator, Part, Place
from autotune.knobs.task_facts import TaskFacts
from autotune.stats.proof import Proof, Round
from tests.doubles.simulation.simulator import context, inventory

PLACES = {Part.LOOP: Place("log_metrics", "train.py", 41, 0.8), Part.LOADER: Place("__getitem__", "train.py", 12, 0.4)}


def blocks(*noise: float, **shares: float) -> tuple[dict[Part, float], ...]:
    """Blocks of a second in which parts take these shares, and the passes the rest. ``noise`` goes to the passes."""
    own = {Part(name): share for name, share in shares.items()}
    rest = 1 - sum(own.values())
    return tuple(
        {part: own.get(part, 0.0) + (part is Part.PASSES) * (rest + each) for part in CLOCKED} for each in noise
    )


def inspection(*, noise: tuple[float, ...] = (-0.01, 0.0, 0.01, 0.0), **changes: Any) -> Inspection:
    """A step of 10 ms, of which the passes take 80 %; keywords that name a part are its share."""
    names = {part.value for part in Part}
    shares = {name: changes.pop(name) for name in list(changes) if name in names}
    values: dict[str, Any] = {
        "blocks": blocks(*noise, **(shares or {"loader": 0.05, "optimizer": 0.1, "loop": 0.05})),
        "step_seconds": 0.01,
        "items": 10.0,
        "places": PLACES,
        "operators": (Operator("mm", 0.62, 6.0), Operator("relu", 0.25, 0.6), Operator("copy_", 0.001, 2.0)),
    }
    return Inspection(**(values | changes))


def gain(value: float, low: float | None = None, high: float | None = None) -> Proof:
    """A ratio; without an interval if none is given."""
    return Proof(value, value if low is None else low, value if high is None else high, 0.95, 6)


def rounds(neighbours: float = 0.0, **gains: float) -> list[Round]:
    """Six rounds in three replicates that show ``gains`` over a step at 1000 items/s."""
    rates = {"step": 1000.0} | {name: 1000.0 * value for name, value in gains.items()}
    return [Round(turn // 2, rates, neighbours) for turn in range(6)]


def facts(**changes: Any) -> TaskFacts:
    """Of a small task file."""
    return replace(context(inventory(), 32).task, **changes)
