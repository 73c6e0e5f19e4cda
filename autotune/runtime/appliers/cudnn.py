"""cuDNN's own search for its fastest algorithms."""

from __future__ import annotations

import torch

from autotune.runtime.applier import Applier


class CudnnBenchmark(Applier):
    """Let cuDNN time its algorithms; never in deterministic mode, which the user chose."""

    _before: bool | None = None

    def start(self) -> str | None:
        """Switch it on."""
        if not self.value:
            return None
        if self.training.device.type != "cuda":
            return "no CUDA device"
        cudnn = torch.backends.cudnn
        if torch.are_deterministic_algorithms_enabled() or cudnn.deterministic:
            return "deterministic algorithms are switched on"
        self._before = cudnn.benchmark
        cudnn.benchmark = True
        return None

    def undo(self) -> None:
        """As it was before."""
        if self._before is not None:
            torch.backends.cudnn.benchmark = self._before
