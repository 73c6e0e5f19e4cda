"""The rival `pytorch-autotune` on a task file, through its public call; CUDA only.

    python -m benchmarks.rivals.autotune_pytorch TASK SETTINGS [--budget 40]

It tunes one step on one example batch ``(input, target)`` and calls the loss itself, so the task names a
``criterion(outputs, targets)``. The last line on stdout is JSON: what differs from ``SETTINGS`` in what it
recommends.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.rivals.trial import load, loader_of, optimizer_of

PRECISIONS = {"fp32_default": "fp32", "tf32": "tf32", "amp_bf16": "bf16", "amp_fp16": "fp16"}


def main() -> None:
    """Tune and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--budget", type=float, default=40.0)
    arguments = parser.parse_args()
    from pytorch_autotune import autotune

    task = load(arguments.task)
    inputs, targets = next(iter(loader_of(task, task.build_dataset(), arguments.settings)))
    own = optimizer_of(task, task.build_model())
    found = autotune(
        task.build_model(),
        (inputs, targets),
        task.criterion,
        type(own).__name__.lower(),
        own.defaults["lr"],
        arguments.budget,
        cache=False,
        verbose=False,
    )
    print(json.dumps(changes(found.config)))


def changes(config: Any) -> dict[str, Any]:
    """Its ``config`` as settings. It switches cuDNN's benchmark on with every precision but PyTorch's own."""
    precision = PRECISIONS[config.precision]
    return {
        "precision": precision,
        "compile": config.compile,
        "channels_last": config.channels_last,
        "optimizer_impl": "fused" if config.fused_opt else "default",
        "cudnn_benchmark": precision != "fp32",
    }


if __name__ == "__main__":
    main()
