"""What trials know of frameworks by name: one file a framework, and one line for it in ``ADAPTERS``."""

from __future__ import annotations

import sys
from pathlib import Path

from autotune.scripts.adapters.accelerate import ACCELERATE
from autotune.scripts.adapters.adapter import AfterImport
from autotune.scripts.adapters.lightning import LIGHTNING
from autotune.scripts.adapters.progress_bars import PROGRESS_BARS
from autotune.scripts.adapters.trackers import TRACKERS
from autotune.scripts.adapters.transformers import TRANSFORMERS

ADAPTERS = (LIGHTNING, ACCELERATE, TRANSFORMERS, TRACKERS, PROGRESS_BARS)
CACHES = {name: folder for adapter in ADAPTERS for name, folder in adapter.caches.items()}
"""Variables that name folders of caches, and where these are below HOME."""
OLD_NAMES = tuple(name for adapter in ADAPTERS for name in adapter.old_names)
"""Variables that would be taken before those."""


def variables(logs: Path, *, network: bool) -> dict[str, str]:
    """Return the variables that keep trackers off or in the folder ``logs``, and libraries from asking the
    ``network``."""
    found: dict[str, str] = {}
    for adapter in ADAPTERS:
        found |= {**adapter.variables, **({} if network else adapter.offline)}
        found |= {name: str(logs / name.lower()) for name in adapter.logs}
        found |= {name: (logs / folder).as_uri() for name, folder in adapter.log_uris.items()}
    return found


def silence(text: str) -> None:
    """Keep the frameworks still that a script uses in this process, before it runs.

    Args:
        text: of the script.
    """
    for adapter in ADAPTERS:
        adapter.before(text)
    AfterImport({name: change for adapter in ADAPTERS for name, change in adapter.changes.items()}).install()


def several_processes() -> str:
    """Return how a framework that this process has imported starts processes; empty if none decides that."""
    used = (adapter for adapter in ADAPTERS if set(adapter.packages) & set(sys.modules))
    return "; ".join(adapter.several_processes for adapter in used if adapter.several_processes)
