"""`autotune.tune`: a tuning run as a function call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.durations import seconds
from autotune.errors import UserCodeError
from autotune.profiles.format import Profile
from autotune.trial.target import recognise_target
from autotune.tuning import run
from autotune.tuning.options import Options


class UserTraceback(Exception):
    """The traceback of the user's own code in a trial process, as text."""

    def __str__(self) -> str:
        """Return the text on lines of its own."""
        return f"\n{self.args[0].rstrip()}"


def tune(
    target: str | Path,
    *,
    arguments: Sequence[str] = (),
    budget: float | str | None = None,
    profile: str | Path | None = None,
    **options: Any,
) -> Profile:
    """Tune a training script or a task file, and write the profile.

    Args:
        target: path of the script or task file.
        arguments: the script's own.
        budget: for everything, in seconds or as text such as ``5m``; by default 60 s, 90 s if a step takes longer
            than 20 ms, 150 s if it takes longer than half a second, and more if ``train_seconds`` says that much
            training is ahead.
        profile: where to write; by default ``profiles/<machine key>/<target>.yaml``.
        options: the other fields of `Options`.

    Raises:
        UserCodeError: the user's code failed; its own traceback is the cause.
        AutotuneError: with the reason and what to do.
    """
    limit = seconds(budget, "budget") if isinstance(budget, str) else budget
    chosen = Options(budget=limit, profile=Path(profile) if profile is not None else None, **options)
    try:
        return run.run(recognise_target(str(target), arguments), chosen).profile
    except UserCodeError as error:
        cause = UserTraceback(error.traceback) if error.traceback else None
        raise UserCodeError(str(error), error.traceback) from cause  # Python prints the traceback of a cause only
