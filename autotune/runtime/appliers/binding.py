"""The CPUs and memory that this process was started on: read back, and given to its loader workers."""

from __future__ import annotations

from typing import Any

from autotune.runtime import binding
from autotune.runtime.applier import Applier, Training


class Binding(Applier):
    """Binding is done before the process starts, by `autotune.runtime.binding.bind_by_plan`."""

    def __init__(self, value: str, training: Training) -> None:
        super().__init__(value, training)
        self._workers: list[binding.WorkerAffinity] = []

    def start(self) -> str | None:
        """Nothing can be done any more: read back. What became of memory is a note."""
        affinity = self.training.affinity if self.value != "none" else None
        note = binding.memory_note(affinity)
        if note is not None:
            self.training.notes.say(note)
        return binding.why_not(self.value, affinity)

    def workers(self, arguments: dict[str, Any]) -> None:
        """Loader workers run on the CPUs beside the compute threads."""
        if self.value != "none" and self.training.affinity is not None:
            self._workers.append(binding.WorkerAffinity(self.training.affinity.workers, arguments["worker_init_fn"]))
            arguments["worker_init_fn"] = self._workers[-1]

    def why_not(self) -> str | None:
        """Why threads or workers are not where they belong, or None."""
        missed = next(filter(None, (workers.why_not for workers in self._workers)), None)
        return binding.why_not(self.value, self.training.affinity) or missed
