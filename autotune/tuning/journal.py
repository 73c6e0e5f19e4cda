"""The journal beside the profile: what a run has measured, for ``--resume``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.search.study import Study


def study_beside(profile: Path, words: Sequence[str], *, resume: bool) -> Study:
    """The study in the journal beside ``profile``.

    Args:
        profile: where the run writes.
        words: what is tuned, on what machine, from which baseline. Other words are another study in the same journal.
        resume: go on with what the journal holds; else it is removed first.

    Raises:
        UsageError: the journal cannot be read.
    """
    from autotune.search.study import open_study

    journal = profile.with_suffix(".journal")
    if not resume:
        journal.unlink(missing_ok=True)
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
    try:
        return open_study(journal, f"{profile.stem}-{digest}")
    except Exception as error:
        raise UsageError(
            f"{journal}: the journal cannot be read ({type(error).__name__}: {error}). Run without --resume, which"
            " starts a new one."
        ) from error
