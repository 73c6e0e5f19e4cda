"""``autotune diagnose``: why is a training step as slow as it is? Real trials measure each part within one deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from autotune.decoding import decoded
from autotune.inspect.verdict import STEP, Diagnosis, Inspection, Part, bounds, conclude, share_of
from autotune.knobs.settings import Settings
from autotune.knobs.stated import baseline_settings
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.cpu_time import Neighbours
from autotune.probes.inventory import probe
from autotune.probes.system import System
from autotune.stats.proof import Round, compare
from autotune.trial.messages import Without
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import Target
from autotune.tuning.baseline import of_own_settings
from autotune.tuning.events import Observer
from autotune.tuning.notes import load_note
from autotune.tuning.runner import check_not_a_rank, open_runner, same_cpus

MEASURED_BY = "autotune.inspect.parts:parts"
PROBE_SHARE, INSPECTION_SHARE = 0.25, 0.3
"""Shares of the time that is left."""
MOST_SECONDS = 3.0
"""Longest inspection."""
END_SECONDS = 1.5
"""Kept for ending all processes."""
WORTH_REMOVING = 0.05
"""A part with at least this share of the step is also measured by leaving it out."""
MOST_REPLICATES = 24
ROUNDS, BLOCK_SECONDS = 2, 0.12
BATCHES = "batches"
"""Scripts whose steps are known by a loader's batches can run without a part (`TaskFacts.script`)."""


def diagnose(target: Target, deadline: float, observe: Observer) -> Diagnosis:
    """Diagnose ``target``.

    Args:
        target: the task file or script.
        deadline: on the monotonic clock; all processes have ended by then.
        observe: called with each event.

    Raises:
        UserCodeError: the user's code failed.
        NothingUsable: the parts could not be measured in time.
        MachineChanged: the CPUs that may be used changed meanwhile.
    """
    check_not_a_rank()
    last = deadline - END_SECONDS
    observe(stage="probing this machine")
    now = time.monotonic()
    inventory = probe(System(deadline=now + PROBE_SHARE * (last - now)))
    neighbours = Neighbours()
    patience = max(0.0, last - time.monotonic())
    with open_runner(target, inventory, 0, patience, observe) as runner, same_cpus(inventory):
        runner.deadline = last
        observe(stage=target.loading)
        facts = runner.describe(steps=False)
        bench = TrialBench(runner, baseline_settings(facts, inventory))
        parts = "the parts of a step, and the stack of the training process"
        observe(stage=parts, baseline=bench.baseline, unit=facts.unit)
        inspection = _inspected(bench, last)
        observe(stage="the step without each of its parts")
        shares = {part: share_of(gain) for part, gain in bounds(inspection).items()}
        chosen = candidates(bench.baseline, facts, shares, inventory.budget.threads - inspection.neighbours)
        rounds = _rounds(bench, chosen, last, observe)
    found = conclude(bench.baseline, facts, inspection, rounds)
    fewer = chosen.get(Part.THREADS.value)
    load = neighbours.load(inventory.budget.threads)
    return replace(
        found,
        threads=fewer[0].threads if fewer is not None else None,
        notes=tuple(filter(None, [load_note(load, names=True)])),
    )


def _inspected(bench: TrialBench, last: float) -> Inspection:
    """Inspect the user's settings."""
    seconds = min(MOST_SECONDS, INSPECTION_SHARE * (last - time.monotonic()))
    outcome, data = bench.inspect(bench.baseline, MEASURED_BY, seconds)
    bench.remember(of_own_settings(outcome))
    return decoded(Inspection, data)


def candidates(
    settings: Settings, facts: TaskFacts, shares: Mapping[Part, float], threads: float
) -> dict[str, tuple[Settings, Without]]:
    """Return the candidates by name: settings, and the part of a step that each leaves out. Parts with small ``shares``
    have no candidate, none has one if fewer threads fit: ``threads``, beside other processes."""
    found = {STEP: (settings, Without.NOTHING)}
    free, busy = max(1, round(threads)), settings.processes * (settings.threads + settings.num_workers)
    fewer = max(1, free // settings.processes - settings.num_workers)
    if busy > free and fewer < settings.threads:  # nothing else: steps are slow then, and the budget is short
        return found | {Part.THREADS.value: (settings.but(threads=fewer), Without.NOTHING)}
    if facts.script in (None, BATCHES):
        large = {part.value for part in shares if shares[part] >= WORTH_REMOVING}
        large |= {Part.GRADIENT_SYNC.value} if settings.processes > 1 else set()
        found |= {each.value: (settings, each) for each in Without if each.value in large}
    return found


def _rounds(
    bench: TrialBench, chosen: Mapping[str, tuple[Settings, Without]], last: float, observe: Observer
) -> list[Round]:
    """Run all candidates in turn, in as many replicates as fit, or until all intervals are narrow."""
    settings = {name: each for name, (each, _) in chosen.items()}
    without = {name: part for name, (_, part) in chosen.items()}
    rounds: list[Round] = []
    longest = 0.0
    for number in range(MOST_REPLICATES if len(chosen) > 1 else 0):
        begun = time.monotonic()
        if begun + longest > last or (rounds and all(compare(rounds, each, STEP).narrow for each in chosen)):
            break
        with bench.start_replicate(settings, without) as replicate:
            rounds += replicate.rounds(number, ROUNDS, BLOCK_SECONDS)
        observe(rounds=dict.fromkeys(rounds[-1].rates, len(rounds)))
        longest = max(longest, time.monotonic() - begun)
    return rounds
