"""Begin to apply a profile to the script that runs in this process: ``autotune run`` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.script.shared_batch import SharedBatch
from autotune.script.tuned import Tuned
from autotune.script.watch import Watch

if TYPE_CHECKING:
    from autotune.runtime.session import Session


def apply_profile(known_by: str, skip: int, shared_batch: SharedBatch | None = None) -> Watch:
    """Watch the script, and put the profile's settings in force where it begins to train.

    Args:
        known_by: what a training step is known by, see `autotune.script.tuned`.
        skip: how many loaders the script iterates before its training loader.
        shared_batch: of this process, where several train together.
    """
    watch = Watch()
    watch.shared_batch = shared_batch
    watch.watcher = Tuned(watch, _open_session, known_by=known_by, skip=skip)
    watch.install(losses=False)
    return watch


def _open_session() -> Session:
    from autotune.runtime.session import session_of_profile  # here: its own import may be what imported PyTorch

    return session_of_profile(moves=False)
