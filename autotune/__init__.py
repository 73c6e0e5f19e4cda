"""Hardware-aware auto-tuning for PyTorch training.

`load` applies a `Profile` to a training loop, as a `Session`; `tune` finds one. Importing this package imports no
PyTorch and patches nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, UserCodeError
from autotune.version import VERSION

if TYPE_CHECKING:
    from autotune.profiles.format import Profile
    from autotune.runtime.session import Session, load
    from autotune.tuning.run import tune

__version__ = VERSION
__all__ = ["AutotuneError", "Profile", "Session", "UserCodeError", "__version__", "load", "tune"]
_HOMES = {
    "load": "autotune.runtime.session",
    "Session": "autotune.runtime.session",
    "Profile": "autotune.profiles.format",
    "tune": "autotune.tuning.run",
}


def __getattr__(name: str) -> Any:
    """Import what is exported when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    if name in ("load", "Session"):
        import torch  # noqa: F401  # first: under `autotune run` the settings are put in force with it
    found = getattr(import_module(_HOMES[name]), name)
    if name == "tune":
        found = globals()[name] = import_module("autotune.report.live").shown(found)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
