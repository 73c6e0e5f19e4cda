"""Threads of this process."""

from __future__ import annotations

import os

import torch

from autotune.core.knobs.processes import OMP_WAIT_POLICY, own_waiting
from autotune.runtime.applier import Applier


class Threads(Applier):
    """Intra-op threads."""

    _before: int | None = None

    def start(self) -> str | None:
        """Set them, and read them back."""
        before = torch.get_num_threads()
        if before != self.value:
            self._before = before
            torch.set_num_threads(self.value)
        return self.why_not()

    def why_not(self) -> str | None:
        """Why another number is in force, or None."""
        found = torch.get_num_threads()
        return None if found == self.value else f"asked {self.value}, {found} are in force"

    def undo(self) -> None:
        """The number from before."""
        if self._before is not None:
            torch.set_num_threads(self._before)


class InteropThreads(Applier):
    """Inter-op threads. PyTorch takes them once per process, before its first parallel work, and never back."""

    def start(self) -> str | None:
        """Set them, where it is not too late."""
        found = torch.get_num_interop_threads()
        if found == self.value:
            return None
        try:
            torch.set_num_interop_threads(self.value)
        except RuntimeError:
            return f"too late: {found} are in force since the first parallel work; start with autotune run"
        return None


class OmpWaitPolicy(Applier):
    """How OpenMP's threads wait: read when PyTorch is imported, so that a running process can only look."""

    def start(self) -> str | None:
        """Nothing can be done any more: read back."""
        return self.why_not()

    def why_not(self) -> str | None:
        """Why this process may wait otherwise, or None."""
        if self.value == "default":
            return None
        if own := own_waiting(self.value, os.environ):
            return f"{own}={os.environ[own]} is yours and stays"
        if OMP_WAIT_POLICY in os.environ:
            return None
        return f"{OMP_WAIT_POLICY} must be {self.value} before Python starts; autotune run sets it"
