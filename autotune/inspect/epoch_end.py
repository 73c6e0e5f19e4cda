"""Follows a script past the end of an epoch, in a trial of its own. `follow` is its `TrialSpec.inspect`."""

from __future__ import annotations

import ast
import functools
import math
import operator
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from autotune.knobs.allocator import mmap_threshold
from autotune.runtime.loaders import length
from autotune.scripts import adapters
from autotune.stats.whole_run import split_time
from autotune.trial.child.beside import above, is_users
from autotune.trial.child.measured_loop import MeasuredLoop, Steps

ENDS = 2
"""Ends of epochs to follow."""
LEAST_STEPS = 3
SUMS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
CALLS: dict[str, Callable[[Any], Any]] = {"int": int, "len": len}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def follow(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """Make steps of a warm ``loop``, of ``pace`` seconds each, until epochs have ended or the trial's time is over.
    Return ``step_seconds``, ``other_share`` and ``steps`` of a `autotune.stats.whole_run.WholeRun`, and
    ``mmap_threshold`` if it saw all that a run does."""
    stack = list(above(sys._getframe()))
    loops, in_all = Loops.around(filter(is_users, stack)), adapters.steps_of_run(stack)
    epoch = length(loop.loader)
    too_far = epoch is not None and epoch * pace > loop.spec.max_seconds
    seconds, between = list[float](), list[float | None]()
    until = time.perf_counter() + loop.spec.max_seconds
    while loop.agree(not (_is_enough(between, too_far) or loop.over or time.perf_counter() > until)):
        before = loop.other
        step = yield from loop.timed(1)
        work = loop.other - before
        seconds.append(step + work)
        between.append(work or None)
    later = Loops.around(filter(is_users, above(sys._getframe())))
    steps = in_all or loops.steps(later, len(seconds), epoch)
    is_short = epoch is not None and steps is not None and steps < epoch  # no epoch of the run ends
    step, share = split_time(seconds, between, None if is_short else epoch)
    found = {"step_seconds": step, "other_share": share, "steps": steps}
    saw_all = share is not None if epoch else bool(share)
    return found | ({"mmap_threshold": mmap_threshold()} if saw_all else {})


def _is_enough(between: list[float | None], too_far: bool) -> bool:
    ends = len(between) - between.count(None)
    return len(between) >= LEAST_STEPS and (too_far or ends >= ENDS)


@dataclass(frozen=True)
class Loops:
    """The ``for`` loops over ranges around a training step.

    Attributes:
        ranges: outermost first; none if they are not known, or if there are loops of another kind.
        passes: True if an epoch of the training loader is inside.
        turns: iterations of the innermost that are over, in all iterations of the others.
    """

    ranges: tuple[range, ...] = ()
    passes: bool = False
    turns: int = 0

    @classmethod
    def around(cls, stack: Iterable[FrameType]) -> Loops:
        """Return the loops that ``stack``, innermost frame first, is in."""
        ranges: list[range] = []
        passes, turns, inside = False, 0, 1
        for frame, loop in ((each, loop) for each in stack for loop in _loops(each)):
            values = _values(loop, frame)
            if isinstance(values, range) and isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
                value = frame.f_locals.get(loop.target.id)
                turns += inside * (values.index(value) if isinstance(value, int) and value in values else 0)
                ranges, inside = [values, *ranges], inside * len(values)
            elif isinstance(values, DataLoader) and not ranges:
                passes = True
            else:
                return cls()
        return cls(tuple(ranges), passes, turns)

    def steps(self, later: Loops, made: int, epoch: int | None) -> int | None:
        """Return the steps of the whole run, by those of an ``epoch``, or by those ``made`` until the loops were looked
        at again. None if the loops do not show it."""
        if not self.ranges:
            return None
        total = math.prod(map(len, self.ranges))
        if self.passes:
            return total * epoch if epoch else None
        turns = later.turns - self.turns
        return round(total * made / turns) if later.ranges == self.ranges and turns > 0 else None


def _loops(frame: FrameType) -> list[ast.For | ast.While]:
    """Return the loops of its function that ``frame`` is in, innermost first."""
    found: list[ast.For | ast.While] = []
    for node in _blocks(frame.f_code.co_filename):  # what is inside comes later
        if node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
            found = [] if isinstance(node, FUNCTIONS) else [node, *found]
    return found


@functools.cache
def _blocks(file: str) -> list[Any]:
    """Return all loops and functions in ``file``; none if it cannot be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While, *FUNCTIONS))]


def _values(loop: ast.For | ast.While, frame: FrameType) -> Any:
    """Return the range or loader that ``loop`` goes through, also if a bar or `enumerate` is around it; else None."""
    over = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(over, ast.Call) and over.args:
        if ast.unparse(over.func).rpartition(".")[2] in ("range", "trange"):
            limits = [_value(each, frame) for each in over.args]
            return range(*limits) if all(isinstance(each, int) for each in limits) else None
        over = over.args[0]
    return None if over is None else _value(over, frame)


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of names, attributes and sums; None for all else: no function of the user is called."""
    try:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
        if isinstance(node, ast.Attribute):
            return getattr(_value(node.value, frame), node.attr)
        if isinstance(node, ast.BinOp):
            return SUMS[type(node.op)](_value(node.left, frame), _value(node.right, frame))
        if isinstance(node, ast.Call):
            return CALLS[ast.unparse(node.func)](_value(node.args[0], frame))
    except Exception:  # another node, or the code of a property or a length
        pass
    return None
