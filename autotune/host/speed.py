"""How fast this machine's processors are, measured and remembered by the probes."""

from __future__ import annotations

from collections.abc import Mapping

from probes.bench.run import measure
from probes.system import System


def matrix_rates() -> dict[str, float]:
    """Rate of large matrix products by precision, in 1e9 floating-point operations per second; empty if it failed."""
    facts = measure(System(), ["gemm"])["gemm"]
    return {name: float(facts[name]) for name in ("fp32", "bf16") if isinstance(facts.get(name), int | float)}


def least_crossings(own: Mapping[int, float]) -> dict[int, float]:
    """The least `Block.crossing` since the machine was started, by number of threads, ``own`` included."""
    system = System()
    boot = system.read("/proc/sys/kernel/random/boot_id")
    known = system.lowest("crossing", boot, {str(threads): seconds for threads, seconds in own.items()})
    return {threads: float(known[str(threads)]) for threads in own}
