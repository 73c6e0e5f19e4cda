"""``autotune tune``: find, prove and write the fastest settings for a task."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path

from autotune.commands import report
from autotune.commands.live_view import live_view
from autotune.profiles.file import to_data
from autotune.report import final
from autotune.trial.target import Script, Target
from autotune.tuning import run
from autotune.tuning.options import Options


def tune(target: Target, options: Options, started: float, as_json: bool, page: Path | None = None) -> None:
    """Tune, and print what was found.

    Args:
        target: the task file or script.
        options: what the user asked for.
        started: when the command started, on the monotonic clock.
        as_json: whether stdout gets one JSON object. People's text goes to stderr.
        page: where the HTML report is written; none if None.
    """
    if page is not None:
        report.check_plotly()
    with live_view(options.seconds(), started) as observe:
        result = run.run(target, options, observe, started)
    text = final.text(result.profile, result.inventory, result.path, result.load, script=_started(target))
    print(text, file=sys.stderr)
    if result.note:
        print(f"{result.note}\nThe profile is in {result.path}.", file=sys.stderr)
    if page is not None:
        with contextlib.redirect_stdout(sys.stderr):
            report.write(result.profile, result.path, page)
    if as_json:
        print(json.dumps({"path": str(result.path.resolve()), **to_data(result.profile)}))


def _started(target: Target) -> str:
    """How the user starts the training script, without Python."""
    if not isinstance(target, Script):
        return "train.py"
    return shlex.join([*(["-m"] if target.module else []), target.written, *target.arguments])
