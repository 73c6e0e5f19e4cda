"""Hardware-aware auto-tuning for PyTorch training.

`load` applies a profile to a training loop; `tune` finds one. Importing this package imports no PyTorch and patches
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, UserCodeError
from autotune.version import VERSION

if TYPE_CHECKING:
    from autotune.runtime.session import load
    from autotune.tuning.run import tune

__version__ = VERSION
__all__ = ["AutotuneError", "UserCodeError", "__version__", "load", "tune"]


def __getattr__(name: str) -> Any:
    """Import `load` and `tune` when they are first used."""
    if name == "load":
        import torch  # noqa: F401  # first: under `autotune run` the settings are put in force with it

        from autotune.runtime.session import load

        return load
    if name == "tune":
        from autotune.tuning.run import tune

        return tune
    raise AttributeError(f"module 'autotune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
