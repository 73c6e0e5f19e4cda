"""Every error the tuner raises on purpose, and what several messages share.

    AutotuneError              what happened, where, what to do; printed without a traceback
    ├── UsageError             exit 2: the command line or the task file is wrong
    │   └── ContractError      the task file lacks something; shows the lines that would satisfy it
    ├── UserCodeError          exit 3: the user's own code failed; carries its own traceback, untouched
    ├── NothingUsable          exit 4: no setting could be measured here, or no profile fits; with the reasons
    ├── ProfileError           a profile file is not valid; names the key
    └── LaunchError            a trial process could not be started, or did not answer
        └── MachineChanged     the CPUs that the process may use changed during the run

`Interrupted` (exit 130) is not an error: it passes on Ctrl-C and SIGTERM after the best so far is saved.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable
from pathlib import Path


class AutotuneError(Exception):
    """Base of all errors that a person is meant to read."""

    exit_code = 1


class UsageError(AutotuneError):
    """The request cannot be carried out as written."""

    exit_code = 2


class ContractError(UsageError):
    """The task file lacks a part of the contract."""


class UserCodeError(AutotuneError):
    """The user's code failed under the user's own settings.

    Attributes:
        traceback: the user's own traceback (or the log's tail if a signal ended the process), untouched.
    """

    exit_code = 3

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class NothingUsable(AutotuneError):
    """Nothing could be measured on this machine, or no profile fits it."""

    exit_code = 4


class ProfileError(AutotuneError):
    """A profile could not be read; the text names the file and the key."""

    exit_code = 2


class LaunchError(AutotuneError):
    """A helper process could not be started."""

    exit_code = 4


class MachineChanged(LaunchError):
    """The machine has changed: figures from before and after cannot be compared."""


class Interrupted(BaseException):
    """The user or the scheduler asked to stop.

    Attributes:
        signal: its number.
        saved: the profile that holds the best so far; None if nothing was measured.
    """

    exit_code = 130

    def __init__(self, number: int, saved: Path | None = None) -> None:
        best = f"the best so far, not proven, is in {saved}; --resume goes on from here"
        super().__init__(f"interrupted by {signal.Signals(number).name}; {best if saved else 'nothing was written'}")
        self.signal, self.saved = number, saved


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` to append to a message; empty if no name in ``known`` is spelt like ``name``."""
    return "".join(f"; did you mean {found}?" for found in difflib.get_close_matches(name, sorted(set(known)), n=1))


def cut(line: str, width: int) -> str:
    """Return ``line``, or its start with ``...`` if it is longer than ``width`` characters."""
    return line if len(line) <= width else line[: width - 3].rstrip() + "..."
