"""Find where a script begins to train: its frontier, at which trials are forked.

The script runs in a process of its own. Where it may begin to train, it is forked: the parent stops there, and the
child goes on as its scout. If the scout trains, the parent serves trials. If the scout comes to the next such place
without having trained, the parent ends and the scout takes over. So whatever comes before training is done once.
"""

from __future__ import annotations

import gc
import json
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from multiprocessing import active_children
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime.entry import as_main
from autotune.scripts.hooks import Begin, Hooks, Listener
from autotune.trial.child.script_facts import BACKWARDS, STEPS, Seen, script_facts
from autotune.trial.script import Script

ENOUGH_STEPS = 3
"""Training steps that a scout watches."""
ENOUGH_SECONDS = 3.0


@dataclass(frozen=True)
class Frontier:
    """Where a script trains.

    Attributes:
        facts: `autotune.knobs.task.TaskFacts`, as plain data.
        no_fork_reason: why the script cannot be forked there; None where it can.
    """

    facts: dict[str, Any]
    no_fork_reason: str | None = None


class Scout(Listener):
    """Watches the script until it trains.

    Args:
        script: the user's.
        hooks: report what it does.
        why_not_fork: why a fork now is not safe, or None.
        serve: called in the process that stands at the frontier. It returns, with another watcher, in trials only.
        found: tells the guard of this process of the frontier, where nobody stands at it.
        users_threads: ``OMP_NUM_THREADS`` of the user's environment; empty where it is not set.
    """

    def __init__(
        self,
        script: Script,
        hooks: Hooks,
        why_not_fork: Callable[[], str | None],
        serve: Callable[[Frontier], Listener],
        found: Callable[[Frontier], None],
        users_threads: str = "",
    ) -> None:
        self.script, self.hooks, self.why_not_fork = script, hooks, why_not_fork
        self._serve, self._found, self.users_threads = serve, found, users_threads
        self.seen = Seen()
        self.no_fork_reason: str | None = None
        self._places = self._loaders = 0
        self._verdict: int | None = None
        self._pass: weakref.ref[_Watched] | None = None
        self._steps = self._backwards = self._batches = 0
        self._trained_at = 0.0

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """A place where training may begin."""
        if not is_training(self.hooks) or (self._pass is not None and self._pass() is not None):
            return begin()
        self._loaders += 1
        watcher = self._come_to_place()
        if watcher is not None:
            return watcher.iterates(loader, begin)
        self.seen = Seen(loader=loader)
        passing = _Watched(self, begin(), loader)
        self._pass = weakref.ref(passing)
        return passing

    def calls(self, model: nn.Module) -> None:
        """Where no loader is iterated, the first call of a model in training is such a place."""
        if self.seen.loader is None and not self.seen.models and is_trainable(model):
            watcher = self._come_to_place()
            if watcher is not None:
                watcher.calls(model)
                return
            self.seen = Seen(known_by=BACKWARDS)
        if not any(model is known for known in self.seen.models):
            self.seen.models.append(model)
        kind = next((parameter.device.type for parameter in model.parameters()), "cpu")
        self.seen.autocasts |= torch.is_autocast_enabled(kind)

    def takes(self, batch: Any) -> None:
        """A batch comes: the last step is over."""
        self._batches += 1
        if self._batches == 1:
            self.seen.batch = batch
        elif self._backwards or self._steps:
            self._look()

    def goes_backward(self, loss: Tensor) -> None:
        """The script trains. A model that compiles itself is not seen when it is called."""
        if self.hooks.compiles and self.seen.loader is None and not self.seen.models and not self._places:
            listener = self._come_to_place()
            if listener is not None:
                listener.goes_backward(loss)
                return
            self.seen = Seen(known_by=BACKWARDS)
        self._backwards += 1
        self._trained_at = self._trained_at or time.monotonic()
        without_steps = not self._steps and not self.hooks.optimizers
        if self._places and self.seen.loader is None and without_steps:
            self._look(least=2 * ENOUGH_STEPS)

    def steps(self, optimizer: Optimizer) -> None:
        """The script trains."""
        self._steps += 1
        self._trained_at = self._trained_at or time.monotonic()
        if self.seen.loader is None:
            if not self._places and self._come_to_place() is not None:
                return
            self.seen.known_by = STEPS
            self._look()

    def _come_to_place(self) -> Listener | None:
        """Fork here if possible. Returns what watches a trial; None in the scout."""
        self._places += 1
        self._steps = self._backwards = self._batches = 0
        self._trained_at = 0.0
        self._close_verdict()
        reason = self.why_not_fork() or _own_processes()
        self.no_fork_reason = reason
        if reason is not None:
            return None
        verdict, self._verdict = os.pipe()
        if os.fork() == 0:
            os.close(verdict)
            return None
        os.close(self._verdict)
        self._verdict = None
        with open(verdict, "rb") as pipe:
            told = pipe.read()
        if not told:
            os._exit(0)  # the scout has gone on
        return self._serve(Frontier(**json.loads(told)))

    def _close_verdict(self) -> None:
        if self._verdict is not None:
            os.close(self._verdict)
            self._verdict = None

    def _look(self, least: int = ENOUGH_STEPS) -> None:
        """End the scout once it has seen enough."""
        made = max(self._steps, self._backwards if not self._steps else 0)
        if made < least and time.monotonic() - self._trained_at < ENOUGH_SECONDS:
            return
        self.seen.optimizers = self.hooks.optimizers
        self.seen.models = self.seen.models or models_trained_by(self.seen.optimizers)
        self.seen.compiles = self.hooks.compiles
        self.seen.threads, self.seen.interop_threads = self.hooks.threads, self.hooks.interop_threads
        self.seen.users_threads = self.users_threads
        skip = 0 if self.seen.loader is None else self._loaders - 1
        facts = self.hooks.unseen(lambda: script_facts(self.script.name, self.seen, skip).as_dict())
        frontier = Frontier(facts, self.no_fork_reason)
        if self._verdict is not None:
            os.write(self._verdict, json.dumps(asdict(frontier)).encode())
        else:
            self._found(frontier)
        leave()


class _Watched(Iterator[Any]):
    """A pass that the scout looks at."""

    def __init__(self, scout: Scout, passing: Iterator[Any], loader: DataLoader[Any]) -> None:
        self._scout, self._passing, self._loader = scout, passing, loader

    def __next__(self) -> Any:
        try:
            batch = self._scout.hooks.unseen(self._passing.__next__)
        except StopIteration:
            self._scout._pass = None
            raise
        self._scout.takes(batch)
        return batch

    def __len__(self) -> int:
        return len(self._loader)


def is_training(hooks: Hooks) -> bool:
    """Return whether the script may be training now: gradients are recorded, and there is an optimizer."""
    return torch.is_grad_enabled() and bool(hooks.optimizers)


def is_trainable(model: nn.Module) -> bool:
    """Return whether any parameter of ``model`` is trained."""
    return any(parameter.requires_grad for parameter in model.parameters())


def models_trained_by(optimizers: list[Optimizer]) -> list[nn.Module]:
    """Return the outermost models of this process of which ``optimizers`` train parameters."""
    held = set(map(id, parameters_of(*optimizers)))
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    inner = {id(child) for module in modules for child in module._modules.values()}
    return [m for m in modules if id(m) not in inner and any(id(p) in held for p in m.parameters())]


def leave(code: int = 0) -> None:
    """End this process at once, whatever the script would still do."""
    as_main.flush()
    for child in active_children():
        child.kill()
    os._exit(code)


def _own_processes() -> str | None:
    """Why the processes of the script forbid a fork: loader workers answer one process only."""
    count = len(active_children())
    return f"the script runs {count} process(es) of its own by then" if count else None
