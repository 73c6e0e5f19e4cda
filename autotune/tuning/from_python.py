"""`autotune.tune`: a tuning run as a function call, of a task file or of functions of the running session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.durations import seconds
from autotune.errors import UsageError, UserCodeError
from autotune.profiles.format import Profile
from autotune.trial.paths import StudyPaths
from autotune.trial.target import recognise_target
from autotune.tuning import run
from autotune.tuning.options import Options


class UserTraceback(Exception):
    """The traceback of the user's own code in a trial process, as text."""

    def __str__(self) -> str:
        """Return the text on lines of its own."""
        return f"\n{self.args[0].rstrip()}"


def tune(
    target: str | Path | None = None,
    *,
    arguments: Sequence[str] = (),
    budget: float | str | None = None,
    profile: str | Path | None = None,
    build_model: Callable[..., Any] | None = None,
    build_dataset: Callable[..., Any] | None = None,
    compute_loss: Callable[..., Any] | None = None,
    build_optimizer: Callable[..., Any] | None = None,
    collate_fn: Callable[..., Any] | None = None,
    count_items: Callable[..., Any] | None = None,
    current: Mapping[str, Any] | None = None,
    name: str | None = None,
    **options: Any,
) -> Profile:
    """Tune a training script, a task file or functions of this session, such as a notebook's, and write the profile.

    Args:
        target: path of the script or task file.
        arguments: the script's own.
        budget: for everything, in seconds or as text such as ``5m``; by default 60 s, 90 s if a step takes longer
            than 20 ms, 150 s if it takes longer than half a second, and more if ``train_seconds`` says that much
            training is ahead.
        profile: where to write; by default ``profiles/<machine key>/<target>.yaml``.
        build_model, build_dataset, compute_loss: in place of ``target``: what a task file would define. Trial processes
            get copies of these functions, of the globals that they use, and of classes defined in the session.
        build_optimizer, collate_fn, count_items: likewise, optional.
        current: today's settings, the baseline; ``batch_size`` is the global batch.
        name: the target's name, by which ``load(target=name)`` finds the profile; ``notebook`` by default.
        options: the other fields of `Options`.

    Raises:
        UserCodeError: the user's code failed; its own traceback is the cause.
        AutotuneError: with the reason and what to do.
    """
    limit = seconds(budget, "budget") if isinstance(budget, str) else budget
    chosen = Options(budget=limit, profile=Path(profile) if profile is not None else None, **options)
    given = {
        "build_model": build_model,
        "build_dataset": build_dataset,
        "compute_loss": compute_loss,
        "build_optimizer": build_optimizer,
        "collate_fn": collate_fn,
        "count_items": count_items,
        "CURRENT": dict(current) if current is not None else None,
    }
    parts = {part: value for part, value in given.items() if value is not None}
    with _file(target, parts, name) as (path, paths), _own_tracebacks(path, paths):
        return run.run(recognise_target(str(path), arguments), chosen, paths=paths).profile


@contextlib.contextmanager
def _file(
    target: str | Path | None, parts: Mapping[str, Any], name: str | None
) -> Iterator[tuple[Path, StudyPaths | None]]:
    """Give the file to tune, and the scratch folder that it lies in if it was written for this run.

    Raises:
        UsageError: both a file and functions were given, or what was given is not a task.
    """
    if target is not None:
        both = [*parts, *(["name"] if name is not None else [])]
        if both:
            raise UsageError(f"tune({str(target)!r}, {both[0]}=...): give a file or functions, not both")
        yield Path(target), None
        return
    from autotune.trial import session_task

    paths = StudyPaths.create()
    try:
        yield session_task.write(parts, name or "notebook", paths.root), paths
    finally:
        paths.remove()


@contextlib.contextmanager
def _own_tracebacks(path: Path, paths: StudyPaths | None) -> Iterator[None]:
    """Show the traceback of the user's code, which Python prints of an exception's cause only."""
    try:
        yield
    except UserCodeError as error:
        words = str(error) if paths is None else str(error).replace(str(path), path.stem)
        cause = UserTraceback(error.traceback) if error.traceback else None
        raise UserCodeError(words, error.traceback) from cause
