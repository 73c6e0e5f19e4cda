"""Process-wide switches: threads, cuDNN, TF32, open files. Each returns how to undo it, or why it did not take effect.

Nothing here raises for a switch that comes too late or does not exist: a training run goes on without it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Switched:
    """What became of a switch."""

    undo: Callable[[], None] | None = None
    refused: str | None = None
    """Why it did not take effect; None where it did."""


NOTHING = Switched()


def set_threads(count: int) -> Switched:
    """Intra-op threads of this process."""
    before = torch.get_num_threads()
    if before == count:
        return NOTHING
    torch.set_num_threads(count)
    refused = threads_refused(count)
    return Switched(lambda: torch.set_num_threads(before), refused)


def threads_refused(count: int) -> str | None:
    """Read back: why ``count`` intra-op threads are not in force, or None."""
    found = torch.get_num_threads()
    return None if found == count else f"asked {count}, {found} are in force"


def set_interop_threads(count: int) -> Switched:
    """Inter-op threads. PyTorch takes them once per process, before its first parallel work, and never back."""
    found = torch.get_num_interop_threads()
    if found == count:
        return NOTHING
    try:
        torch.set_num_interop_threads(count)
    except RuntimeError:
        return Switched(
            refused=f"too late: {found} are in force since the first parallel work; start with autotune run"
        )
    return NOTHING


def set_cudnn_benchmark(wanted: bool, device: torch.device) -> Switched:
    """Let cuDNN time its algorithms; never in deterministic mode, which the user chose."""
    if not wanted:
        return NOTHING
    if device.type != "cuda":
        return Switched(refused="no CUDA device")
    cudnn = torch.backends.cudnn
    if torch.are_deterministic_algorithms_enabled() or cudnn.deterministic:
        return Switched(refused="deterministic algorithms are switched on")
    before = cudnn.benchmark
    cudnn.benchmark = True

    def undo() -> None:
        cudnn.benchmark = before

    return Switched(undo)


@contextlib.contextmanager
def allow_tf32() -> Iterator[None]:
    """TF32 for matrix products and convolutions while inside.

    PyTorch 2.9 began to refuse mixing its old and new switches, so whichever the user has used is used here.
    """
    conv = torch.backends.cudnn.allow_tf32
    undo = _matmul_tf32()
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = conv
        undo()


def _matmul_tf32() -> Callable[[], None]:
    matmul = torch.backends.cuda.matmul
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        new_style: str = matmul.fp32_precision
        matmul.fp32_precision = "tf32"

        def undo() -> None:
            matmul.fp32_precision = new_style

        return undo
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old switch announces its successor, which 2.4 does not have
        torch.set_float32_matmul_precision("high")
    return lambda: torch.set_float32_matmul_precision(before)


def check_allocator(name: str, maps: Path = Path("/proc/self/maps")) -> Switched:
    """A host allocator is preloaded at launch or not at all: look whether it is mapped."""
    if name == "default":
        return NOTHING
    try:
        mapped = f"lib{name}" in maps.read_text(errors="replace")
    except OSError:
        return Switched(refused="cannot tell: this system has no /proc/self/maps")
    return NOTHING if mapped else Switched(refused=f"lib{name} is not loaded; only autotune run can preload it")


def raise_open_files() -> Switched:
    """The soft limit of open files up to the hard one: every batch in flight holds one descriptor per tensor."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == hard or soft == resource.RLIM_INFINITY:
            return NOTHING
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ImportError, ValueError, OSError) as error:
        return Switched(refused=f"the limit of open files stays: {error}")
    return Switched(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
