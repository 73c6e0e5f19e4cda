"""What people state: ``CURRENT`` of a task file, knobs that they fix with ``--fix``, and their OMP_NUM_THREADS."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any

from autotune import devices
from autotune.errors import ContractError, UsageError, did_you_mean
from autotune.knobs.backend import why_not_usable
from autotune.knobs.binding import why_not_offered
from autotune.knobs.constraints import crowding
from autotune.knobs.knob import Word
from autotune.knobs.level import LEVELS, LOWEST
from autotune.knobs.settings import BY_NAME, KNOB_NAMES, KNOBS, Settings
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.facts import Inventory

DEFAULT_BATCH = 32
"""Global batch if the user states none. Nobody trains with PyTorch's own default of 1."""
LOADER_FACTS = ("persistent_workers",)
"""Keys of ``CURRENT`` about the user's loader that are no knobs."""
IN_USE: dict[str, Any] = {"processes": 2, "num_workers": 1, "threads": 2}
"""Values beside which knobs act that need several processes, workers or threads."""
CROWDING = ("processes", "threads", "num_workers")
"""Knobs that the machine limits, whatever the task."""


def baseline_settings(task: TaskFacts, inventory: Inventory) -> Settings:
    """Return what the user runs today.

    ``CURRENT["batch_size"]`` is the global batch, which the user's loader yields; everything unsaid is what PyTorch
    does by itself on this machine.

    Raises:
        ContractError: ``CURRENT`` contradicts itself, names no knob, or a value that no knob takes.
    """
    check_current(task.current)
    current = {name: value for name, value in task.current.items() if name not in LOADER_FACTS}
    batch = current.pop("batch_size", DEFAULT_BATCH)
    processes = current.get("processes", 1)
    if batch % processes:
        raise ContractError(f'CURRENT["batch_size"] = {batch}: {processes} processes cannot share it equally')
    defaults = {knob.name: knob.pytorch_default(inventory) for knob in KNOBS if knob.pytorch_default is not None}
    defaults["threads"] = max(1, defaults["threads"] // processes)
    device = devices.of(task.device)
    current = {name: value for name, value in current.items() if not BY_NAME[name].idle(device)}
    if processes > 1:
        defaults["backend"] = device.backend
    return Settings(**(defaults | current), batch_size=batch // processes)


def check_current(current: Mapping[str, Any]) -> None:
    """Raise `ContractError` if ``CURRENT`` names no knob, or a value that no knob takes."""
    for name, value in current.items():
        if name in LOADER_FACTS:
            continue
        if name not in KNOB_NAMES:
            raise ContractError(no_knob(f"CURRENT[{name!r}]", name))
        wanted = BY_NAME[name].why_not(value)
        if wanted is not None:
            raise ContractError(f'CURRENT["{name}"] = {value!r}: must be {wanted}')


def written_current(tree: ast.Module) -> dict[str, Any]:
    """Return what ``CURRENT = dict(...)`` or ``{...}`` of a task file says in plain words and numbers."""
    pairs: list[tuple[Any, ast.expr]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(each, "id", "") for each in node.targets] == ["CURRENT"]:
            if isinstance(node.value, ast.Call):
                pairs = [(ast.Constant(each.arg), each.value) for each in node.value.keywords if each.arg]
            elif isinstance(node.value, ast.Dict):
                pairs = [*zip(node.value.keys, node.value.values, strict=True)]
    plain = ast.Constant
    return {str(key.value): own.value for key, own in pairs if isinstance(key, plain) and isinstance(own, plain)}


def own_threads(settings: Settings, environment: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """Return ``settings`` with the user's OMP_NUM_THREADS. torchrun's own default of 1 is not the user's choice."""
    written = environment.get("OMP_NUM_THREADS", "").strip()
    threads = int(written) if written.isascii() and written.isdecimal() else 0
    by_torchrun = threads == 1 and "TORCHELASTIC_RUN_ID" in environment
    if threads in (0, settings.threads) or by_torchrun:
        return settings, ()
    note = f"OMP_NUM_THREADS={written} is kept; the profile would use {settings.threads} threads"
    return settings.but(threads=threads), (note,)


def no_knob(written: str, name: str) -> str:
    """Return the message for a ``name`` that is no knob, quoting what the user has ``written``."""
    hint = did_you_mean(name, KNOB_NAMES) or f"; knobs are: {', '.join(KNOB_NAMES)}"
    return f"{written}: no such knob{hint}"


def read_fixed(texts: Iterable[str]) -> dict[str, Any]:
    """Read ``knob=value`` of each of ``texts``, the value as Python would: whole number, true/false/none, else a word.

    Raises:
        UsageError: there is no ``=``, or one knob has two values.
    """
    fixed: dict[str, Any] = {}
    words = {"true": True, "false": False, "none": None}
    for text in texts:
        name, _equals, value = (part.strip() for part in text.partition("="))
        if not (name and value):
            raise UsageError(f"--fix {text!r}: write knob=value, for example --fix num_workers=2")
        number = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
        found = words.get(value.lower(), number)
        if fixed.setdefault(name, found) != found:
            raise UsageError(f"--fix {name} is given twice, as {fixed[name]} and {found}")
    return fixed


def check_names(names: Iterable[str], option: str) -> None:
    """Raise `UsageError` if one of ``names``, which the user gave to ``option``, is no knob."""
    for name in names:
        if not name:
            raise UsageError(f"{option}: name at least one knob, such as threads")
        if name not in KNOB_NAMES:
            raise UsageError(no_knob(f"{option} {name}", name))


def check_fixed(fixed: Mapping[str, Any], only: Iterable[str] = (), level: str | None = None) -> None:
    """Check fixed knobs against themselves and the user's other options.

    Args:
        fixed: values by knob.
        only: the knobs that may move; all if empty.
        level: the one to recommend.

    Raises:
        UsageError: there is no such knob or value, or another option contradicts it.
    """
    check_names(fixed, "--fix")
    for name, value in fixed.items():
        wanted = BY_NAME[name].why_not(value)
        if wanted is not None:
            kind = BY_NAME[name].kind
            hint = did_you_mean(str(value), map(str, kind.values)) if isinstance(kind, Word) else ""
            raise UsageError(f"--fix {name}={value}: must be {wanted}{hint}")
        if name in only:
            raise UsageError(f"--fix {name}={value} --only {name}: a fixed knob cannot move; give one of the two")
        if value != BY_NAME[name].neutral:
            _check_level(f"--fix {name}={value}", BY_NAME[name].level.name, level)
        if value not in (None, BY_NAME[name].neutral) and getattr(Settings(**(IN_USE | dict(fixed))), name) != value:
            others = " ".join(f"--fix {other}={fixed[other]}" for other in fixed if other != name)
            raise UsageError(f"--fix {name}={value}: it does nothing beside {others}")
    first = min((BY_NAME[name].level.name for name in only), key=[*LEVELS].index, default=LOWEST)
    _check_level(f"--only {','.join(only)}", first, level)


def _check_level(option: str, first: str, level: str | None) -> None:
    """Raise `UsageError` if what ``option`` names moves from level ``first`` on, which is above ``level``."""
    if level in LEVELS[first].below:
        raise UsageError(f"{option} --level {level}: moves from level {first} on; give --level {first}")


def check_fixed_on(inventory: Inventory, fixed: Mapping[str, Any]) -> None:
    """Raise `UsageError` if this machine cannot run what is ``fixed``: no settings could hold it."""
    for name, value in fixed.items():
        why_not = _why_not_here(inventory, name, value)
        if why_not is not None:
            raise UsageError(f"--fix {name}={value}: {why_not}")
    given = {name: fixed[name] for name in CROWDING if name in fixed}
    reason = crowding(Settings(**given), inventory)
    if reason is not None:
        written = " ".join(f"--fix {name}={value}" for name, value in given.items())
        raise UsageError(f"{written}: {reason}. That is oversubscription: nothing would be left to search")


def check_fixed_for(task: TaskFacts, baseline: Settings, fixed: Mapping[str, Any]) -> None:
    """Raise `UsageError` if ``task``, whose own settings are ``baseline``, cannot train with what is ``fixed``."""
    for name, value in fixed.items():
        reason = task.why_left_out(name, value, getattr(baseline, name))
        if reason is not None:
            raise UsageError(f"--fix {name}={value}: {reason}")
    processes = fixed.get("processes", 1)
    if task.why_not_several is not None and processes not in (1, baseline.processes):
        raise UsageError(f"--fix processes={processes}: {task.why_not_several}")


def _why_not_here(inventory: Inventory, name: str, value: Any) -> str | None:
    """Return why this machine cannot have ``value``; None if it can, or if only a trial shows it."""
    knob, software = BY_NAME[name], inventory.software
    if value == knob.neutral:
        return None
    if idle := knob.idle(inventory.device):
        return idle
    if name == "binding":
        return why_not_offered(inventory)[value]
    if name == "backend" and software.backends:
        return why_not_usable(inventory, value)
    if name == "allocator" and value not in {each.name for each in software.allocators}:
        return "library not installed"
    return None
