"""The precision of products of float32 matrices on CPUs."""

from __future__ import annotations

import torch

from autotune.runtime.applier import Applier

USUAL = "highest"


class MatmulPrecision(Applier):
    """oneDNN computes them in bfloat16, and sums in float32. Who has chosen a precision himself keeps it."""

    _set = False

    def start(self) -> str | None:
        """Set it."""
        if self.value == USUAL:
            return None
        if self.training.device.type != "cpu":
            return "it is for CPUs"
        try:
            own = torch.get_float32_matmul_precision()
        except RuntimeError:  # set by PyTorch's new switches, one by one
            return "you have set the precision of matrix products yourself"
        if own != USUAL:
            return f"you have set it to {own}"
        torch.set_float32_matmul_precision(self.value)
        self._set = True
        return None

    def undo(self) -> None:
        """PyTorch's default."""
        if self._set:
            torch.set_float32_matmul_precision(USUAL)
