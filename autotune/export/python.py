"""What the Python targets share: code in front, calls with one argument a line, arguments of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autotune.export.shell import why_not_measured_backend
from autotune.export.target import Line, Missing, Plan, Row, line


def statement(code: Callable[[Plan], str]) -> Row:
    """A row of one statement in front of the trainer; empty text is nothing to do."""
    return lambda plan: line("code", text) if (text := code(plan)) else ()


def argument(place: str, name: str, value: Callable[[Plan], object]) -> Row:
    """A row of one argument of the call ``place``; None is nothing to do."""
    return lambda plan: () if (found := value(plan)) is None else line(place, f"{name}={found!r}")


def knob(place: str, name: str, source: str) -> Row:
    """A row of one argument whose value is the knob ``source``'s own."""
    return argument(place, name, lambda plan: getattr(plan.settings, source))


def backend(place: str, text: Callable[[Plan], str]) -> Row:
    """A row of the argument ``text``, and what to say where torchrun starts another backend than was measured."""

    def row(plan: Plan) -> tuple[Line | Missing, ...]:
        if plan.settings.backend is None:
            return ()
        reason = why_not_measured_backend(plan)
        return (Line(place, text(plan)), *([Missing(reason)] if reason else []))

    return row


def call(name: str, arguments: Iterable[str]) -> list[str]:
    """A call with one argument a line."""
    return [f"{name}(", *(f"    {text}," for text in arguments), ")"]


def module(imports: Iterable[str], lines: Mapping[str, list[str]], *calls: list[str]) -> list[str]:
    """Imports, statements, calls."""
    code = [*lines.get("code", []), *(text for one in calls for text in one)]
    return [*imports, "", *code]


LOADER: dict[str, Row] = {
    "batch_size": knob("DataLoader", "batch_size", "batch_size"),
    "num_workers": knob("DataLoader", "num_workers", "num_workers"),
    "prefetch_factor": knob("DataLoader", "prefetch_factor", "prefetch_factor"),
    "persistent_workers": knob("DataLoader", "persistent_workers", "persistent_workers"),
    "pin_memory": knob("DataLoader", "pin_memory", "pin_memory"),
    "worker_start": argument(
        "DataLoader",
        "multiprocessing_context",
        lambda plan: None if plan.settings.worker_start == "default" else plan.settings.worker_start,
    ),
}
"""Arguments of a `DataLoader` that the script builds."""

THREADS = statement(lambda plan: f"torch.set_num_threads({plan.settings.threads})")

STATEMENTS: dict[str, Row] = {
    "threads": THREADS,
    "interop_threads": statement(lambda plan: f"torch.set_num_interop_threads({plan.settings.interop_threads})"),
    "cudnn_benchmark": statement(
        lambda plan: "torch.backends.cudnn.benchmark = True" if plan.settings.cudnn_benchmark else ""
    ),
    "matmul_precision": statement(
        lambda plan: (
            ""
            if plan.settings.matmul_precision == "highest"
            else f'torch.set_float32_matmul_precision("{plan.settings.matmul_precision}")'
        )
    ),
}
"""Process-wide switches of PyTorch."""
