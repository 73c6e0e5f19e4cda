"""Switches of the kernel and of PyTorch's build that cost speed where they are set wrong."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.probes import power
from autotune.probes.fact_cache import Facts
from autotune.probes.system import System

_CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability())"


@dataclass(frozen=True)
class Switches:
    """None where it is not known.

    Attributes:
        numa_balancing: whether the kernel moves pages between NUMA nodes by itself.
        capability: the widest vector instructions that PyTorch's kernels use: ``DEFAULT``, ``AVX2``, ``AVX512``...
        governor: why the CPU frequency is held down, and the battery, in words.
        temporary: the folder of temporary files.
    """

    numa_balancing: bool | None = None
    capability: str | None = None
    governor: tuple[str, ...] = ()
    temporary: str = "/tmp"


def probe(system: System) -> Switches:
    """Read this machine's switches."""
    balancing = system.read("/proc/sys/kernel/numa_balancing")
    key = [system.package_version("torch"), system.python, system.boot_id(), system.env.get("ATEN_CPU_CAPABILITY")]
    capability = system.remember("cpu-capability", key, lambda: _capability(system))["capability"]
    moved = None if balancing is None else balancing != "0"
    return Switches(moved, capability, power.probe(system), system.env.get("TMPDIR") or "/tmp")


def _capability(system: System) -> Facts:
    done = system.run([system.python, "-c", _CAPABILITY], timeout=60)
    word = done.stdout.strip()
    return {"capability": word if done.returncode == 0 and word.isalnum() else None}
