"""How fast this machine is, measured and remembered by the probes, and what of it the user should know."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.measurement import CoreLatencies
from autotune.probes.bench.run import measure
from autotune.probes.system import System
from autotune.trial.parent.trial_bench import TrialBench

STOOD_STILL = (
    "the run stood still for {:.0f} s in all: the machine was suspended, its processes stopped, or its clock jumped;"
    " what that hit was measured again"
)


def matrix_rates() -> dict[str, float]:
    """Rate of large matrix products by precision, in 1e9 floating-point operations per second; empty if it failed."""
    facts = measure(System(), ["gemm"])["gemm"]
    return {name: float(facts[name]) for name in ("fp32", "bf16") if isinstance(facts.get(name), int | float)}


def lowest_latencies(own: Mapping[int, float]) -> dict[int, float]:
    """The lowest core-to-core latency since the machine was started, by number of threads, ``own`` included."""
    system = System()
    known = system.lowest("core-latency", system.boot_id(), {str(count): least for count, least in own.items()})
    return {threads: float(known[str(threads)]) for threads in own}


def machine_notes(bench: TrialBench) -> list[str]:
    """What the user should know of the machine during the run."""
    notes = [f"trials ran as fresh processes, slower to start: {bench.no_fork_reason}"] if bench.no_fork_reason else []
    if bench.stood_still:
        notes.append(STOOD_STILL.format(bench.stood_still))
    own = CoreLatencies((*bench.trial_latencies, *bench.contest_latencies)).lowest
    return notes + cores_apart(CoreLatencies(tuple(bench.contest_latencies)), lowest_latencies(own))


def cores_apart(proof: CoreLatencies, nearest: Mapping[int, float]) -> list[str]:
    """A warning if the host had moved the cores apart: nothing else shows it.

    Args:
        proof: of the blocks that decided.
        nearest: the lowest core-to-core latency that this machine has shown, by number of threads.
    """
    share, times = proof.high(nearest)
    if not share:
        return []
    return [
        f"in {share:.0%} of the undisturbed blocks of race and proof the cores were far apart: data took {times:.1f}"
        " times as long between them as it can here. Steps of several threads lose by that, and what your settings"
        " lose counts as gain"
    ]
