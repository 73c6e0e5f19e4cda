"""Follows a script past the end of an epoch, in a trial of its own. `follow` is its `TrialSpec.inspect`."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader

from autotune.inspect.step_clock import above, is_users
from autotune.runtime.loaders import length
from autotune.scripts import adapters
from autotune.stats.whole_run import made_up
from autotune.trial.child.measured_loop import MeasuredLoop, Steps

ENDS = 2
"""Ends of epochs that are enough."""
LEAST_STEPS = 3


def follow(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """Make steps until epochs have ended or the trial's time is over; return ``step_seconds``, ``other_share`` and
    ``steps`` of a `autotune.stats.whole_run.WholeRun`.

    Args:
        loop: warm.
        pace: seconds of a step.
    """
    stack = list(above(sys._getframe()))
    loops, in_all = _loops(filter(is_users, stack)), adapters.steps_of_run(stack)
    epoch, begun = length(loop.loader), [each.position for each in loops]
    too_far = epoch is not None and epoch * pace > loop.spec.max_seconds
    seconds, ends = list[float](), list[bool]()
    until = time.perf_counter() + loop.spec.max_seconds
    while loop.agree(not (_is_enough(ends, too_far) or loop.over or time.perf_counter() > until)):
        loop.interrupted = False
        seconds.append((yield from loop.timed(1)))
        ends.append(loop.interrupted)
    steps = in_all or _steps(loops, begun, len(seconds), epoch)
    step, share = made_up(seconds, ends, None if epoch and steps and steps < epoch else epoch)
    return {"step_seconds": step, "other_share": share, "steps": steps}


def _is_enough(ends: list[bool], too_far: bool) -> bool:
    return len(ends) >= LEAST_STEPS and (too_far or sum(ends) >= ENDS)


@dataclass
class _Loop:
    """A ``for`` loop over a range that a frame is in.

    Attributes:
        values: of the range.
        passes: whether an epoch of the training loader is inside.
    """

    frame: FrameType
    variable: str
    values: range
    passes: bool

    @property
    def position(self) -> int:
        """Values that it has taken so far."""
        value = self.frame.f_locals.get(self.variable)
        return self.values.index(value) if isinstance(value, int) and value in self.values else 0


def _steps(loops: list[_Loop], begun: list[int], made: int, epoch: int | None) -> int | None:
    """Return the steps of the whole run: what ``loops`` make, outermost first; None if they do not show it.

    Args:
        loops: around the step.
        begun: the position of each before ``made`` steps were made.
        made: steps.
        epoch: steps of an epoch.
    """
    total = 1
    for each in loops:
        total *= len(each.values)
    if not loops:
        return None
    if loops[-1].passes:
        return total * epoch if epoch else None
    turns = loops[-1].position - begun[-1]
    return round(total * made / turns) if turns > 0 else None


def _loops(stack: Iterable[FrameType]) -> list[_Loop]:
    """Return the loops over ranges that ``stack``, innermost frame first, is in; none if there are loops of another
    kind. The outermost comes first."""
    found: list[_Loop] = []
    passes = False
    for frame in stack:
        for loop in _around(frame):
            values = _values(loop, frame)
            if isinstance(values, range) and isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
                found.insert(0, _Loop(frame, loop.target.id, values, passes))
            elif isinstance(values, DataLoader) and not found:
                passes = True
            else:
                return []
    return found


def _around(frame: FrameType) -> Iterator[ast.For | ast.While]:
    """Yield the loops of its function that ``frame`` is in, innermost first."""
    try:
        with open(frame.f_code.co_filename, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and node.lineno <= frame.f_lineno <= (node.end_lineno or 0)
    ]
    for node in reversed(around):  # `ast.walk` comes to what is inside later
        if not isinstance(node, ast.For | ast.While):
            return
        yield node


def _values(loop: ast.For | ast.While, frame: FrameType) -> Any:
    """Return the range or loader that ``loop`` goes through, also if a bar or `enumerate` is around it; else None."""
    over = loop.iter if isinstance(loop, ast.For) else None
    while isinstance(over, ast.Call) and over.args:
        name = ast.unparse(over.func).rpartition(".")[2]
        if name in ("range", "trange"):
            over = ast.Call(ast.Name("range", ast.Load()), over.args, [])
            break
        over = over.args[0]
    if over is None:
        return None
    try:  # what a range is made of is read again: this process ends soon
        code = compile(ast.fix_missing_locations(ast.Expression(over)), "<loop>", "eval")
        return eval(code, {**frame.f_globals, "range": range}, frame.f_locals)
    except Exception:
        return None
