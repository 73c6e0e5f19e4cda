"""The Optuna journal of a run, which ``--resume`` continues."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.core.errors import UsageError

if TYPE_CHECKING:
    from autotune.search.study import Study


def open_journal(profile: Path, identity: Sequence[str], resume: bool) -> Study:
    """The study in the journal file beside ``profile``.

    Args:
        profile: where the profile will be written.
        identity: the task's text, the machine, the baseline: each combination is a study of its own.
        resume: whether to go on with the study that is there.

    Raises:
        UsageError: the journal cannot be read.
    """
    from autotune.search.study import open_study

    journal = profile.with_suffix(".journal")
    if not resume:
        journal.unlink(missing_ok=True)
    digest = hashlib.sha256("\n".join(identity).encode()).hexdigest()[:12]
    try:
        return open_study(journal, f"{profile.stem}-{digest}")
    except Exception as error:
        raise UsageError(
            f"{journal}: the journal cannot be read ({type(error).__name__}: {error}). Run without --resume, which"
            " starts a new one."
        ) from error
