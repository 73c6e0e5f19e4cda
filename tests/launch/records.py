"""A machine with both allocators, for the launcher's tests."""

from __future__ import annotations

from typing import Any

from probes.facts import (
    Allocator,
    Cpu,
    CpuBudget,
    Inventory,
    Limits,
    LogicalCpu,
    Memory,
    NetworkInterface,
    Software,
    Storage,
)


def inventory(**changes: Any) -> Inventory:
    """Eight CPUs, loopback and Ethernet, jemalloc and tcmalloc."""
    cpus = tuple(range(8))
    values: dict[str, Any] = {
        "cpu": Cpu("amd", "EPYC", "epyc-zen4", "x86_64", (), tuple(LogicalCpu(k, 0, k, 0) for k in cpus), (), ()),
        "budget": CpuBudget(cpus, None, 8, 8, 8, "8 online CPUs"),
        "memory": Memory(2**35, 2**35, "MemTotal", 2**34, 0, None, None, None, None, None),
        "gpus": (),
        "limits": Limits(None, None, None),
        "storage": Storage("nvme", "ext4", None),
        "network": (NetworkInterface("eth0", True, False, None), NetworkInterface("lo", True, True, None)),
        "software": Software(
            python="3.11.9",
            platform="linux",
            torch="2.9.0",
            cuda=None,
            blas="mkl",
            openmp="libgomp",
            compiler=None,
            compiler_reason=None,
            default_threads=8,
            default_interop_threads=8,
            start_method="fork",
            allocators=(Allocator("jemalloc", "libjemalloc.so.2"), Allocator("tcmalloc", "libtcmalloc_minimal.so.4")),
        ),
    }
    return Inventory(**{**values, **changes})
