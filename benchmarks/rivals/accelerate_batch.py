"""What a user writes around a task file to let Accelerate find the batch size.

    python -m benchmarks.rivals.accelerate_batch TASK SETTINGS LARGEST

``SETTINGS`` is JSON; the batch size found is the last word on stdout. `find_executable_batch_size` starts at
``LARGEST`` and takes a tenth off as long as memory is exhausted; it does not measure speed.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from types import ModuleType
from typing import Any

from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size

from benchmarks.rivals.trial import load, loader_of, optimizer_of

STEPS = 3


def find(task: ModuleType, settings: dict[str, Any], largest: int) -> int:
    """The batch size that a few training steps run with."""
    accelerator = Accelerator(cpu=True)
    dataset = task.build_dataset()

    @find_executable_batch_size(starting_batch_size=largest)
    def train(batch_size: int) -> int:
        accelerator.free_memory()
        model = task.build_model()
        loader = loader_of(task, dataset, settings | {"batch_size": batch_size})
        model, optimizer, loader = accelerator.prepare(model, optimizer_of(task, model), loader)
        for batch in islice(loader, STEPS):
            accelerator.backward(task.compute_loss(model, batch))
            optimizer.step()
            optimizer.zero_grad()
        return batch_size

    return train()


if __name__ == "__main__":
    print(find(load(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])))
