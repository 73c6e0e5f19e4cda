"""Decide by a trial if several processes of an unmodified script share the work of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.knobs.backend import BACKENDS
from autotune.knobs.task_facts import LeftOut, TaskFacts
from autotune.trial.messages import RankEvidence
from autotune.trial.parent.judge import TrialEnd, judge

OTHER_GRADIENTS = 1.5
"""Gradients of several ranks may be this many times as large as those of one process, or as small: their samples
differ. Gradients that are summed instead of averaged differ by the number of ranks."""
FEW_BATCHES = 4
"""From as many batches in an epoch on, ranks may have one more or less: the last batch is a ragged one."""
STARTED = "two processes started as torchrun does: "
OWN_BACKEND = "the script makes its process group itself, with gloo"

OWN_NUMBER = "your launch line says how many processes there are"
MEASURED_ALONE = "your launch line starts {} processes, but what was measured is one: {}"
UNDER_MPI = "trials do not start processes by mpiexec yet"

Recorded = Sequence[RankEvidence] | TrialEnd
"""Evidence of all ranks of a trial in their order, or its end if not all of them came to train."""


def why_not_own(ranks: Sequence[RankEvidence]) -> str | None:
    """Return why ``ranks``, as the user starts them, are no baseline; None if they train together."""
    found = _apart(ranks)
    if found is None and len({rank.samples for rank in ranks}) > 1:
        found = "their batches differ in length"
    return found


def as_launched(facts: TaskFacts, ranks: Sequence[RankEvidence]) -> TaskFacts:
    """Return the ``facts`` of a script for the ``ranks`` that the user's launch line starts."""
    current = {**facts.current, "processes": len(ranks), "batch_size": sum(rank.samples for rank in ranks)}
    return _of_ranks(replace(facts, current=current, why_not_several=OWN_NUMBER), ranks)


def why_not_shared(alone: RankEvidence, ranks: Sequence[RankEvidence]) -> str | None:
    """Return why all ``ranks`` of a script, whose loaders were given their share of the batch, do not train together as
    one process does ``alone``; None if they do."""
    found = _apart(ranks) or _other_work(alone, ranks) or _other_steps(alone, ranks)
    return None if found is None else STARTED + found


def _apart(ranks: Sequence[RankEvidence]) -> str | None:
    """Return why the ranks do not train together."""
    if any(rank.world != len(ranks) for rank in ranks):
        return f"the script makes no process group of them{_advice(ranks)}, so each trains on its own"
    if not all(rank.changed for rank in ranks):
        return "no weight changes in the first steps, so nothing shows whether gradients are exchanged"
    if len({rank.weights for rank in ranks}) > 1:
        return "the weights of the ranks differ after a step, so each trains on its own"
    if any(rank.backend != "gloo" for rank in ranks):
        return f"the script's process group exchanges over {ranks[0].backend}; gloo is known to work"
    return None


def _other_work(alone: RankEvidence, ranks: Sequence[RankEvidence]) -> str | None:
    """Return why the ranks do not share the work of one process."""
    if len({batch for rank in ranks for batch in rank.batches}) < sum(len(rank.batches) for rank in ranks):
        return f"the ranks train on the same batches{_advice(ranks)}, so they do the same work"
    share = alone.samples // len(ranks)
    other = next((rank for rank in ranks if rank.samples != share), None)
    if other is not None:
        return f"a rank takes batches of {other.samples} samples, but its share of {alone.samples} is {share}"
    own = alone.epoch
    allowed = 1 if own is not None and own >= FEW_BATCHES else 0
    if own is None or any(rank.epoch is None or abs(rank.epoch - own) > allowed for rank in ranks):
        return f"an epoch of a rank has {ranks[0].epoch} batches, and that of one process has {own}"
    return None


def _other_steps(alone: RankEvidence, ranks: Sequence[RankEvidence]) -> str | None:
    """Return why a step of the ranks is not that of one process."""
    for rank in ranks:
        if rank.batches_per_step != alone.batches_per_step:
            return (
                f"an optimizer step takes {rank.batches_per_step:g} batches of a rank, and"
                f" {alone.batches_per_step:g} of one process"
            )
        if rank.schedules != alone.schedules:
            return "learning rate schedulers step more or less often than in one process"
        if rank.options != alone.options:
            return f"the optimizer's options differ from those of one process: {_difference(rank, alone)}"
        ratio = rank.gradient / alone.gradient if alone.gradient > 0 else math.inf
        if not 1 / OTHER_GRADIENTS <= ratio <= OTHER_GRADIENTS:
            return (
                f"gradients are {ratio:.2g} times as large as in one process, so the ranks do not average a mean over"
                " samples"
            )
    return None


def _advice(ranks: Sequence[RankEvidence]) -> str:
    return f" ({ranks[0].advice})" if ranks[0].advice else ""


def _difference(rank: RankEvidence, alone: RankEvidence) -> str:
    """Return the first option that differs, as ``lr 0.002, not 0.001``."""
    for theirs, own in zip(rank.options, alone.options, strict=False):
        for name in (*own, *theirs):
            if theirs.get(name) != own.get(name):
                return f"{name} {theirs.get(name)}, not {own.get(name)}"
    return "another number of parameter groups"


def shown(facts: TaskFacts, record: Callable[[int], Recorded]) -> TaskFacts:
    """Return ``facts`` with the reason why several processes are not offered, after a trial with one and one with two:
    ``record`` runs the script as so many."""
    alone = record(1)
    if isinstance(alone, TrialEnd):
        return replace(facts, why_not_several=f"as one process: {_reason(alone)}")
    both = record(2)
    if isinstance(both, TrialEnd):
        return replace(facts, why_not_several=STARTED + _reason(both))
    reason = why_not_shared(alone[0], both)
    return _of_ranks(facts, both) if reason is None else replace(facts, why_not_several=reason)


def _of_ranks(facts: TaskFacts, ranks: Sequence[RankEvidence]) -> TaskFacts:
    """Return ``facts`` with the backend and the loaders of several ``ranks``."""
    others = tuple(LeftOut("backend", name, OWN_BACKEND) for name in BACKENDS if name != "gloo")
    compared = facts.compared
    for rank in ranks:  # their sampler may be another one than that of one process
        compared = compared.with_one("loaders", rank.loader) if rank.loader else compared
    return replace(facts, left_out=(*facts.left_out, *others), compared=compared)


def _reason(end: TrialEnd) -> str:
    """Return why a trial ended before all its ranks had trained."""
    if end.report is None and end.timed_out is not None:
        return f"not all of them had trained after {end.seconds:.0f} s"
    return judge(end).reason
