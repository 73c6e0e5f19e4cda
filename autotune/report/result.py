"""The result of tuning in words: what each level is worth, and all of it on one screen (80 x 40).

"No gain" and "cannot tell" are results like any other.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import cut
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import BY_NAME, Settings
from autotune.probes.cpu_time import QUIET, Load
from autotune.probes.facts import Inventory
from autotune.profiles.format import FELT_SECONDS, Advice, LevelResult, Profile
from autotune.report import formatting
from autotune.report.formatting import WIDTH, section
from autotune.stats.decide import LevelVerdict
from autotune.tuning.notes import load_note

HEIGHT = 40
NO_GAIN = "no gain: keep your settings"
CANNOT_TELL = "cannot tell: the difference is within the noise, keep your settings"
OWN_SCRIPT = "SCRIPT.py"
"""In lines to copy after a task file, which does not name the script that trains."""
INTERRUPTED = "interrupted: the best found so far, not fully proven"


def verdict(profile: Profile, name: str) -> tuple[str, str]:
    """Return what level ``name`` is worth: ``(headline, detail)``; the detail may be empty."""
    result, lower = profile.levels[name], below(profile, name)
    measured, note = formatting.interval(result.speedup), result.note
    if lower and result.proven:
        return f"nothing beyond {lower} was proven; uses {lower}'s settings", note
    if result.proven:
        return formatting.gain(result.speedup), note
    if result.settings != profile.baseline:  # as an interrupted run saves them
        return f"not proven: {measured}", note
    if not result.speedup.rounds:
        return f"{result.verdict or 'no proven gain'}: keep your settings", note
    headline = CANNOT_TELL if result.speedup.undecided else NO_GAIN
    return headline, "; ".join(filter(None, (measured, note)))


def gains(profile: Profile, name: str) -> bool:
    """Return True if level ``name`` is proven, and more than a lower level repeated."""
    return profile.levels[name].proven and not below(profile, name)


def recommended(profile: Profile) -> str | None:
    """Return the level to recommend: the lowest with the settings of the profile's; None if there is nothing to apply.

    A level that crashed, was never tried or brought nothing is not recommended, even if it is the profile's.
    """
    name = profile.default_level
    if profile.unproven(name) or not (to_apply(profile) and profile.saves_time(name)):
        return None
    return below(profile, name) or name


def to_apply(profile: Profile) -> bool:
    """Return True if the recommended level differs from what the user runs."""
    return profile.level().settings != profile.baseline


def whole_run(profile: Profile) -> str:
    """Return what the recommended level brings the whole run, in words; empty if that is not known."""
    run, step, later = profile.evidence.run, profile.level().speedup.value, profile.level().start_seconds
    is_applied = to_apply(profile) and not profile.unproven(profile.default_level)
    gain = run.speedup(step, later) if run is not None and is_applied else None
    if run is None or gain is None:
        return ""
    share, before, after = run.other_share or 0.0, run.seconds(), run.seconds(step, later)
    if before is None or after is None or run.steps is None:
        return f"about {formatting.times(gain)} from epoch to epoch: {share:.0%} of it is evaluation and the like"
    steps = run.steps * run.step_seconds
    rest = f"{formatting.duration(run.start_seconds)} until it trains"
    if run.other_share is not None:
        rest += f", {formatting.duration(before - run.start_seconds - steps)} evaluation and the like"
    found = f"about {formatting.times(gain)}: {formatting.duration(before)} -> {formatting.duration(after)} ({rest})"
    return found if steps >= before / 2 else f"most of it is not training; {found}"


def start(profile: Profile) -> str:
    """Return how much later training begins at the recommended level, in words; empty if nobody would feel it."""
    later = profile.level().start_seconds
    return f"the first step is made {later:.1f} s later than with your settings" if later >= FELT_SECONDS else ""


def memory(profile: Profile) -> str:
    """Return the most that trials of each level's settings held, in words; empty if it was not measured."""
    found = []
    for name, result in profile.levels.items():
        if result.memory and not below(profile, name):
            gpu = f" and {formatting.size(result.gpu_memory)} of each GPU" if result.gpu_memory else ""
            found.append(f"{formatting.size(result.memory)}{gpu} at {name}")
    return ", ".join(found)


def below(profile: Profile, name: str) -> str:
    """Return the lowest level below ``name`` with the same settings; empty if there is none."""
    settings = profile.levels[name].settings
    lower = (each for each in LEVELS[name].below if each in profile.levels)
    return next((each for each in lower if profile.levels[each].settings == settings), "")


def changed(settings: Settings, baseline: Settings) -> list[tuple[str, Any, Any, str]]:
    """Return ``(knob, before, after, why)`` for every knob that differs, in the knob table's order."""
    moved = [(BY_NAME[name], before, after) for name, (after, before) in settings.difference(baseline).items()]
    found = [(knob.name, before, after, knob.reason(before, after)) for knob, before, after in moved]
    if settings.processes > 1 and settings.threads < baseline.threads:
        shared = f"{settings.processes} processes share the cores"
        found = [(*row[:3], shared) if row[0] == "threads" else row for row in found]
    return found


def shown_name(knob: str, profile: Profile) -> str:
    """Return the name of a knob in the list of changes. ``batch_size`` is each process's share of the global batch."""
    shares = max(profile.level().settings.processes, profile.baseline.processes) > 1
    return "batch per process" if knob == "batch_size" and shares else knob


def batch_note(profile: Profile, result: LevelResult) -> str:
    """Return what a changed global batch means for the training; empty if the batch is the user's own.

    The rules of thumb: learning rate times the square root of the batch's factor for Adam kinds (Malladi et al. 2022),
    times the factor for SGD (Goyal et al. 2017).
    """
    before, after = profile.baseline.global_batch, result.settings.global_batch
    if before == after:
        return ""
    factor, samples = after / before, profile.target.samples
    faster = formatting.times(result.rate / profile.baseline_rate) if profile.baseline_rate else "more"
    progress = f"{faster} {profile.target.unit}, at least {formatting.times(result.speedup.value)} progress to a loss"
    if profile.evidence.noise_scale is None:
        progress = f"{faster} {profile.target.unit}; how much of it is progress to a loss was not measured"
    steps = f", {math.ceil(samples / before)} -> {math.ceil(samples / after)} steps per epoch" if samples else ""
    return (
        f"{progress}. The global batch goes from {before} to {after}{steps}. Adapt the learning rate:"
        f" try {formatting.number(math.sqrt(factor))} times yours for Adam kinds (sqrt rule),"
        f" {formatting.number(factor)} times for SGD (linear rule), with warm-up."
    )


# The screen -----------------------------------------------------------------------------------------------------------


def text(profile: Profile, inventory: Inventory, path: Path, load: Load = QUIET, *, script: str = OWN_SCRIPT) -> str:
    """Return the whole result as plain text. Only the lines to copy may be wider than 80 columns.

    The ``load`` has other processes with their names; ``script`` is how the user's script is started, without Python.
    """
    machine, apply, lines = _machine(inventory), apply_lines(profile, path, script), list[str]()
    if not any(str(path) in line for line in apply):
        apply.append(f"Profile   {path}")
    for most in (3, 2, 1):  # all of it if it fits the screen, else less
        shown = view(profile, machine, _changes(profile, 6 * most), load=load_note(load, names=True), most=most)
        lines = [*shown, *apply]
        if len(lines) <= HEIGHT:
            break
    return "\n".join(lines)


def view(
    profile: Profile, measured_on: Sequence[str], knobs: Sequence[str], *, load: str = "", most: int | None = None
) -> list[str]:
    """Return the lines that every view of a profile has; ``most`` details of a kind, or all if None.

    The sentence ``load`` about other processes stands in place of the profile's own.
    """
    title = [f"{profile.target.name} on {profile.key} ({cost(profile)})"]
    highest = list(profile.levels)[-1]
    note = batch_note(profile, profile.levels[highest])
    return [
        *section("autotune", [*title, *([INTERRUPTED] if profile.evidence.partial else [])], 2),
        *section("Load", [load or profile.evidence.load], 3),
        *measured_on,
        *section("Baseline", [baseline(profile)]),
        "",
        *_levels(profile, most),
        *section("Whole run", [whole_run(profile)]),
        *section("Start", [start(profile)]),
        *section("Memory", [memory(profile)]),
        *knobs,
        *(["", *textwrap.wrap(f"Level {highest}: {note}", WIDTH)] if note else []),
        "",
        *(line for name, lines in details(profile, most).items() for line in section(name, lines, most)),
    ]


def cost(profile: Profile) -> str:
    """Return how many trials tuning took, and how long."""
    return f"{formatting.count(profile.evidence.trials, 'trial')}, {formatting.duration(profile.evidence.seconds)}"


def baseline(profile: Profile) -> str:
    """Return the rate and settings of the baseline. A script without a loader has no workers and no batch to show."""
    settings = formatting.summary(profile.baseline, loader=profile.target.script in (None, "batches"))
    return f"{formatting.rate(profile.baseline_rate, profile.target.unit)} with {settings}"


def details(profile: Profile, most: int | None = None) -> dict[str, list[str]]:
    """Return what was not tried and why, what failed, and the notes; ``most`` of each, or all if None."""
    evidence = profile.evidence
    left_out = ((f"{item.knob} {formatting.value(item.value)}", item.reason) for item in evidence.not_offered)
    failed = Counter(f"{item.kind}: {item.reason}".rstrip(": ") for item in evidence.failures).most_common()
    return {
        "Advice": [advised(each) for each in evidence.advice],
        "Left out": groups(left_out, most),
        "Failed": _first([f"{count} x {what}" for what, count in failed], most),
        "Note": list(evidence.warnings[:most]),
    }


def advised(advice: Advice) -> str:
    """Return what to change in the user's code, and what that brings."""
    words = formatting.words(advice.knob, advice.value)
    return f"{words} in place of {advice.instead_of}: {formatting.gain(advice.speedup)}. Then tune again"


def groups(pairs: Iterable[tuple[str, str]], most: int | None = None) -> list[str]:
    """Return the first ``most`` of lines ``what, what: reason``: pairs ``(what, reason)`` of one reason are joined."""
    by_reason: dict[str, dict[str, None]] = {}
    for what, reason in pairs:
        by_reason.setdefault(reason, {})[what] = None
    return _first([f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()], most)


def _first(reasons: list[str], most: int | None) -> list[str]:
    rest = len(reasons[most:]) if most is not None else 0
    return [*reasons[:most], f"and {formatting.count(rest, 'more reason')} (autotune show)"] if rest else reasons


def _machine(inventory: Inventory) -> list[str]:
    budget, gpus = inventory.budget, Counter(gpu.name for gpu in inventory.gpus)
    parts = [
        f"CPU budget: {formatting.count(budget.threads, 'thread')} on {formatting.count(budget.cores, 'core')}",
        formatting.size(inventory.memory.limit),
        *(name if count == 1 else f"{name} x {count}" for name, count in gpus.items()),
    ]
    return section("Machine", [", ".join(parts), f"the limit that counts: {budget.limit}"], 1)


def _levels(profile: Profile, most: int | None) -> list[str]:
    best = recommended(profile)
    if all(result.settings == profile.baseline for result in profile.levels.values()):  # once, not for each level
        return section("Result", [*_no_gain(profile)], most)
    lines = ["Level (* recommended)" if best else "Level"]
    for name, result in profile.levels.items():
        headline, detail = verdict(profile, name)
        rate = formatting.rate(result.rate, profile.target.unit) if gains(profile, name) else ""
        first = f"{'*' if name == best else ' '} {name:<7} {headline}"
        if len(f"{first}  {rate}") <= WIDTH:
            first, rate = f"{first}  {rate}", ""
        lines.append(cut(first.rstrip(), WIDTH))
        lines += formatting.wrapped("; ".join(filter(None, (rate, detail))), most)
    return lines


def _no_gain(profile: Profile) -> Iterator[str]:
    """Yield the answer of a run in which no level gains, and why: by a level that cannot tell, else by the lowest."""
    levels = profile.levels
    unclear = (name for name, own in levels.items() if own.speedup.undecided or own.verdict == LevelVerdict.CANNOT_TELL)
    name = next(unclear, next(iter(levels)))
    yield from filter(None, verdict(profile, name))


def _changes(profile: Profile, most: int) -> list[str]:
    level = recommended(profile)
    if level is None:
        return []
    rows = [
        (shown_name(knob, profile), f"{formatting.value(before)} -> {formatting.value(after)}", reason)
        for knob, before, after, reason in changed(profile.level().settings, profile.baseline)
    ]
    wide = max(len(move) for _knob, move, _reason in rows)
    lines = [f"  {knob:<18} {move:<{wide}}  {reason}" for knob, move, reason in rows[:most]]
    if rows[most:]:
        lines.append(f"  also (autotune show): {', '.join(knob for knob, _move, _reason in rows[most:])}")
    return ["", f"Changes at level {level}, and why", *(cut(line, WIDTH) for line in lines)]


def apply_lines(profile: Profile, path: Path, script: str) -> list[str]:
    """Return lines to copy that apply the recommended level; none if nothing gains."""
    level, felt = profile.default_level, profile.saves_time(profile.default_level)
    with_profile = f"--profile {shlex.quote(str(path))} {script}"
    if not to_apply(profile):
        higher = next((name for name in profile.levels if gains(profile, name)), None)
        if higher is None:
            return []
        below = "".join(f"No gain at level {name}. " for name in LEVELS[higher].below[-1:])
        words = f"{below}To use {higher} anyway:"
        return [*section("Apply", [words]), f"  autotune run --level {higher} {with_profile}"]
    if why := profile.unproven(level):
        return section("Apply", [f"nothing: {why}"])
    start = f"  autotune run {'' if felt else f'--level {level} '}{with_profile}"
    if not felt:
        seconds = profile.saved_seconds(level)
        little = "" if seconds is None else f" ({max(0.0, seconds):.1f} s)"
        return [*section("Apply", [f"nothing: it saves too little to feel{little}. All the same:"]), start]
    if profile.target.script is not None:
        return ["Apply", start]
    settings = profile.level().settings
    how = " (which the line above starts)" if settings.processes > 1 or settings.binding != "none" else ""
    return [
        "Apply",
        start,
        f"or in the script{how}",
        f"  tuned = autotune.load({str(path)!r})",
        "  model, optimizer, loader = tuned.prepare(model, optimizer, loader)",
    ]
