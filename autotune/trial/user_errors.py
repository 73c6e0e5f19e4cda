"""Exceptions of the user's code as data that survives the process."""

from __future__ import annotations

import traceback
from pathlib import Path

from autotune.trial.spec import TrialReport

OURS = str(Path(__file__).resolve().parents[1])


def error_report(error: BaseException) -> TrialReport:
    """What a child says of an exception; the traceback starts at the user's first frame."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return TrialReport(error=str(error), error_type=name, traceback=user_traceback(error))


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on: our own frames above it say nothing to the user."""
    position = error.__traceback__
    while position is not None and position.tb_frame.f_code.co_filename.startswith((OURS, "<frozen importlib")):
        position = position.tb_next
    start = position if position is not None else error.__traceback__
    return "".join(traceback.format_exception(type(error), error, start))
