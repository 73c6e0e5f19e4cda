"""``autotune report``: a tuning run as one HTML file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from autotune.errors import UsageError
from autotune.profiles.file import read
from autotune.profiles.format import Profile

MISSING = "an HTML report is drawn by plotly, which is not installed: pip install 'torch-autotune[report]'"


def check_plotly() -> None:
    """Raise `UsageError` where reports cannot be drawn: said before a run, not after it."""
    if importlib.util.find_spec("plotly") is None:
        raise UsageError(MISSING)


def report(path: Path, out: Path) -> None:
    """Write the report of the profile in ``path`` to ``out``, with the journal beside it where there is one."""
    check_plotly()
    write(read(path), path, out)


def write(profile: Profile, path: Path, out: Path) -> None:
    """Write the report of ``profile`` to ``out``.

    Raises:
        UsageError: the journal cannot be read, or ``out`` is one of the two or cannot be written.
    """
    from autotune.report.page import html
    from autotune.search.past_run import read_history  # imports optuna

    journal = path.with_suffix(".journal")
    for source in (path, journal):
        if out.resolve() == source.resolve():
            raise UsageError(f"{out}: the report would replace {source}. Choose another place: --out report.html")
    try:
        history = read_history(journal)
    except ValueError as error:
        raise UsageError(f"{journal}: the journal cannot be read ({error}). Move it away to do without.") from error
    try:
        out.write_text(html(profile, history, path), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: the report cannot be written ({error.strerror})") from error
    without = "" if history.trials else f"; without its journal {journal.name} there are no trials to draw"
    print(f"{out}: report of {profile.target.name}{without}")
