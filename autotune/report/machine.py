"""``autotune probe``: what this machine is, which limit won, what is missing and why it matters."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from autotune.probes.facts import Gpu, Inventory
from autotune.profiles.format import machine_type
from autotune.report import formatting

Rows = list[tuple[str, str]]


def text(inventory: Inventory) -> str:
    """Return one group of rows per part of the machine, as plain text of 80 columns; hints start with ``->``."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), width=formatting.WIDTH)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, rows_of in SECTIONS:
        for index, (name, words) in enumerate(rows_of(inventory)):
            table.add_row(title if index == 0 else "", name, Text(words))
    return formatting.plain(table)


def _machine(inventory: Inventory) -> Rows:
    return [("key", machine_type(inventory).key)]


def _cpu(inventory: Inventory) -> Rows:
    cpu = inventory.cpu
    shape = (
        f"{formatting.count(cpu.packages, 'socket')}, {formatting.count(cpu.cores, 'core')}, {len(cpu.logical)} CPUs"
    )
    kinds = {kind: sum(c.kind == kind for c in cpu.logical) for kind in ("performance", "efficiency")}
    if any(kinds.values()):
        shape += f" ({kinds['performance']} performance, {kinds['efficiency']} efficiency)"
    rows = [("model", cpu.model), ("shape", f"{shape}, {cpu.architecture}, {cpu.family}")]
    rows.append(("NUMA nodes", str(len(cpu.nodes)) if cpu.nodes else "unknown"))
    return [*rows, ("instructions", ", ".join(cpu.features) or "unknown")]


def _budget(inventory: Inventory) -> Rows:
    budget = inventory.budget
    rows = [("threads", f"{budget.threads} busy threads fit, on {formatting.count(budget.cores, 'core')}")]
    if budget.performance_cores != budget.cores:
        rows.append(("", f"{formatting.count(budget.performance_cores, 'performance core')} among them"))
    return [*rows, ("limit", budget.limit)]


def _memory(inventory: Inventory) -> Rows:
    memory = inventory.memory
    free, total = formatting.size(memory.shm_free), formatting.size(memory.shm_total)
    return [
        ("limit", f"{formatting.size(memory.limit)} ({memory.limit_source})"),
        ("available", f"{formatting.size(memory.available)} of {formatting.size(memory.total)}"),
        ("/dev/shm", f"{free} free of {total}" if memory.shm_total is not None else "none"),
        ("huge pages", f"transparent: {memory.transparent_hugepages or 'unknown'}"),
    ]


def _gpus(inventory: Inventory) -> Rows:
    if not inventory.gpus:
        return [("none", "training runs on the CPU")]
    rows: Rows = []
    for gpu in inventory.gpus:
        rows.append((f"GPU {gpu.index}", _gpu(gpu)))
        if gpu.foreign_processes:
            rows.append(("", f"-> other processes on it ({gpu.foreign_processes}): timings will be uneven"))
        if gpu.clocks_throttled:
            rows.append(("", f"-> clocks held back: {', '.join(gpu.clocks_throttled)}"))
    return rows


def _gpu(gpu: Gpu) -> str:
    memory = f"{formatting.size(gpu.memory_free)} free of {formatting.size(gpu.memory_total)}"
    links = sorted(set(gpu.links))
    parts = [gpu.name + (" (MIG slice)" if gpu.mig else ""), memory, "capability {}.{}".format(*gpu.capability)]
    return ", ".join(parts + ([f"links: {', '.join(links)}"] if links else []))


def _limits(inventory: Inventory) -> Rows:
    limits = inventory.limits
    most = "unlimited" if limits.processes is None else f"{limits.processes} ({limits.processes_source})"
    return [("processes", most)]


def _software(inventory: Inventory) -> Rows:
    software = inventory.software
    compiler = software.compiler or f"none: {software.compiler_reason or 'unknown why'}"
    allocators = ", ".join(allocator.name for allocator in software.allocators) or "only the system's"
    threads, interop = (n or "unknown" for n in (software.default_threads, software.default_interop_threads))
    rows = [
        ("PyTorch", f"{software.torch or 'not installed'} (Python {software.python}, CUDA {software.cuda or 'none'})"),
        ("default", f"{threads} threads, {interop} inter-op, start method {software.start_method}"),
        ("compiler", compiler),
        ("allocators", allocators),
    ]
    return rows + [("set by you", f"{name}={value}") for name, value in software.environment]


def _backends(inventory: Inventory) -> Rows:
    rows = [(b.name, "usable" if b.usable else f"no: {b.reason}") for b in inventory.software.backends]
    return rows or [("none", "torch.distributed was not found")]


def _notes(inventory: Inventory) -> Rows:
    return [("", note) for note in inventory.notes]


SECTIONS: tuple[tuple[str, Callable[[Inventory], Rows]], ...] = (
    ("Machine", _machine),
    ("CPU", _cpu),
    ("Budget", _budget),
    ("Memory", _memory),
    ("GPUs", _gpus),
    ("Limits", _limits),
    ("Software", _software),
    ("Backends", _backends),
    ("Notes", _notes),
)
