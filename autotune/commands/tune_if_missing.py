"""``autotune run --tune-if-missing``: the first process tunes, the others wait; then all train with what was found."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from autotune.commands import sharing
from autotune.commands.tune import tune
from autotune.core.errors import AutotuneError
from autotune.core.match import Here
from autotune.core.overrides import overrides
from autotune.probes.inventory import probe
from autotune.store import registry
from autotune.store.lease import lease
from autotune.store.places import named_places, places
from autotune.trial.script import Script
from autotune.tuning.options import Options


def tune_if_missing(target: Script) -> str | None:
    """Tune ``target`` where no profile fits it here; processes that share a folder of profiles tune once.

    Returns:
        Why the script must train without a profile; None where there is one, or where none is wanted.
    """
    wishes = overrides(os.environ)
    if wishes.disabled or wishes.profile:
        return None
    inventory = probe()
    here = Here.on(inventory, target.name)
    if _found(here, target):
        return None
    try:
        with lease(here.machine.key, target.name, _waiting):
            if _found(here, target) is None:
                tune(target, Options(), time.monotonic(), as_json=False)
                _share(_found(here, target))
    except (AutotuneError, OSError) as error:
        return f"the script starts as it is; it could not be tuned: {error}"
    return None


def _waiting(target: str) -> None:
    print(f"autotune: another process tunes {target}; waiting for its profile", file=sys.stderr)


def _found(here: Here, target: Script) -> Path | None:
    found = registry.search(here, places(os.environ, target.path)).match
    return found.path if found else None


def _share(path: Path | None) -> None:
    """Push the new profile to where others look. Training does not wait for a registry that is down."""
    if path is None or not named_places(os.environ):
        return
    try:
        sharing.push(path, None, False)
    except AutotuneError as error:
        print(f"autotune: the profile stays on this machine: {error}", file=sys.stderr)
