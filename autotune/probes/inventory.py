"""All probes together: `probe` for the facts, `to_json` and `from_json` to show and keep them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from autotune.probes import budget, cpu, gpu, limits, memory, network, power, software, storage
from autotune.probes.facts import Cpu, CpuBudget, Gpu, Inventory, LogicalCpu, Memory, ResourceLimits, Software, Storage
from autotune.probes.system import System

T = TypeVar("T")
_PRIVATE = {(Gpu, "uuid"): ""}
"""Fields that are never written, and their value when read back."""


def probe(system: System | None = None, folder: str | None = None, nvml: Any = None) -> Inventory:
    """Everything about this machine, or a recorded one.

    ``folder`` is where the data lies (default: the current one); ``nvml`` stands in for pynvml.
    Never raises: a probe that fails leaves a note and a conservative value.
    """
    system = system or System()
    notes: list[str] = []

    def ask(name: str, question: Callable[[], T], fallback: T) -> T:
        try:
            return question()
        except Exception as error:  # one probe that fails must not stop the others
            notes.append(
                f"The {name} probe failed ({type(error).__name__}: {error}); a conservative guess is used instead."
            )
            return fallback

    processors = ask("cpu", lambda: cpu.probe(system), _unknown_cpu(system))
    gpus: tuple[Gpu, ...] = ask("gpu", lambda: gpu.probe(system, nvml), ())
    found = Inventory(
        cpu=processors,
        budget=ask("budget", lambda: budget.probe(system, processors), _smallest_budget(processors)),
        memory=ask("memory", lambda: memory.probe(system), _unknown_memory()),
        gpus=gpus,
        limits=ask("limits", lambda: limits.probe(system), ResourceLimits(None, None, None, "unknown")),
        storage=ask("storage", lambda: storage.probe(system, folder), Storage("unknown", "unknown", None)),
        network=ask("network", lambda: network.probe(system), ()),
        software=ask("software", lambda: software.probe(system, gpus), _unknown_software(system)),
    )
    notes += ask("power", lambda: power.probe(system), ())
    return dataclasses.replace(found, notes=(*notes, *gpu.warnings(gpus), *_software_notes(found.software)))


def to_json(inventory: Inventory) -> dict[str, Any]:
    """Plain lists, dictionaries, numbers and strings for ``json.dumps``; GPU uuids are left out."""
    return typing.cast("dict[str, Any]", _encode(inventory))


def from_json(data: object) -> Inventory:
    """The inverse of `to_json` (uuids are empty). ValueError names the invalid field."""
    return typing.cast(Inventory, _decode(Inventory, data, "inventory"))


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if (type(value), field.name) not in _PRIVATE]
        return {name: _encode(getattr(value, name)) for name in names}
    return [_encode(item) for item in value] if isinstance(value, tuple) else value


def _decode(kind: Any, value: Any, where: str) -> Any:
    """``value`` as the annotated type ``kind``: a dataclass, a tuple, an optional, or a plain value."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return None if value is None else _decode(arguments[0], value, where)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _decode_record(kind, value, where)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) == len(value):
            return tuple(
                _decode(k, item, f"{where}[{i}]") for i, (k, item) in enumerate(zip(kinds, value, strict=True))
            )
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{where}: expected {getattr(kind, '__name__', kind)}, found {value!r:.80}")


def _decode_record(kind: Any, value: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(value) - set(hints))
    if unknown:
        raise ValueError(f"{where}: unknown field {unknown[0]!r:.80}")
    private = {name: empty for (owner, name), empty in _PRIVATE.items() if owner is kind}
    known = {name: _decode(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    try:
        return kind(**(known | private))
    except TypeError as error:  # a field without a default is missing
        raise ValueError(f"{where}: {error}") from None


def _software_notes(found: Software) -> tuple[str, ...]:
    if found.torch is None:
        return (found.backends[0].reason,) if found.backends else ()
    if found.compiler is None:
        return (f"torch.compile is not available: {found.compiler_reason}.",)
    return ()


def _unknown_cpu(system: System) -> Cpu:
    ids = sorted(system.affinity() or range(system.cpu_count()))
    logical = tuple(LogicalCpu(id, 0, id, None) for id in ids)
    return Cpu("unknown", "unknown", "unknown", system.machine, (), logical, (), ())


def _smallest_budget(processors: Cpu) -> CpuBudget:
    return CpuBudget(tuple(c.id for c in processors.logical[:1]) or (0,), None, 1, 1, 1, "unknown")


def _unknown_memory() -> Memory:
    return Memory(0, 0, "unknown", 0, 0, None, None, None, None, None)


def _unknown_software(system: System) -> Software:
    return Software("unknown", system.platform, None, None, None, None, None, None, None, None, "unknown")
