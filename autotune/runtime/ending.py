"""The last line of a training that an error ends while settings of ours are in force: what they are."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable

from autotune.environment import DISABLE

IN_FORCE: dict[Callable[[], str], BaseException | None] = {}
"""What returns the settings in force as words, and the only error that it explains; None for any."""


def explain(words: Callable[[], str], only: BaseException | None = None) -> Callable[[], object]:
    """Say ``words``, if they are not empty, after an error that ends this process. Returns a function that forgets."""
    if not IN_FORCE:
        atexit.register(say)
    IN_FORCE[words] = only
    return lambda: IN_FORCE.pop(words, None)


def say() -> None:
    """Say what is in force, once, if an error that nobody caught ends this process. Prompts show errors and go on."""
    error = getattr(sys, "last_value", None)
    while IN_FORCE:
        words, only = IN_FORCE.popitem()
        if isinstance(error, Exception) and only in (None, error) and not hasattr(sys, "ps1") and (text := words()):
            print(f"autotune: this training ran with {text}. {DISABLE}=1 runs it without", file=sys.stderr)
