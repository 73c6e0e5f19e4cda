"""The targets, and the text of a profile for one of them. Every knob is expressed, or named with the reason."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.errors import UsageError
from autotune.export.accelerate import ACCELERATE
from autotune.export.lightning import LIGHTNING
from autotune.export.plain import idle, in_python
from autotune.export.shell import ENV, TORCHRUN
from autotune.export.target import Line, Missing, Plan, Target
from autotune.export.transformers import TRANSFORMERS
from autotune.knobs.knob import Knob
from autotune.knobs.table import KNOBS
from autotune.near import did_you_mean

TARGETS: dict[str, Target] = {target.name: target for target in (ENV, TORCHRUN, ACCELERATE, LIGHTNING, TRANSFORMERS)}


def target_of(name: str) -> Target:
    """The target called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name in TARGETS:
        return TARGETS[name]
    hint = did_you_mean(name.lower(), TARGETS)
    raise UsageError(f"--to {name}: no such target; targets are {', '.join(TARGETS)}{hint}")


def text(target: Target, plan: Plan, head: Iterable[str]) -> str:
    """What to paste, with comments around it.

    Args:
        target: what it is for.
        plan: what is exported.
        head: lines that stand first, as comments.
    """
    lines: dict[str, list[str]] = {}
    by_hand: list[str] = []
    nothing: list[str] = []
    for knob in KNOBS:
        said = _said(knob, target, plan)
        for one in said:
            if isinstance(one, Line):
                lines.setdefault(one.place, []).append(one.text)
            else:
                value = getattr(plan.settings, knob.name)
                by_hand.append(f"{knob.name}={value}: {one.reason or in_python(knob.name, plan)}")
        nothing += [] if said else [knob.name]
    return "\n".join(
        [
            *(f"# {words}" for words in head),
            *target.layout(plan, lines),
            *_listed(f"# Not in {target.what}, so by hand:", by_hand),
            *([f"# As PyTorch does by itself: {', '.join(nothing)}"] if nothing else []),
        ]
    )


def _said(knob: Knob, target: Target, plan: Plan) -> tuple[Line | Missing, ...]:
    row = target.rows.get(knob.name)
    if row is not None:
        return row(plan)
    return () if idle(knob, plan) else (Missing(),)


def _listed(title: str, items: list[str]) -> list[str]:
    return [title, *(f"#   {item}" for item in items)] if items else []
