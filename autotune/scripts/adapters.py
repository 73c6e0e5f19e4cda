"""Knowledge of frameworks by name: how each is silenced, where it writes, how it starts processes."""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

VARIABLES = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "COMET_START_ONLINE": "0",
    "COMET_MODE": "offline",
    "COMET_DISABLE_AUTO_LOGGING": "1",
    "DISABLE_MLFLOW_INTEGRATION": "1",
    "DO_NOT_TRACK": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Hugging Face datasets import pyarrow: its thread forbids forks
}
"""Variables of trials. What the script itself sets is kept."""
OFFLINE = dict.fromkeys(
    ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "TRANSFORMERS_OFFLINE", "DIFFUSERS_OFFLINE"), "1"
)
"""The same for trials without a network, so that no library waits for an answer."""
CACHES = {
    "HF_HOME": ".cache/huggingface",
    "HF_HUB_CACHE": ".cache/huggingface/hub",
    "HF_DATASETS_CACHE": ".cache/huggingface/datasets",
    "HF_MODULES_CACHE": ".cache/huggingface/modules",
}
"""Variables that name folders of caches, and where these are below HOME."""
OLD_NAMES = ("TRANSFORMERS_CACHE", "HUGGINGFACE_HUB_CACHE", "PYTORCH_TRANSFORMERS_CACHE")
"""Variables that would be taken before those."""
LOGS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY")
"""Variables that name folders for what a run leaves behind."""
STARTERS = {
    "lightning.pytorch": "Lightning starts as many as its own Trainer(devices=...) says",
    "pytorch_lightning": "Lightning starts as many as its own Trainer(devices=...) says",
    "accelerate": "Accelerate joins processes on CPUs only with Accelerator(cpu=True) or ACCELERATE_USE_CPU=true",
}
"""Packages that decide, beside the launcher, how many processes a script trains in."""


class DoNothing:
    """In place of a thread that draws or writes, which would forbid a fork. It takes every call and does nothing."""

    def __init__(self, logdir: Any = None, *_arguments: Any, **_options: Any) -> None:
        self._logdir = logdir

    def get_logdir(self) -> Any:
        """Return the folder of TensorBoard's events."""
        return self._logdir

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments, **_options: None


def _no_monitor(tqdm: Any) -> None:
    """Leave out the thread that redraws bars which nobody updates; it starts with the first bar."""
    tqdm.tqdm.monitor_interval = 0


def _no_display(live: Any) -> None:
    """Let displays of rich be started and updated all the same, but draw nothing."""

    def start(display: Any, refresh: bool = False) -> None:
        display.auto_refresh = False

    def refresh(display: Any) -> None:
        """Draw nothing."""

    live.Live.start, live.Live.refresh, live._RefreshThread = start, refresh, DoNothing


def _no_events(writer: Any) -> None:
    """Write no curves of TensorBoard: those of a trial are not read."""
    writer.EventFileWriter = DoNothing


def _lightnings_batches(loop: Any) -> float:
    return float(loop.trainer.estimated_stepping_batches * loop.trainer.accumulate_grad_batches)


BATCHES_OF_RUN: Mapping[str, Callable[[Any], float]] = {
    "transformers.trainer": lambda trainer: trainer.state.max_steps * trainer.args.gradient_accumulation_steps,
    "lightning.pytorch.loops.training_epoch_loop": _lightnings_batches,
    "pytorch_lightning.loops.training_epoch_loop": _lightnings_batches,
}
"""Module -> batches of the whole run, by the ``self`` of one of its functions that is running."""
CHANGES: Mapping[str, Callable[[Any], None]] = {
    "tqdm.std": _no_monitor,
    "rich.live": _no_display,
    "tensorboard.summary.writer.event_file_writer": _no_events,
    "tensorboardX.event_file_writer": _no_events,
}
"""Module -> called with it once it is imported. Lightning's own switches for bars and loggers refuse callbacks."""


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls changes on modules once they are imported, at once if they are already, and then removes itself."""

    def __init__(self, changes: Mapping[str, Callable[[Any], None]]) -> None:
        self._changes = dict(changes)
        self._looking: set[str] = set()

    def install(self) -> None:
        """Wait for the modules."""
        for name in set(self._changes) & set(sys.modules):
            self._changes.pop(name)(sys.modules[name])
        if self._changes:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find. To look a module up is not to import it yet."""
        if fullname not in self._changes or fullname in self._looking:  # a finder of another tool asks all anew
            return None
        self._looking.add(fullname)
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        found = (finder.find_spec(fullname, path, target) for finder in finders)
        try:
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            self._wrap(fullname, spec.loader)
        return spec

    def _wrap(self, name: str, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own is seen again
            original(module)
            change = self._changes.pop(name, None)
            if not self._changes and self in sys.meta_path:
                sys.meta_path.remove(self)
            if change is not None:
                change(module)

        loader.exec_module = exec_module


def variables(logs: Path, *, network: bool) -> dict[str, str]:
    """Return variables that keep trackers off or in the folder ``logs``, and libraries from using the ``network``."""
    places = {name: str(logs / name.lower()) for name in LOGS} | {"MLFLOW_TRACKING_URI": (logs / "mlflow").as_uri()}
    return {**VARIABLES, **({} if network else OFFLINE), **places}


def silence(text: str) -> None:
    """Silence the frameworks that the script with this ``text`` uses in this process, before it runs."""
    if "mpi4py" not in text:  # Lightning imports it to see if mpiexec has started it. A fork would crash after that
        sys.modules.setdefault("mpi4py", None)  # type: ignore[arg-type]
    AfterImport(CHANGES).install()


def several_processes() -> str:
    """Return how a framework that this process has imported starts processes; empty if none decides that."""
    return "; ".join(dict.fromkeys(advice for package, advice in STARTERS.items() if package in sys.modules))


def steps_of_run(stack: Sequence[FrameType]) -> int | None:
    """Return how many batches the whole run takes, if a framework in ``stack`` shows it."""
    for frame in stack:
        known = BATCHES_OF_RUN.get(frame.f_globals.get("__name__", ""))
        if known is not None and "self" in frame.f_locals:
            with contextlib.suppress(Exception):  # another version of the framework
                return int(known(frame.f_locals["self"]))
    return None
