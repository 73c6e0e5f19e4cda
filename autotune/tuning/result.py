"""From a finished tuning run to its `Profile`: what was found, what failed, what was left out, what to mind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.core.errors import Interrupted, LaunchError
from autotune.core.feasibility import normalised
from autotune.core.knobs import Context
from autotune.core.machine import machine_type
from autotune.core.measurement import Places
from autotune.core.profile import Ceiling, Evidence, Failure, LevelResult, NotOffered, Profile, Target
from autotune.core.space import LeftOut
from autotune.tuning.state import Tuning


def profile_of(
    tuning: Tuning,
    results: Mapping[str, LevelResult],
    context: Context,
    left_out: Sequence[LeftOut],
    *,
    recommended: str | None,
    seconds: float,
    warnings: Sequence[str],
    partial: bool,
    nnodes: int = 1,
) -> Profile:
    """The whole answer as data.

    Args:
        tuning: what was tried and found.
        results: the answer of each level.
        context: machine, task and baseline.
        left_out: values that were never offered.
        recommended: the level the user asked for; by default ``amp`` where the task states its batch, else ``max``.
        seconds: duration of the whole run.
        warnings: what the user should know.
        partial: True where the run was interrupted.
        nnodes: how many machines took part.
    """
    task, software = context.task, context.inventory.software
    notes = (*task.warnings, *warnings, *_normalisation(context, results), *_replication(tuning))
    return Profile(
        machine=machine_type(context.inventory).as_dict(),
        software={"python": software.python, "torch": software.torch, "cuda": software.cuda},
        target=Target(task.name, task.unit, task.device, task.parameters, task.samples, nnodes),
        recommended=recommended or ("amp" if "batch_size" in task.current else "max"),
        baseline=tuning.baseline,
        baseline_rate=tuning.baseline_rate,
        levels=results,
        evidence=Evidence(
            trials=len(tuning.history),
            seconds=round(seconds, 1),
            failures=tuple(_failures(tuning)),
            not_offered=tuple(NotOffered(item.knob, item.value, item.reason) for item in left_out),
            warnings=notes,
            partial=partial,
            ceiling=ceiling(context.gflops, task.flops_per_item),
        ),
    )


def cores_apart(proof: Places, nearest: Mapping[int, float]) -> list[str]:
    """What to mind where the host had moved the cores apart: nothing else shows it.

    Args:
        proof: of the blocks that decided.
        nearest: the least crossing that this machine has shown, by number of threads.
    """
    share, times = proof.apart(nearest)
    if not share:
        return []
    return [
        f"in {share:.0%} of race and proof the cores were far apart: data took {times:.1f} times as long between them"
        " as it can here. Steps of several threads lose by that, and what your settings lose counts as gain"
    ]


def gflops(facts: Mapping[str, Any]) -> dict[str, float]:
    """Matrix rate by precision; empty where the benchmark failed."""
    return {name: float(facts[name]) for name in ("fp32", "bf16") if isinstance(facts.get(name), int | float)}


def ceiling(rates: Mapping[str, float], flops_per_item: float) -> Ceiling | None:
    """The machine's matrix rate and what an item asks of it; None where either is unknown."""
    if not flops_per_item or "fp32" not in rates:
        return None
    return Ceiling(rates["fp32"], rates.get("bf16", 0.0), flops_per_item)


def told(ended: Interrupted | LaunchError, saved: Path) -> Interrupted | LaunchError:
    """Why a run ended early, and where the best so far is."""
    if isinstance(ended, Interrupted):
        return Interrupted(ended.signal, saved)
    return LaunchError(f"{ended}\nThe best so far, not proven, is in {saved}.")


def _normalisation(context: Context, results: Mapping[str, LevelResult]) -> Iterator[str]:
    """BatchNorm takes its statistics from what one process or replica has: what sharing a batch changes."""
    own = normalised(context.baseline, context.inventory)
    sizes = {normalised(result.settings, context.inventory) for result in results.values()} - {own}
    if context.task.has_batch_norm and sizes:
        others = " or ".join(str(size) for size in sorted(sizes))
        replicated = any(result.settings.data_parallel for result in results.values())
        keep = "--fix data_parallel=False" if replicated else "torch.nn.SyncBatchNorm or --fix processes=1"
        yield f"BatchNorm normalises over {others} samples instead of {own}; {keep} keeps it"


def _replication(tuning: Tuning) -> Iterator[str]:
    """What `torch.nn.DataParallel` costs: its best trial against the most alike of several processes."""
    rate = tuning.estimate
    replicated = max((s for s in tuning.estimates if s.data_parallel), key=rate, default=None)
    several = [s for s in tuning.estimates if s.processes > 1]
    if replicated is not None and several:
        shape = {"processes", "backend", "data_parallel", "binding", "threads", "batch_size", "num_workers"}
        other = min(several, key=lambda s: (len(set(s.difference(replicated)) - shape), -rate(s)))
        yield (
            f"torch.nn.DataParallel reached {rate(replicated) / rate(other):.2f}x of the rate of"
            f" {other.processes} processes with the same batch (single trials)"
        )


def _failures(tuning: Tuning) -> Iterator[Failure]:
    for observation in tuning.history:
        if not observation.outcome.measured:
            changed = {name: mine for name, (mine, _) in observation.settings.difference(tuning.baseline).items()}
            yield Failure(observation.outcome.kind, observation.outcome.reason, changed)
