"""``autotune diagnose``: why is a training step as slow as it is? Every part is measured by a real trial."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from autotune.commands.live_view import live_view
from autotune.diagnosis import memory
from autotune.diagnosis.diagnose import Diagnosis, contenders, diagnose
from autotune.diagnosis.inspection import Inspection
from autotune.diagnosis.memory import LargestBatch
from autotune.knobs.baseline import baseline_settings
from autotune.knobs.settings import Settings
from autotune.knobs.task import TaskFacts
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.report import diagnosis as words
from autotune.stats.outcome import Completed
from autotune.stats.proof import Round
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.script import Target
from autotune.tuning.baseline import settle_baseline
from autotune.tuning.events import BaselineKnown, Observer, RoundFinished, StageStarted
from autotune.tuning.host_cpus import on_the_same_cpus
from autotune.tuning.host_neighbours import Neighbours
from autotune.tuning.host_runner import open_runner
from autotune.tuning.host_signals import check_not_a_rank
from autotune.tuning.host_speed import limits

GENERATIONS = (2, 6)
"""At least and at most."""
ROUNDS, BLOCK_SECONDS = 2, 0.12
CHECK_SECONDS = 0.3
"""A larger batch is run whose steps are expected to take as long as this."""
LEAST_GROWTH = 2


def run(target: Target, budget: float, as_json: bool) -> None:
    """Diagnose ``target`` and print what was found.

    Args:
        target: the task file or script.
        budget: seconds to aim at.
        as_json: one JSON object on stdout, in place of text.
    """
    started = time.monotonic()
    check_not_a_rank()
    inventory = probe()
    neighbours = Neighbours()
    with live_view(budget, started) as observe:
        found = measure(target, inventory, started + budget, neighbours.observing(observe))
    beside = neighbours.load(inventory.budget.threads).named
    found = replace(found, notes=(*filter(None, [beside]), *found.notes))
    if as_json:
        print(json.dumps({"target": target.name, "verdict": found.verdict.kind, **_plain(found)}))
    else:
        print(words.text(target.name, found, time.monotonic() - started))


def measure(target: Target, inventory: Inventory, deadline: float, observe: Observer) -> Diagnosis:
    """Run all trials of a diagnosis.

    Raises:
        UserCodeError: the user's code failed.
        NothingUsable: the parts could not be measured.
        MachineChanged: CPUs went away or came meanwhile.
    """
    observe = on_the_same_cpus(inventory, observe)
    with open_runner(target, inventory, 0, 60.0, observe) as runner:
        observe(StageStarted("loading the task"))
        facts = runner.describe(steps=False)
        bench = TrialBench(runner, baseline_settings(facts, inventory))
        observe(BaselineKnown(bench.baseline, facts.unit))
        observe(StageStarted("your settings"))
        far = float("inf")
        baseline = settle_baseline(bench.baseline, (), lambda settings: bench.measure(settings, 0.0, far))
        settings = bench.baseline = baseline.settings
        bench.remember(baseline.outcome)
        observe(StageStarted("each part by itself"))
        inspection = Inspection.from_dict(bench.inspect(settings, far))
        observe(StageStarted("measuring what this machine can do"))
        machine = limits("bf16" if settings.precision == "bf16" else "fp32")
        observe(StageStarted("the step without each of its parts"))
        rounds = _rounds(bench, settings, inventory.budget.threads, deadline, observe)
        rate = _rate(rounds, baseline.outcome)
        found = diagnose(rounds, inspection, machine, settings, facts.unit, rate)
        observe(StageStarted("a larger batch"))
        return replace(found, largest_batch=_largest_batch(bench, found, facts, inventory), notes=baseline.notes)


def _rate(rounds: list[Round], outcome: Completed) -> float:
    own = [turn.rates["step"] for turn in rounds if "step" in turn.rates]
    if own:
        return sorted(own)[len(own) // 2]
    return outcome.measurement.rate if outcome.measurement else 0.0


def _rounds(bench: TrialBench, settings: Settings, threads: int, deadline: float, observe: Observer) -> list[Round]:
    """All contenders in turn, in as many generations of processes as fit."""
    chosen = contenders(settings, threads)
    own = {name: each for name, (each, _) in chosen.items()}
    without = {name: part for name, (_, part) in chosen.items()}
    rounds: list[Round] = []
    longest, generation = 0.0, 0
    least, most = GENERATIONS
    while generation < least or (generation < most and time.monotonic() + longest < deadline):
        begun = time.monotonic()
        with bench.contest(own, float("inf"), without) as contest:
            rounds += contest.rounds(generation, ROUNDS, BLOCK_SECONDS)
        generation += 1
        observe(RoundFinished(dict.fromkeys(rounds[-1].rates, len(rounds))))
        longest = max(longest, time.monotonic() - begun)
    return rounds


def _largest_batch(bench: TrialBench, found: Diagnosis, facts: TaskFacts, inventory: Inventory) -> LargestBatch | None:
    """The largest batch that would fit, from what a larger one took; scripts keep theirs."""
    if facts.script is not None or facts.samples is None:
        return None
    settings, sizes = found.settings, found.inspection.sizes
    gpu = facts.device == "cuda" and inventory.gpus
    limit = inventory.gpus[0].memory_total if gpu else inventory.memory.limit
    sharing = 1 if gpu else settings.processes
    own, most = settings.batch_size, facts.samples // settings.processes
    each = memory.sample_bytes(sizes, own)
    longer = int(own * CHECK_SECONDS / max(found.inspection.step_seconds, 1e-6))
    tried = min(longer, most, memory.largest(sizes, own, each, sharing, limit) // sharing)
    peak = _peak(bench, settings.but(batch_size=tried)) if tried >= LEAST_GROWTH * own else 0
    if peak:
        each = memory.refined(sizes, own, tried, peak)
    fits = memory.largest(sizes, own, each, sharing, limit) // sharing * settings.processes
    samples = min(fits, facts.samples)
    ran = tried * settings.processes if peak else 0
    return LargestBatch(samples, fits >= facts.samples, ran, peak * sharing)


def _peak(bench: TrialBench, settings: Settings) -> int:
    """Peak bytes of a process that trains with ``settings``; 0 where it did not come to that."""
    outcome = bench.measure(settings, float("inf"), float("inf"))
    return outcome.measurement.peak_memory if isinstance(outcome, Completed) and outcome.measurement else 0


def _plain(found: Diagnosis) -> Mapping[str, object]:
    """Plain data for JSON."""
    inspection = asdict(found.inspection)
    inspection.pop("operators")
    return {
        "sentence": found.verdict.sentence,
        "shares": dict(found.verdict.shares),
        "rate": found.rate,
        "unit": found.unit,
        "settings": found.settings.as_dict(),
        "bounds": {part: gain.as_dict() for part, gain in found.bounds.items()},
        "used": dict(found.used),
        "largest_batch": asdict(found.largest_batch) if found.largest_batch else None,
        "notes": list(found.notes),
        "inspection": inspection,
    }
