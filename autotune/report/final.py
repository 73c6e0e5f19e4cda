"""The result on one screen (80 x 40): budget, baseline, gains, what changes and why, what is left out, how to apply."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

from autotune.knobs.settings import Settings
from autotune.lines import cut
from autotune.probes.facts import Inventory
from autotune.profiles.format import Profile
from autotune.report import formatting
from autotune.report.levels import (
    HEADLINES,
    Standing,
    batch_note,
    changed,
    recommended,
    standing,
    to_apply,
    verdict,
    whole_run,
)
from autotune.report.notes import load_named
from autotune.stats.load import QUIET, Load

HEIGHT = 40
MAX_GROUPS = 3
LIMITS = ((16, MAX_GROUPS, 3), (9, MAX_GROUPS, 2), (9, 1, 2), (6, 1, 1))
"""Changed knobs, details, and lines of a detail shown: all of them if they fit the screen, else fewer."""


def text(profile: Profile, inventory: Inventory, path: Path, load: Load = QUIET, *, script: str = "train.py") -> str:
    """Return the whole result as plain text. Only the lines to copy may be wider than 80 columns.

    Args:
        profile: the result.
        inventory: this machine.
        path: of the profile.
        load: other processes that ran meanwhile, with their names.
        script: how the user's script is started, without Python.
    """
    apply, lines = apply_lines(profile, path, script), list[str]()
    for limits in LIMITS:
        lines = _lines(profile, inventory, load, apply, *limits)
        if len(lines) <= HEIGHT:
            break
    return "\n".join(line.rstrip() for line in lines)


def groups(pairs: Iterable[tuple[str, str]], most: int = MAX_GROUPS) -> list[str]:
    """Return the first ``most`` of lines ``what, what: reason``: pairs ``(what, reason)`` of one reason are joined."""
    by_reason: dict[str, list[str]] = {}
    for what, reason in pairs:
        names = by_reason.setdefault(reason, [])
        if what not in names:
            names.append(what)
    lines = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], f"and {formatting.count(rest, 'more reason')} (autotune show)"]


def failure_groups(profile: Profile, most: int = MAX_GROUPS) -> list[str]:
    """Return ``3 x out-of-memory: reason``, most frequent first."""
    counts: dict[tuple[str, str], int] = {}
    for failure in profile.evidence.failures:
        counts[failure.kind, failure.reason] = counts.get((failure.kind, failure.reason), 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    lines = [f"{count} x {kind}{f': {reason}' if reason else ''}" for (kind, reason), count in ranked[:most]]
    rest = sum(count for _what, count in ranked[most:])
    return lines if not rest else [*lines, f"and {rest} more (autotune show)"]


def not_offered_groups(profile: Profile, most: int = MAX_GROUPS) -> list[str]:
    """Return what was not tried, grouped by reason."""
    pairs = [(f"{item.knob} {formatting.value(item.value)}", item.reason) for item in profile.evidence.not_offered]
    return groups(pairs, most)


def _lines(
    profile: Profile, inventory: Inventory, load: Load, apply: list[str], changes: int, details: int, deep: int
) -> list[str]:
    notes, beside = profile.evidence.warnings, load_named(load) or profile.evidence.beside
    run = whole_run(profile)
    parts = (
        _title(profile),
        formatting.section("Beside", [beside] if beside else [], 3),
        _machine(inventory),
        _baseline(profile),
        [""],
        _levels(profile, deep),
        formatting.section("Whole run", [run] if run else [], 2),
        _changes(profile, changes),
        _batch(profile),
        [""],
        formatting.section("Left out", not_offered_groups(profile, details), deep),
        formatting.section("Failed", failure_groups(profile, details), deep),
        formatting.section("Note", notes[:details], deep),
        apply,
    )
    return [line for part in parts for line in part]


def _title(profile: Profile) -> list[str]:
    evidence = profile.evidence
    cost = f"{formatting.count(evidence.trials, 'trial')}, {formatting.duration(evidence.seconds)}"
    lines = [_row("autotune", f"{profile.target.name} on {profile.key} ({cost})")]
    if evidence.partial:
        lines.append(_row("", "interrupted: the best found so far, not fully proven"))
    return lines


def _machine(inventory: Inventory) -> list[str]:
    budget = inventory.budget
    cores = formatting.count(budget.cores, "core")
    parts = [f"{formatting.count(budget.threads, 'busy thread')} on {cores}", formatting.size(inventory.memory.limit)]
    parts += [gpu.name for gpu in inventory.gpus[:1]]
    if len(inventory.gpus) > 1:
        parts[-1] += f" x {len(inventory.gpus)}"
    return [_row("Machine", ", ".join(parts)), _row("", f"the limit that counts: {budget.limit}")]


def _baseline(profile: Profile) -> list[str]:
    rate = formatting.rate(profile.baseline_rate, profile.target.unit)
    return [_row("Baseline", f"{rate} with {own_settings(profile)}")]


def own_settings(profile: Profile) -> str:
    """Return the baseline in words. A script without a loader has no workers and no batch to speak of."""
    return formatting.summary(profile.baseline, loader=profile.target.script in (None, "batches"))


def _levels(profile: Profile, deep: int) -> list[str]:
    best = recommended(profile)
    lines = ["Level (* recommended)" if best else "Level"]
    for name, result in profile.levels.items():
        headline, detail = verdict(profile, name)
        mark = "*" if name == best else " "
        rate = formatting.rate(result.rate, profile.target.unit) if standing(profile, name) is Standing.GAIN else ""
        first = f"{mark} {name:<7} {headline}"
        if len(f"{first}  {rate}") <= formatting.WIDTH:
            first, rate = f"{first}  {rate}", ""
        lines.append(cut(first, formatting.WIDTH))
        lines += formatting.wrapped("; ".join(filter(None, (rate, detail))), deep)
    return lines


def _changes(profile: Profile, most: int) -> list[str]:
    if recommended(profile) is None:
        return []
    rows = [
        (knob, f"{formatting.value(before)} -> {formatting.value(after)}", reason)
        for knob, before, after, reason in changed(profile.level().settings, profile.baseline)
    ]
    wide = max(len(move) for _knob, move, _reason in rows)
    lines = ["", f"Changes at level {recommended(profile)}, and why"]
    lines += [cut(f"  {knob:<18} {move:<{wide}}  {reason}", formatting.WIDTH) for knob, move, reason in rows[:most]]
    if rows[most:]:
        lines.append(
            cut(f"  also (autotune show): {', '.join(knob for knob, _move, _reason in rows[most:])}", formatting.WIDTH)
        )
    return lines


def _batch(profile: Profile) -> list[str]:
    """Return the note on the batch: it is part of the offer even if another level is recommended."""
    note = batch_note(profile, profile.levels["max"])
    return ["", *textwrap.wrap(f"Level max: {note}", formatting.WIDTH)] if note else []


def apply_lines(profile: Profile, path: Path, script: str) -> list[str]:
    """Return lines to copy that apply the recommended level."""
    if not to_apply(profile):
        settled = standing(profile, profile.recommended) is Standing.NO_GAIN
        return [_row("Apply", f"nothing to apply, {HEADLINES[Standing.NO_GAIN]}" if settled else "nothing to apply")]
    if standing(profile, profile.recommended) is Standing.DOUBTED:
        return [_row("Apply", "nothing: do not believe the gain; measure again when it is quiet")]
    settings, start = profile.level().settings, f"  autotune run --profile {shlex.quote(str(path))} {script}"
    if not profile.is_felt(profile.recommended):
        saved = max(0.0, profile.saved_seconds(profile.recommended) or 0.0)
        longer = start.replace("run ", f"run --level {profile.recommended} ", 1)
        return [_row("Apply", f"nothing: this run is too short to gain ({saved:.1f} s). For a longer one:"), longer]
    if profile.target.script is not None:
        return ["Apply", start]
    lines = [
        "Apply",
        start,
        "or in the script" + _started_with(settings),
        f"  tuned = autotune.load({str(path)!r})",
        "  model, optimizer, loader = tuned.prepare(model, optimizer, loader)",
    ]
    if settings.processes > 1 and settings.binding == "none":
        run = f"torchrun --standalone --nproc-per-node={settings.processes} train.py"
        lines.append(f"  OMP_NUM_THREADS={settings.threads} {run}")
    return lines


def _started_with(settings: Settings) -> str:
    """Return how a script that applies the profile itself must be started, if that matters."""
    if settings.binding != "none":
        return " (then start it with autotune run, which binds it)"
    return " (then start it with the last line)" if settings.processes > 1 else ""


def _row(name: str, words: str) -> str:
    return cut(f"{name:<9} {words}", formatting.WIDTH)
