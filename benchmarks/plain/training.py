"""Plain PyTorch trains a task file with given settings, and measures when it is asked. Nothing of autotune's.

    python benchmarks/plain/training.py FOLDER

``FOLDER/trial.json`` holds ``task`` (path), ``settings``, and perhaps ``device`` and ``extra``: what no knob says (see
`Training`). Rank 0 prints ``ready`` when it is warm, and answers each number of seconds on stdin with a rate on stdout.
Ranks get ``RANK`` and ``WORLD_SIZE``, as from torchrun, and meet through ``FOLDER/store``. If the backend is mpi, the
entry that starts this script under mpiexec puts it in the place of gloo.
"""

from __future__ import annotations

import ctypes
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

WARMUP_SECONDS = 1.0
WAKE_SECONDS = 0.1
"""Before each block: threads and caches have slept meanwhile. A trial's threads exchange data before a block too."""

Settings = Mapping[str, Any]


def load(path: str) -> ModuleType:
    """Import the task file as a module, its folder first on the module path."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("task", path)
    assert spec is not None
    assert spec.loader is not None
    task = sys.modules["task"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(task)
    return task


def optimizer_of(task: ModuleType, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Build the task's optimizer; AdamW if it names none."""
    build = getattr(task, "build_optimizer", lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
    return build(model.parameters())


def loader_of(
    task: ModuleType, dataset: Dataset[Any], settings: Settings, world: int = 1, extra: Settings | None = None
) -> DataLoader[Any]:
    """Build the loader that ``settings`` describe; ``extra`` are arguments for one with workers."""
    options: dict[str, Any] = {"num_workers": settings["num_workers"], "collate_fn": getattr(task, "collate_fn", None)}
    options["pin_memory"] = settings.get("pin_memory", False)
    if settings["num_workers"]:
        options["prefetch_factor"] = settings["prefetch_factor"]
        options["persistent_workers"] = bool(getattr(task, "CURRENT", {}).get("persistent_workers"))
        method = settings.get("worker_start", "default")
        options |= {"multiprocessing_context": method} if method != "default" else {}
        options |= extra or {}
    if not isinstance(dataset, IterableDataset):
        if world > 1:
            options["sampler"] = DistributedSampler(dataset)
        else:
            options["shuffle"] = True
    return DataLoader(dataset, settings["batch_size"], **options)


def _count(batch: Any) -> int:
    return len(batch[0]) if isinstance(batch, (list, tuple)) else len(batch)


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def keep_freed_memory() -> None:
    """Ask glibc for what the knob ``malloc`` does: large blocks are reused."""
    libc = ctypes.CDLL(None)
    for option, value in ((-3, 2**30), (-1, 2**31 - 1), (-2, 64 * 2**20)):
        libc.mallopt(ctypes.c_int(option), ctypes.c_int(value))


def apply_switches(settings: Settings, device: str) -> None:
    """Apply what belongs to the process."""
    torch.set_num_threads(settings["threads"])
    torch.set_num_interop_threads(settings["interop_threads"])
    if settings.get("malloc") == "keep":
        keep_freed_memory()
    if settings.get("matmul_precision", "highest") != "highest":
        torch.set_float32_matmul_precision(settings["matmul_precision"])
    if device == "cuda":
        torch.backends.cudnn.benchmark = bool(settings.get("cudnn_benchmark"))
        if settings["precision"] == "tf32":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


class Training:
    """The training loop of one rank.

    Args:
        task: the task file.
        settings: a value for every knob.
        world: how many ranks.
        device: ``cpu`` or ``cuda``.
        extra: arguments of the loader that no knob sets, such as ``in_order``; for loaders with workers.
    """

    def __init__(
        self, task: ModuleType, settings: Settings, world: int, device: str = "cpu", extra: Settings | None = None
    ) -> None:
        self.task, self.settings, self.world = task, settings, world
        self.device = torch.device(device)
        self.count: Callable[[Any], int] = getattr(task, "count_items", None) or _count
        torch.manual_seed(0)
        model = task.build_model().to(self.device)
        self.layout = torch.channels_last if settings["channels_last"] else None
        if self.layout:
            model = model.to(memory_format=self.layout)
        self.optimizer = optimizer_of(task, model)
        self._choose_implementation(settings["optimizer_impl"])
        if settings.get("compile", "off") != "off":
            model.compile(mode=settings["compile"])
        self.model = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
        self.scaler = torch.amp.GradScaler(device, enabled=settings["precision"] == "fp16")
        self.stream = self._batches(loader_of(task, task.build_dataset(), settings, world, extra))

    def _choose_implementation(self, name: str) -> None:
        if name != "default":
            for group in self.optimizer.param_groups:
                group |= {"foreach": name == "foreach", "fused": name == "fused"}

    def _batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        while True:
            yield from loader

    def _placed(self, batch: Any) -> Any:
        if torch.is_tensor(batch):
            batch = batch.to(self.device, non_blocking=True)
            return batch.to(memory_format=self.layout) if self.layout and batch.dim() == 4 else batch
        if isinstance(batch, (list, tuple)):
            return [self._placed(each) for each in batch]
        return {name: self._placed(each) for name, each in batch.items()} if isinstance(batch, dict) else batch

    def step(self) -> int:
        """Take one optimizer step; return the items of this rank."""
        batch = self._placed(next(self.stream))
        low = DTYPES.get(self.settings["precision"])
        with torch.autocast(self.device.type, low or torch.bfloat16, enabled=low is not None):
            loss = self.task.compute_loss(self.model, batch)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return self.count(batch)

    def run(self, duration: float) -> float:
        """Take whole steps for ``duration`` seconds, by rank 0's clock; return items per second over all ranks."""
        items, started, going = 0, time.perf_counter(), torch.ones(1)
        while going.item():
            items += self.step()
            going[0] = time.perf_counter() - started < duration
            if self.world > 1:
                torch.distributed.broadcast(going, 0)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return items * self.world / (time.perf_counter() - started)

    def serve(self, rank: int) -> None:
        """Print a rate for each number of seconds on stdin, until it ends."""
        seconds = torch.zeros(1)
        if rank == 0:
            print("ready", flush=True)
        while True:
            if rank == 0:
                seconds[0] = float(sys.stdin.readline() or 0)
            if self.world > 1:
                torch.distributed.broadcast(seconds, 0)
            if seconds.item() <= 0:
                return
            self.run(WAKE_SECONDS)
            rate = self.run(seconds.item())
            if rank == 0:
                print(rate, flush=True)


def main(folder: Path) -> None:
    """Warm up and serve."""
    spec = json.loads((folder / "trial.json").read_text("utf-8"))
    settings, extra, device = spec["settings"], spec.get("extra", {}), spec.get("device", "cpu")
    apply_switches(settings, device)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world != settings["processes"]:
        raise SystemExit(f"{settings['processes']} processes were asked for, {world} were started")
    if world > 1:
        store = f"file://{folder}/store"
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    training = Training(load(spec["task"]), settings, world, device, extra)
    training.run(WARMUP_SECONDS)
    training.serve(rank)
    if settings["backend"] == "mpi":
        torch.distributed.destroy_process_group()
    else:
        os._exit(0)  # loader workers need no goodbye


if __name__ == "__main__":
    del sys.path[0]  # this folder's modules are not the task's
    main(Path(sys.argv[1]))
