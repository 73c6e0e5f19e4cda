"""One neutral trial: plain PyTorch trains a task file with given settings for a fixed time. Nothing of autotune's.

    python benchmarks/rivals/trial.py FOLDER

``FOLDER/trial.json`` holds ``task`` (path), ``settings`` and ``seconds``; rank 0 writes items per second to
``FOLDER/rate``. Ranks are told by ``RANK`` and ``WORLD_SIZE``, as torchrun does, and meet through ``FOLDER/store``.
Where the backend is mpi, the entry that starts this script under mpiexec puts it in the place of gloo.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

LEAST_WARMUP = 1.0
WARMUP_SHARE = 1 / 3

Settings = Mapping[str, Any]


def load(path: str) -> ModuleType:
    """The task file as a module, its folder first on the module path."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("task", path)
    assert spec is not None
    assert spec.loader is not None
    task = sys.modules["task"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(task)
    return task


def optimizer_of(task: ModuleType, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The task's optimizer; AdamW where it names none."""
    build = getattr(task, "build_optimizer", lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
    return build(model.parameters())


def loader_of(task: ModuleType, dataset: Dataset[Any], settings: Settings, world: int = 1) -> DataLoader[Any]:
    """The loader that ``settings`` describe."""
    options = {"num_workers": settings["num_workers"], "collate_fn": getattr(task, "collate_fn", None)}
    if settings["num_workers"]:
        options |= {name: settings[name] for name in ("prefetch_factor", "persistent_workers")}
    if not isinstance(dataset, IterableDataset):
        options |= {"sampler": DistributedSampler(dataset)} if world > 1 else {"shuffle": True}
    return DataLoader(dataset, settings["batch_size"], **options)


def _count(batch: Any) -> int:
    return len(batch[0]) if isinstance(batch, (list, tuple)) else len(batch)


class Training:
    """The training loop of one rank."""

    def __init__(self, task: ModuleType, settings: Settings, world: int) -> None:
        self.task, self.settings, self.world = task, settings, world
        self.count: Callable[[Any], int] = getattr(task, "count_items", None) or _count
        torch.manual_seed(0)
        model = task.build_model()
        self.layout = torch.channels_last if settings["channels_last"] else None
        if self.layout:
            model = model.to(memory_format=self.layout)
        self.optimizer = optimizer_of(task, model)
        self._choose_implementation(settings["optimizer_impl"])
        self.model = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
        self.stream = self._batches(loader_of(task, task.build_dataset(), settings, world))

    def _choose_implementation(self, name: str) -> None:
        if name != "default":
            for group in self.optimizer.param_groups:
                group |= {"foreach": name == "foreach", "fused": name == "fused"}

    def _batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        while True:
            yield from loader

    def _laid_out(self, batch: Any) -> Any:
        if self.layout is None or not isinstance(batch, (list, tuple)):
            return batch
        return [t.to(memory_format=self.layout) if torch.is_tensor(t) and t.dim() == 4 else t for t in batch]

    def step(self) -> int:
        """One optimizer step; returns the items of this rank."""
        batch = next(self.stream)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings["precision"] == "bf16"):
            loss = self.task.compute_loss(self.model, self._laid_out(batch))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return self.count(batch)

    def run(self, duration: float) -> float:
        """Whole steps for ``duration`` seconds; items per second over all ranks. Rank 0 says when it is over."""
        items, started, going = 0, time.perf_counter(), torch.ones(1)
        while going.item():
            items += self.step()
            going[0] = time.perf_counter() - started < duration
            if self.world > 1:
                torch.distributed.broadcast(going, 0)
        return items * self.world / (time.perf_counter() - started)


def main(folder: Path) -> None:
    """Warm up, measure, write the rate."""
    spec = json.loads((folder / "trial.json").read_text("utf-8"))
    settings, seconds = spec["settings"], spec["seconds"]
    torch.set_num_threads(settings["threads"])
    torch.set_num_interop_threads(settings["interop_threads"])
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world != settings["processes"]:
        raise SystemExit(f"{settings['processes']} processes were asked for, {world} were started")
    if world > 1:
        store = f"file://{folder}/store"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    training = Training(load(spec["task"]), settings, world)
    training.run(max(LEAST_WARMUP, seconds * WARMUP_SHARE))
    rate = training.run(seconds)
    if rank == 0:
        (folder / "rate").write_text(str(rate), "utf-8")
    if settings["backend"] == "mpi":
        torch.distributed.destroy_process_group()
    else:
        os._exit(0)  # loader workers need no goodbye


if __name__ == "__main__":
    del sys.path[0]  # this folder's modules are not the task's
    main(Path(sys.argv[1]))
