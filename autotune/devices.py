"""The devices that PyTorch trains on. Nothing imports PyTorch, or starts a context, before it is asked to.

`Device` is any accelerator that PyTorch knows, by ``torch.accelerator``; CPUs and CUDA say what differs. Another one
needs a row only if it has figures of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

FORK_SECONDS = 30
"""A fork that starts a device ends by then."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """One device, or any of its kind. Profiles hold its name.

    Attributes:
        type: what PyTorch calls the kind.
        index: of the card; None for the current one.
        backend: what its users exchange gradients with.
        process_loss: log rate lost with each doubling of processes beside gradient sync.
        overhead_seconds: of each step whatever its batch: Python, dispatch, kernel launches.
        update_seconds: of the optimizer per parameter.
        precision_gain: usual gain in log rate of the precisions that may be faster than fp32.
        compile_gain: the same of modes of torch.compile, in the order in which they are tried.
    """

    type: str
    index: int | None = None
    backend: str = "gloo"
    process_loss: float = 0.0
    overhead_seconds: float = 2e-3
    update_seconds: float = 2e-11
    precision_gain: Mapping[str, float] = field(default_factory=lambda: {"bf16": 0.1}, hash=False)
    compile_gain: Mapping[str, float] = field(default_factory=lambda: {"default": 0.1}, hash=False)

    def __str__(self) -> str:
        """Return the name, such as ``cuda:1``."""
        return self.type if self.index is None else f"{self.type}:{self.index}"

    @property
    def on_host(self) -> bool:
        """Return True for CPUs: their memory is the host's, and calls return when the work is done."""
        return self.type == "cpu"

    def is_available(self) -> bool:
        """Return True if PyTorch can train on it here."""
        import torch

        own = torch.accelerator.current_accelerator()
        return own is not None and own.type == self.type and torch.accelerator.is_available()

    def count(self) -> int:
        """Return how many there are."""
        import torch

        return torch.accelerator.device_count()

    def has_context(self) -> bool:
        """Return True if this process may have started it, so that forks of it cannot use it any more."""
        return bool(self._ask("is_initialized", otherwise=self.is_available))

    def fails_in_forks(self) -> bool:
        """Return True if forks of this process cannot start it, also without a context: its driver was asked, such as
        for the number of cards if NVML is not there. A fork tries; this process has one thread only."""
        return False

    def select(self) -> None:
        """Make it the current one of its kind."""
        self._ask("set_device", self.index, otherwise=lambda _index: None)

    def synchronize(self) -> None:
        """Wait until it has finished its work."""
        import torch

        torch.accelerator.synchronize(str(self))

    def peak_memory(self) -> int:
        """Return the most bytes that this process has reserved; 0 if PyTorch does not count them."""
        return int(self._ask("max_memory_reserved", self.index, otherwise=lambda _index: 0))

    def forget_peak_memory(self) -> None:
        """Count that from now on, without what is reserved for nothing."""
        self._ask("empty_cache", otherwise=lambda: None)
        self._ask("reset_peak_memory_stats", self.index, otherwise=lambda _index: None)

    def random_states(self) -> Any:
        """Return the states of the random numbers that are drawn there; None if PyTorch does not say."""
        return self._ask("get_rng_state_all", otherwise=lambda: None)

    def set_random_states(self, states: Any) -> None:
        """Go on with `random_states`."""
        if states is not None:
            self._ask("set_rng_state_all", states, otherwise=lambda _states: None)

    def _ask(self, name: str, *arguments: Any, otherwise: Any) -> Any:
        """Call a function of the kind's module in ``torch``, which few modules have all of."""
        import torch

        return getattr(torch.get_device_module(self.type), name, otherwise)(*arguments)


class _Cpu(Device):
    """The CPUs: nothing to start, to choose or to wait for."""

    def is_available(self) -> bool:
        return True

    def has_context(self) -> bool:
        return False

    def synchronize(self) -> None:
        pass

    def _ask(self, name: str, *arguments: Any, otherwise: Any) -> Any:
        return otherwise(*arguments)


class _Cuda(Device):
    """NVIDIA's GPUs. They are counted by NVML, which starts no context."""

    def is_available(self) -> bool:
        return self.count() > 0

    def count(self) -> int:
        import torch

        return torch.cuda.device_count()

    def fails_in_forks(self) -> bool:
        import torch

        def fails() -> bool:
            return torch.cuda._is_in_bad_fork() or (self.count() > 0 and not self._starts())

        return built().type == self.type and _in_fork(fails) and self.count() > 0  # to count is to ask

    def _starts(self) -> bool:
        import torch

        try:
            torch.zeros(1, device=self.type).item()
        except RuntimeError:
            return False
        return True


CPU = _Cpu(
    type="cpu",
    process_loss=0.15,  # processes share caches and memory
    overhead_seconds=5e-4,
    update_seconds=2e-9,  # about 16 bytes of a parameter pass through memory
    precision_gain={"bf16": 0.38},  # tried only on CPUs that compute in it: half of what matrix products gain on Zen 4
    compile_gain={"default": 0.08},
)
CUDA = _Cuda(
    type="cuda",
    backend="nccl",
    precision_gain={"tf32": 0.20, "bf16": 0.35, "fp16": 0.33},
    # CUDA graphs bring most if kernels are short; timing kernels adds little, and takes minutes
    compile_gain={"reduce-overhead": 0.45, "default": 0.25, "max-autotune": 0.50},
)
KINDS = {each.type: each for each in (CPU, CUDA)}
"""What has figures of its own."""


def of(name: object) -> Device:
    """Return the device called ``name``, such as ``cuda:1``; a ``torch.device`` will do."""
    kind, _, index = str(name).partition(":")
    return replace(KINDS.get(kind) or Device(type=kind), index=int(index) if index else None)


def built() -> Device:
    """Return the accelerator that this PyTorch was built for; CPUs if for none. It asks no driver: that can be enough
    to forbid forks, and it reads ``CUDA_VISIBLE_DEVICES`` then, which a script may still set."""
    import torch

    own = torch.accelerator.current_accelerator()
    return CPU if own is None else of(own.type)


def _in_fork(condition: Callable[[], bool]) -> bool:
    """Return True if ``condition`` holds in a fork of this process, or if that does not end well."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(FORK_SECONDS)
        try:
            os._exit(condition())
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] != 0


def found() -> Device:
    """Return what training takes here if nobody chooses: an accelerator if there is one. It starts no context."""
    if CUDA.is_available():
        return CUDA
    kind = built()
    return kind if kind.is_available() else CPU
