"""Reads the facts of a script that trains off what it trains with, while it does."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from autotune import devices
from autotune.knobs.convolutions import CUDNN_BENCHMARK, DETERMINISTIC, asks_for_determinism
from autotune.knobs.loader import PIN_MEMORY
from autotune.knobs.model_call import compiled_by_user
from autotune.knobs.optimizer_impl import OPTIMIZER_IMPLS, parameters_of
from autotune.knobs.precision import asks_for_tf32
from autotune.knobs.task_facts import LeftOut, TaskFacts
from autotune.runtime import fingerprints, loaders
from autotune.runtime.loader_workers import open_files, why_not_shared
from autotune.runtime.reading import Reading
from autotune.scripts.hooks import Hooks
from autotune.trial.child.task import batch_length, trained_facts
from autotune.trial.target import OUR_ONE, stated_threads

BY_SCRIPT, BY_USER = "the script sets its threads itself", "OMP_NUM_THREADS in your environment sets them"
BATCHES, STEPS, BACKWARDS = "batches", "steps", "backward passes"
"""What a script's training steps are counted by: the first of them that it has."""
LOADER_KNOBS = ("num_workers", "prefetch_factor", "worker_start", "pin_memory")
LOADER_OPTIONS = ("num_workers", "prefetch_factor", "multiprocessing_context", "pin_memory", "persistent_workers")
SEVERAL_LOADERS = "the script reads several loaders in a step"
INSTEAD = "; tuned.prepare() or a task file lets several processes be tried"
MODEL_FREE = "the script calls no module that an optimizer trains"
GROUP_WORDS = ("init_process_group", "WORLD_SIZE")
"""Words of code that makes a process group, or reads how many processes there are."""


@dataclass
class Seen:
    """All that a script has trained with so far.

    Attributes:
        hooks: know its optimizers, whether it compiles by itself, and the threads that it sets.
        known_by: what its training steps are counted by.
        loader: the one that it trains on.
        reads: fingerprints, of the loader before it was read (a data set may open its file when it is), then of those
            that are read inside a pass over it.
        batch: the first of that.
        models: that it has called in training.
        autocasts: whether it autocasts by itself.
    """

    hooks: Hooks
    known_by: str = BATCHES
    loader: DataLoader[Any] | None = None
    reads: tuple[str, ...] = ()
    batch: Any = None
    models: list[nn.Module] = field(default_factory=list)
    autocasts: bool = False

    def begin(self, loader: DataLoader[Any] | None = None, known_by: str = BATCHES) -> None:
        """Forget what came before a place where training may begin: on ``loader``, if there is one."""
        self.loader, self.known_by, self.batch = loader, known_by, None
        self.reads = () if loader is None else (fingerprints.of_loader(loader),)
        self.models, self.autocasts = [], False

    def reads_beside(self, loader: DataLoader[Any]) -> None:
        """Note another loader that is read inside a pass. The same settings are tried in both if its own are the same,
        and nothing forbids it more workers."""
        alike = all(getattr(loader, name) == getattr(self.loader, name) for name in LOADER_OPTIONS)
        why_not = loaders.why_left_alone(loader, loader.num_workers + 2)
        why_not = why_not or why_not_shared(loader, open_files(), Reading(loader.dataset, loader.collate_fn))
        if alike and why_not is None:
            self.reads = tuple(dict.fromkeys((*self.reads, fingerprints.of_loader(loader))))


def script_facts(name: str, seen: Seen, skip: int = 0) -> TaskFacts:
    """Return the facts that the tuner needs of the script called ``name``, which iterates ``skip`` loaders before."""
    device = _device(seen)
    loader = seen.loader
    dataset = None if loader is None else loader.dataset
    return TaskFacts(
        name=name,
        **trained_facts(seen.models, seen.hooks.optimizers, dataset, seen.reads, device),
        unit="samples" if counts_samples(seen) else "steps",
        current=_current(seen, device),
        why_not_several=why_not_several(seen, device),
        left_out=tuple(_left_out(seen, device)),
        fixed=_fixed(seen),
        script=seen.known_by,
        skip=skip,
    )


def why_not_several(seen: Seen, device: str) -> str | None:
    """Return why several processes of the script could not be shown to share its work; None if a trial may show it."""
    loader = seen.loader
    if loader is None:
        return "the script trains on no DataLoader, so nothing would show how processes share its work" + INSTEAD
    if isinstance(loader.dataset, IterableDataset) or loaders.length(loader.dataset) is None:
        return "nothing shows how many samples of a stream each process would take" + INSTEAD
    if len(seen.reads) > 1:
        return SEVERAL_LOADERS + INSTEAD
    if not counts_samples(seen):
        return "the length of a batch is not the loader's batch size, so nothing would show a process's share" + INSTEAD
    if (loaders.stated_batch(loader) or 1) % 2:
        return "two processes cannot share the batch equally" + INSTEAD
    if not devices.of(device).on_host:
        return "whether processes of a script share its work is only checked on CPUs" + INSTEAD
    return None if _names_a_group() else "nothing that the script has loaded makes a process group" + INSTEAD


def _names_a_group() -> bool:
    """Return True if any loaded module, but for PyTorch, this project and Python's own, names process groups."""
    own = ("torch", "autotune", *sys.stdlib_module_names)
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] not in own]
    files = {str(getattr(module, "__file__", None)) for module in loaded}
    for file in sorted(file for file in files if file.endswith(".py")):
        with contextlib.suppress(OSError, ValueError):
            text = Path(file).read_text(errors="replace")
            if any(word in text for word in GROUP_WORDS):
                return True
    return False


def counts_samples(seen: Seen) -> bool:
    """Return True if a batch is as long as the loader's batch size; else its items cannot be counted."""
    return seen.loader is not None and batch_length(seen.batch) == loaders.stated_batch(seen.loader)


def _device(seen: Seen) -> str:
    """Return the first accelerator that what is trained is on, with its index if that is not 0."""
    held = [*(p for model in seen.models for p in model.parameters()), *parameters_of(*seen.hooks.optimizers)]
    found = (devices.of(parameter.device) for parameter in held)
    return next((str(device).removesuffix(":0") for device in found if device.type not in ("cpu", "meta")), "cpu")


def _current(seen: Seen, device: str) -> dict[str, Any]:
    """Return the script's own settings, as ``CURRENT`` of a task file states them."""
    found: dict[str, Any] = {"batch_size": 1}
    loader = seen.loader
    if loader is not None:
        found |= {"batch_size": loaders.stated_batch(loader) or 1, "num_workers": loader.num_workers}
        if loader.num_workers > 0:
            found |= {
                "prefetch_factor": loader.prefetch_factor or 2,
                "persistent_workers": bool(loader.persistent_workers),
            }
        if not PIN_MEMORY.idle(devices.of(device)):
            found["pin_memory"] = bool(loader.pin_memory)
    if not CUDNN_BENCHMARK.idle(devices.of(device)):
        found |= {"cudnn_benchmark": torch.backends.cudnn.benchmark, "precision": "tf32" if asks_for_tf32() else "fp32"}
    threads, _who = _threads(seen)
    if threads is not None:
        found["threads"] = threads
    if seen.hooks.interop_threads is not None:
        found["interop_threads"] = seen.hooks.interop_threads
    optimizers = seen.hooks.optimizers
    flags = optimizers[0].defaults if optimizers else {}
    own = [impl for impl in OPTIMIZER_IMPLS[1:] if flags.get(impl)]
    return found | ({"optimizer_impl": own[-1]} if own else {})


def _threads(seen: Seen) -> tuple[int | None, str]:
    """Return the threads that were chosen, and by whom; None if PyTorch chooses them."""
    if seen.hooks.threads is not None:
        return seen.hooks.threads, BY_SCRIPT
    who = BY_USER if os.environ.get("OMP_NUM_THREADS", OUR_ONE) == OUR_ONE else BY_SCRIPT
    return stated_threads(os.environ).get("OMP_NUM_THREADS"), who


def _fixed(seen: Seen) -> dict[str, str]:
    """Return the user's own words that set the threads, by the knob; nothing if PyTorch chooses them."""
    threads, _who = _threads(seen)
    return {} if threads is None else {"threads": seen.hooks.threads_set or f"OMP_NUM_THREADS={threads}"}


def _left_out(seen: Seen, device: str) -> Sequence[LeftOut]:
    """Return what the script decides itself, and what cannot be done from outside."""
    found: list[LeftOut] = [LeftOut("precision", "fp16", "the script's own backward pass does not scale the loss")]
    if not CUDNN_BENCHMARK.idle(devices.of(device)):  # switches that the script has set by now
        own = torch.backends.cudnn.benchmark
        if own or asks_for_determinism():
            found.append(LeftOut("cudnn_benchmark", None, "the script searches itself" if own else DETERMINISTIC))
        if asks_for_tf32():
            found.append(LeftOut("precision", "fp32", "the script switches TF32 on itself"))
    threads, who = _threads(seen)
    if threads is not None:
        found.append(LeftOut("threads", None, who))
    if seen.hooks.interop_threads is not None:
        found.append(LeftOut("interop_threads", None, "the script sets its inter-op threads itself"))
    if seen.autocasts:
        found += [LeftOut(knob, None, "the script uses autocast itself") for knob in ("precision", "matmul_precision")]
    compiled = seen.hooks.compiles or any(map(compiled_by_user, seen.models))
    if compiled or not seen.models:
        why = "the script compiles its model itself" if compiled else MODEL_FREE
        found += [LeftOut(knob, None, why) for knob in ("channels_last", "precision", "compile")]
    found += _left_out_of_loader(seen.loader)
    if len(seen.reads) > 1:
        found.append(LeftOut("batch_size", None, SEVERAL_LOADERS))
    if seen.loader is not None and not counts_samples(seen):
        found.append(LeftOut("batch_size", None, "the length of a batch is not the loader's batch size"))
    return found


def _left_out_of_loader(loader: DataLoader[Any] | None) -> list[LeftOut]:
    if loader is None:
        why = "the script trains on no DataLoader"
        return [LeftOut(knob, None, why) for knob in (*LOADER_KNOBS, "batch_size")]
    reason = loaders.why_left_alone(loader)
    found: list[LeftOut] = [LeftOut(knob, None, reason) for knob in LOADER_KNOBS] if reason is not None else []
    if loader.persistent_workers:
        found.append(LeftOut("num_workers", 0, loaders.PERSISTENT))
    kept = None if isinstance(loader.dataset, IterableDataset) else loaders.why_not_ahead(loader)
    return [*found, LeftOut("batch_size", None, kept)] if kept is not None else found
