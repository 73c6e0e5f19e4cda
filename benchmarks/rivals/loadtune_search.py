"""What a user writes around a task file to let loadtune tune it, through its `Workload` API.

    python -m benchmarks.rivals.loadtune_search TASK SETTINGS [--device cuda] [--steps 30]

``SETTINGS`` is JSON. The last line on stdout is JSON: what differs from ``SETTINGS`` in what it recommends.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.rivals.trial import load, optimizer_of


def main() -> None:
    """Tune and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("settings", type=json.loads)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    from loadtune import tune

    torch.set_num_threads(arguments.settings["threads"])
    workload = workload_of(arguments.task, arguments.settings)
    found = tune(workload, steps=arguments.steps, warmup=5, max_trials=6, max_rounds=2)
    gained = found.best is not None and found.speedup > 1
    knobs = found.best.knobs.to_dict() if gained else {}
    print(json.dumps(changes(knobs, arguments.device)))


def workload_of(path: str, settings: Mapping[str, Any]) -> Any:
    """The task as loadtune takes it."""
    from loadtune import Workload

    task = load(path)

    def step(
        model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any, device: torch.device
    ) -> torch.Tensor:
        loss = task.compute_loss(model, placed(batch, device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Workload(
        name=task.__name__,
        make_dataset=task.build_dataset,
        make_model=task.build_model,
        train_step=step,
        make_optimizer=lambda model: optimizer_of(task, model),
        default_batch_size=settings["batch_size"],
        collate_fn=getattr(task, "collate_fn", None),
    )


def placed(batch: Any, device: torch.device) -> Any:
    """``batch`` on ``device``; on the CPU, as it is."""
    if torch.is_tensor(batch):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, list | tuple):
        return [placed(each, device) for each in batch]
    return {name: placed(each, device) for name, each in batch.items()} if isinstance(batch, dict) else batch


def changes(knobs: Mapping[str, Any], device: str) -> dict[str, Any]:
    """loadtune's ``knobs`` as settings that change."""
    names = {"num_workers": "num_workers", "pin_memory": "pin_memory", "batch_size": "batch_size"}
    names |= {"num_threads": "threads"}
    found = {ours: knobs[theirs] for theirs, ours in names.items() if knobs.get(theirs) is not None}
    if knobs.get("num_workers"):
        found["prefetch_factor"] = knobs.get("prefetch_factor") or 2
        found["persistent_workers"] = bool(knobs.get("persistent_workers"))
    if knobs.get("compile"):
        found["compile"] = "default"
    if knobs.get("amp"):
        found["precision"] = "fp16" if device == "cuda" else "bf16"
    return found


if __name__ == "__main__":
    main()
