"""Accelerate's names on a session: the same thing where there is one, else a word on what to write instead."""

from __future__ import annotations

import builtins
import os
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import nn

INSTEAD = {
    "gather_for_metrics": "a pass under torch.no_grad() reads all samples in every process: nothing is to be gathered",
    "gather": "tuned.mean(value) averages a number over the processes; for tensors: torch.distributed.all_gather",
    "reduce": "tuned.mean(value) averages a number over the processes; for tensors: torch.distributed.all_reduce",
    "accumulate": "accumulate in your own loop, with tuned.no_sync(model) around all batches but the last of a step",
    "sync_gradients": "your own loop decides when it steps, and knows it",
    "gradient_accumulation_steps": "accumulate in your own loop; dividing the loss is yours, too",
    "split_batches": "the loader's batch is always the global one, as with split_batches=True",
    "save_state": "save model, optimizer and scheduler yourself, and tuned.state_dict() beside them",
    "load_state": "load model, optimizer and scheduler yourself, and tuned.load_state_dict(...) beside them",
    "save": "if tuned.is_main: torch.save(...)",
    "save_model": "if tuned.is_main: torch.save(model.state_dict(), path)",
    "log": "if tuned.is_main: your logger",
    "init_trackers": "if tuned.is_main: your tracker",
    "end_training": "tuned.close(), or nothing: the end of the script does it",
    "free_memory": "tuned.close()",
    "scaler": "tuned.backward scales, and the optimizer's own step unscales; tuned.state_dict() holds the scale",
    "mixed_precision": "tuned.settings.precision",
    "clip_grad_value_": "torch.nn.utils.clip_grad_value_, where the precision is not fp16",
    "optimizer_step_was_skipped": "tuned.skipped_steps counts them",
}
"""Names of Accelerate that have no equal here, and what to write."""


class AccelerateNames:
    """Base of `Session`: names of ``accelerate.Accelerator`` for what the session has under another one."""

    rank: int
    world_size: int
    is_main: bool

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The module inside the user's own wrappers."""
        raise NotImplementedError

    @property
    def is_main_process(self) -> bool:
        """`is_main`."""
        return self.is_main

    @property
    def is_local_main_process(self) -> bool:
        """True on the first process of each machine."""
        return self.local_process_index == 0

    @property
    def process_index(self) -> int:
        """`rank`."""
        return self.rank

    @property
    def local_process_index(self) -> int:
        """This process's number on its machine."""
        return int(os.environ.get("LOCAL_RANK", self.rank))

    @property
    def num_processes(self) -> int:
        """`world_size`."""
        return self.world_size

    def wait_for_everyone(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            dist.barrier()

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """`Session.unwrap`."""
        return self.unwrap(model)

    def print(self, *values: Any, **options: Any) -> None:
        """Python's ``print``, on the main process only."""
        if self.is_main:
            builtins.print(*values, **options)

    if not TYPE_CHECKING:  # a checker knows what is there

        def __getattr__(self, name: str) -> Any:
            """What to write in place of a name of Accelerate that has no equal here.

            Raises:
                AttributeError: always; this is asked for names that are missing.
            """
            advice = f"; coming from Accelerate: {INSTEAD[name]}" if name in INSTEAD else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}")
