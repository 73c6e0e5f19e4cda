"""``autotune run --tune-if-missing``: the first process tunes, the others wait; then all train with what was found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from autotune.environment import overrides
from autotune.errors import AutotuneError
from autotune.probes.inventory import probe
from autotune.profiles import exchange, registry
from autotune.profiles.match import Here
from autotune.profiles.places import default_path, named_places, places
from autotune.trial.target import Script

WAIT_SECONDS = 1800.0
"""For another process that tunes the same target on the same type of machine."""


def tune_if_missing(target: Script, tune: Callable[[Script], None], say: Callable[[str], None]) -> str | None:
    """Tune ``target`` if no profile fits it here. Processes that share a folder of profiles tune once.

    Args:
        target: the script.
        tune: tunes it, and writes its profile.
        say: shows a line to the user.

    Returns:
        Why the script must train without a profile; None if there is one, or if none is wanted.
    """
    wishes = overrides(os.environ)
    if wishes.disabled or wishes.profile:
        return None
    here = Here.on(probe(), target.name)
    if _found(here, target):
        return None
    try:
        with _one_at_a_time(here.machine.key, target.name, say):
            if _found(here, target) is None:
                tune(target)
                _share(_found(here, target), say)
    except (AutotuneError, OSError, NotImplementedError) as error:  # the last: no file locks there
        return f"the script starts as it is; it could not be tuned: {error}"
    return None


@contextlib.contextmanager
def _one_at_a_time(machine_key: str, target: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock beside the profile: in the first folder of ``AUTOTUNE_PROFILES``, else in the project's."""
    shared = next((place for place in named_places(os.environ) if isinstance(place, Path)), None)
    path = default_path(machine_key, target, shared).with_suffix(".tuning")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"autotune: another process tunes {target}; waiting for its profile")
        try:
            lock.acquire(timeout=WAIT_SECONDS)
        except Timeout:
            raise OSError(f"another process has tuned for {WAIT_SECONDS / 60:.0f} minutes") from None
    try:
        yield
    finally:
        lock.release()


def _found(here: Here, target: Script) -> Path | None:
    found = registry.search(here, places(os.environ, target.path)).match
    return found.local() if found else None


def _share(path: Path | None, say: Callable[[str], None]) -> None:
    """Push the new profile to where others look. Training does not wait for a registry that is down."""
    if path is None or not named_places(os.environ):
        return
    try:
        where, _already = exchange.push(path, None, False)
    except AutotuneError as error:
        say(f"autotune: the profile stays on this machine: {error}")
    else:
        say(where)
