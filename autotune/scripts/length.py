"""How long a script means to train, read off the loops that it is in.

``for epoch in range(args.epochs)`` around the place where training begins says how many epochs there will be. Only
names, attributes, numbers, arithmetic and ``len`` are evaluated: nothing of the script is called.
"""

from __future__ import annotations

import ast
import linecache
import operator
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from autotune.scripts.adapters.progress_bars import WRAPPERS

OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
MOST_FRAMES = 60


def planned_passes(frame: FrameType | None, inside: str) -> int | None:
    """Return how often the loops around the current place of ``frame`` repeat it; None if none of them says.

    Args:
        frame: of the script, or called by it.
        inside: folder of code that is no part of the script: its loops do not count.
    """
    total: int | None = None
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        if not frame.f_code.co_filename.startswith(inside):
            for count in _counts(frame):
                total = count * (total or 1)
        frame = frame.f_back
    return total


def _counts(frame: FrameType) -> Iterator[int]:
    """Yield the lengths of the loops over numbers that the frame's current line is in."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    line = frame.f_lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0):
            count = _length(node.iter, frame)
            if count is not None and count > 0 and _is_of(frame, node):
                yield count


def _is_of(frame: FrameType, node: ast.For) -> bool:
    """Return whether the loop belongs to the code of ``frame`` and not to a function defined around it."""
    return frame.f_code.co_firstlineno <= node.lineno


def _length(node: ast.expr, frame: FrameType) -> int | None:
    """Return how many numbers an expression such as ``range(3, args.epochs)`` or ``tqdm(range(n))`` yields."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("range", "trange"):
        values = [_value(argument, frame) for argument in node.args]
        if not values or not all(isinstance(value, int) for value in values):
            return None
        return len(range(*values)) if len(values) <= 3 else None
    return _length(node.args[0], frame) if name in WRAPPERS and node.args else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of a simple expression in ``frame``; None if it is not simple."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, frame)
        return vars(owner).get(node.attr) if hasattr(owner, "__dict__") else None
    if isinstance(node, ast.Subscript):
        owner, key = _value(node.value, frame), _value(node.slice, frame)
        return owner.get(key) if type(owner) is dict else None
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        one, other = _value(node.left, frame), _value(node.right, frame)
        if isinstance(one, int) and isinstance(other, int) and (other or not isinstance(node.op, ast.FloorDiv)):
            return OPERATIONS[type(node.op)](one, other)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return _called(node.func.id, _value(node.args[0], frame))
    return None


def _called(name: str, value: Any) -> Any:
    """Return ``len`` of a loader or a list, or ``int`` of a number."""
    if name == "int" and isinstance(value, int | float):
        return int(value)
    if name == "len" and value is not None:
        try:
            return len(value)
        except Exception:
            return None
    return None
