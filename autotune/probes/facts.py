"""Frozen facts about one machine, as the probes found them.

Every record is plain data: no methods that touch the machine, no defaults that guess. A fact that could not be
read is ``None`` (unknown). Sizes are bytes, bandwidths bytes per second.
Nothing here names a user, a host, a serial number or a path of the user's: facts may be shown and stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune import devices
from autotune.devices import CUDA, Device


@dataclass(frozen=True)
class LogicalCpu:
    """One logical CPU as the kernel numbers it. ``kind`` is ``performance``, ``efficiency`` or ``uniform``."""

    id: int
    package: int
    core: int
    """The id of the core's first logical CPU."""
    node: int | None
    kind: str = "uniform"


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node. ``cpus`` may be empty (memory only)."""

    id: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Cpu:
    """The processors the kernel shows, whether or not this process may use them."""

    vendor: str
    """``amd``, ``intel``, ``arm``, ``apple`` or ``unknown``."""
    model: str
    """The name the maker gives, for people; decisions go by `features`."""
    family: str
    """Short microarchitecture slug: ``epyc-zen4``, ``sapphire-rapids``, ``neoverse-v1``; ``family25-model17`` if the
    model is in no table, and the widest unit, such as ``amx`` or ``avx512``, if the features are not the model's."""
    architecture: str
    """``x86_64``, ``aarch64``..."""
    features: tuple[str, ...]
    """The instruction sets that matter here: ``avx2``, ``avx512_bf16``, ``amx_bf16``, ``neon``, ``sve``, ``bf16``..."""
    logical: tuple[LogicalCpu, ...]
    """Online logical CPUs, by id."""
    nodes: tuple[NumaNode, ...]

    @property
    def packages(self) -> int:
        """Return the number of sockets."""
        return len({cpu.package for cpu in self.logical}) or 1

    @property
    def cores(self) -> int:
        """Return the number of physical cores."""
        return len({cpu.core for cpu in self.logical}) or 1


@dataclass(frozen=True)
class CpuBudget:
    """What this process may use: the smallest of online CPUs, affinity mask, cpuset and CPU quota."""

    cpus: tuple[int, ...]
    """Ids of the logical CPUs that are both online and allowed."""
    quota: float | None
    """CPUs' worth of time per second allowed by the tightest cgroup of all ancestors, or None."""
    threads: int
    """``min(len(cpus), floor(quota))``, at least 1: how many busy threads fit."""
    cores: int
    """Physical cores among ``cpus``, at most ``threads``."""
    performance_cores: int
    """Physical performance cores among ``cpus`` (equal to ``cores`` on uniform CPUs)."""
    limit: str
    """The limit that counts: ``2 online CPUs``, ``affinity mask (1 of 2 CPUs)``, ``cgroup CPU quota 1.5``..."""


@dataclass(frozen=True)
class Memory:
    """Host memory. ``limit`` = min(MemTotal, limits of all ancestor cgroups); ``available`` is what is left of it."""

    total: int
    limit: int
    limit_source: str
    available: int
    shm_total: int | None = None
    shm_free: int | None = None
    transparent_hugepages: str | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU or MIG slice that this process may use, in the order CUDA will number it."""

    index: int
    name: str
    memory_total: int
    """0 if the driver does not say."""
    memory_free: int
    capability: tuple[int, int]
    mig: bool
    node: int | None
    links: tuple[str, ...] = ()
    """To each other GPU: ``nvlink``, ``pcie-switch``, ``host-bridge``, ``numa``, ``system``."""
    foreign_processes: int = 0
    """Other processes that are seen on it; a container may hide them."""
    clocks_throttled: tuple[str, ...] = ()
    driver: str | None = None
    """Version of the driver; None if it is unknown."""


@dataclass(frozen=True)
class ResourceLimits:
    """Most processes that this one and its cgroups may have. None means unlimited."""

    processes: int | None
    """The tighter of RLIMIT_NPROC (which does not bind root) and ``pids.max`` of every ancestor."""
    processes_source: str = "unlimited"


@dataclass(frozen=True)
class Backend:
    """One ``torch.distributed`` backend: whether it can really be used here, and if not, why."""

    name: str
    usable: bool
    reason: str


@dataclass(frozen=True)
class Allocator:
    """One host memory allocator (``jemalloc`` or ``tcmalloc``) that can be preloaded."""

    name: str
    library: str
    """Its path. It is in a system folder, and only root can change it."""


@dataclass(frozen=True)
class Software:
    """The PyTorch installation, read in a child process and cached by version, boot, mask and environment."""

    python: str
    platform: str
    """``linux`` or ``darwin``."""
    torch: str | None = None
    cuda: str | None = None
    accelerator: str = "cpu"
    """What PyTorch trains on here if nobody chooses."""
    compiler: str | None = None
    """C++ compiler that TorchInductor could use."""
    compiler_reason: str | None = None
    """Why there is none."""
    default_threads: int | None = None
    """What ``torch.get_num_threads()`` returns in a fresh process with the user's environment and mask."""
    default_interop_threads: int | None = None
    start_method: str = "unknown"
    """Default start method of ``multiprocessing`` in this Python."""
    backends: tuple[Backend, ...] = ()
    allocators: tuple[Allocator, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    """The user's own OMP_*, MKL_*, KMP_*, GOMP_* and TORCH_* variables that change performance."""


@dataclass(frozen=True)
class Inventory:
    """Everything the probes know about this machine. Notes name the probes that failed."""

    cpu: Cpu
    budget: CpuBudget
    memory: Memory
    gpus: tuple[Gpu, ...]
    limits: ResourceLimits
    software: Software
    notes: tuple[str, ...] = field(default=())

    @property
    def device(self) -> Device:
        """Return the kind of device that training takes here if nobody chooses."""
        return CUDA if self.gpus else devices.of(self.software.accelerator)
