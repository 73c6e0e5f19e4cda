"""Whether several processes of an unmodified script train together: shown by a trial, or refused with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.knobs.backend import BACKENDS
from autotune.knobs.task import TaskFacts
from autotune.trial.evidence import STARTED, RankEvidence, why_not_shared
from autotune.trial.parent.judge import TrialEnd, how_it_ended, short

OWN_BACKEND = "the script makes its process group itself, with gloo"


@dataclass(frozen=True)
class Witnessed:
    """What the ranks of a trial have shown.

    Attributes:
        ranks: evidence of each that came to train.
        end: how the trial ended; None where all ranks came to train.
    """

    ranks: tuple[RankEvidence, ...]
    end: TrialEnd | None = None


def shown(facts: TaskFacts, witness: Callable[[int], Witnessed]) -> TaskFacts:
    """``facts`` with whether several processes are offered, after a trial with one and one with two.

    Args:
        facts: of the script as one process.
        witness: runs it as so many processes.
    """
    alone = witness(1)
    if alone.end is not None:
        return replace(facts, why_not_several=f"as one process: {_reason(alone.end)}")
    both = witness(2)
    reason = why_not_shared(alone.ranks[0], both.ranks) if both.end is None else STARTED + _reason(both.end)
    if reason is not None:
        return replace(facts, why_not_several=reason)
    others = tuple(("backend", name, OWN_BACKEND) for name in BACKENDS if name != "gloo")
    return replace(facts, left_out=(*facts.left_out, *others))


def _reason(end: TrialEnd) -> str:
    """Why a trial ended before all its ranks had trained."""
    if end.report is not None and end.report.error_type is not None:
        return f"{end.report.error_type}: {short(end.report.error or '')}"
    if end.timed_out is not None:
        return f"not all of them had trained after {end.seconds:.0f} s"
    return how_it_ended(end).reason
