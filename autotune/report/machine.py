"""``autotune probe``: what this machine is, which limit counts, what is missing and why it matters."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from autotune.probes.facts import Inventory
from autotune.profiles.format import machine_type
from autotune.report.formatting import WIDTH, count, plain, size

Rows = Iterator[tuple[str, str, str]]
"""``(group, name, words)``; hints start with ``->``."""


def text(inventory: Inventory) -> str:
    """Return one group of rows per part of the machine, as plain text of 80 columns."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), width=WIDTH)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    last = ""
    for part in (_processors, _memory, _gpus, _software):
        for group, name, words in part(inventory):
            table.add_row("" if group == last else group, name, Text(words))
            last = group
    return plain(table)


def _processors(inventory: Inventory) -> Rows:
    cpu, budget = inventory.cpu, inventory.budget
    shape = f"{count(cpu.packages, 'socket')}, {count(cpu.cores, 'core')}, {len(cpu.logical)} CPUs"
    kinds = {kind: sum(c.kind == kind for c in cpu.logical) for kind in ("performance", "efficiency")}
    if any(kinds.values()):
        shape += f" ({kinds['performance']} performance, {kinds['efficiency']} efficiency)"
    yield "Machine", "key", machine_type(inventory).key
    yield "CPU", "model", cpu.model
    yield "CPU", "shape", f"{shape}, {cpu.architecture}, {cpu.family}"
    yield "CPU", "NUMA nodes", str(len(cpu.nodes) or "unknown")
    yield "CPU", "instructions", ", ".join(cpu.features) or "unknown"
    yield "Budget", "threads", f"{count(budget.threads, 'thread')} on {count(budget.cores, 'core')}"
    if budget.performance_cores != budget.cores:
        yield "Budget", "", f"{count(budget.performance_cores, 'performance core')} among them"
    yield "Budget", "limit", budget.limit


def _memory(inventory: Inventory) -> Rows:
    memory = inventory.memory
    shared = f"{size(memory.shm_free)} free of {size(memory.shm_total)}" if memory.shm_total is not None else "none"
    yield "Memory", "limit", f"{size(memory.limit)} ({memory.limit_source})"
    yield "Memory", "available", f"{size(memory.available)} of {size(memory.total)}"
    yield "Memory", "/dev/shm", shared
    yield "Memory", "huge pages", f"transparent: {memory.transparent_hugepages or 'unknown'}"


def _gpus(inventory: Inventory) -> Rows:
    if not inventory.gpus:
        yield "GPUs", "none", "training runs on the CPU"
    for gpu in inventory.gpus:
        name = f"{gpu.name} (MIG slice)" if gpu.mig else gpu.name
        memory = f"{size(gpu.memory_free)} free of {size(gpu.memory_total)}" if gpu.memory_total else "memory unknown"
        links = f", links: {', '.join(sorted(set(gpu.links)))}" if gpu.links else ""
        yield "GPUs", f"GPU {gpu.index}", "{}, {}, capability {}.{}{}".format(name, memory, *gpu.capability, links)
        if gpu.foreign_processes:
            yield "GPUs", "", f"-> other processes on it ({gpu.foreign_processes}): timings will be uneven"
        if gpu.clocks_throttled:
            yield "GPUs", "", f"-> clocks held back: {', '.join(gpu.clocks_throttled)}"


def _software(inventory: Inventory) -> Rows:
    limits, software = inventory.limits, inventory.software
    most = "unlimited" if limits.processes is None else f"{limits.processes} ({limits.processes_source})"
    versions = f"Python {software.python}, CUDA {software.cuda or 'none'}"
    threads, interop = (number or "unknown" for number in (software.default_threads, software.default_interop_threads))
    start = f"{threads} threads, {interop} inter-op, start method {software.start_method}"
    compiler = software.compiler or f"none: {software.compiler_reason or 'unknown why'}"
    allocators = ", ".join(allocator.name for allocator in software.allocators) or "only the system's"
    yield "Limits", "processes", most
    yield "Software", "PyTorch", f"{software.torch or 'not installed'} ({versions})"
    yield "Software", "default", start
    yield "Software", "compiler", compiler
    yield "Software", "allocators", allocators
    for name, value in software.environment:
        yield "Software", "set by you", f"{name}={value}"
    for backend in software.backends:
        yield "Backends", backend.name, "usable" if backend.usable else f"no: {backend.reason}"
    if not software.backends:
        yield "Backends", "none", "torch.distributed was not found"
    for note in inventory.notes:
        yield "Notes", "", note
