"""Settings in force for a running script. What it trains with is changed only if a setting differs from its own.

Process-wide settings are made when PyTorch is imported, and nothing else is installed for them. Loaders are changed in
place, when the script begins to iterate them; their batch when they are built, since schedules are made from their
length. An optimizer and the model that it trains are changed just before the
optimizer's first step: by then both exist, and nothing that compilers look at has to be replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from autotune.decoding import decoded
from autotune.environment import is_first
from autotune.knobs.change import Change, Refused, replace
from autotune.knobs.optimizer_impl import parameters_of
from autotune.knobs.settings import KNOBS, Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import ending
from autotune.runtime.notes import tell

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader

ALWAYS = {"threads", "interop_threads"}
"""Trials are forked from a process of one thread: these are applied even if the script's own are the same."""
LATE_PASSES, LATE_STEPS = 1, 200
"""A loader or optimizer that was not used for so many passes or steps of others is put back and forgotten if a new one
comes: a script may build them anew for each epoch or fold, and drop them."""


@dataclass(frozen=True)
class SharedBatch:
    """The batch that a script states, and what each process trains on: its share, or at ``max`` another batch.

    Attributes:
        batch: the one that the script states.
        share: what each process gets in its place.
        samples: of the dataset that the script trains on; loaders over others are left alone.
    """

    batch: int
    share: int
    samples: int | None

    def building(
        self, original: Callable[..., None], built: Callable[[DataLoader[Any]], object] = id
    ) -> Callable[..., None]:
        """Return ``DataLoader.__init__`` with the share in place of the batch; ``built`` gets the loaders with it."""
        from autotune.runtime.loaders import length

        def build(
            loader: DataLoader[Any], dataset: Any, batch_size: int | None = 1, *arguments: Any, **options: Any
        ) -> None:
            if changes := batch_size == self.batch and self.samples == length(dataset):
                batch_size = self.share
            original(loader, dataset, batch_size, *arguments, **options)
            if changes:
                built(loader)

        return build

    def why_not(self, loader: Any) -> str | None:
        """Return why processes that train on ``loader`` would not share the batch that was tuned; None if they do."""
        import torch.distributed as dist

        from autotune.runtime.loaders import stated_batch

        world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        processes, own = self.batch // self.share, stated_batch(loader)
        if world == processes and own == self.share:
            return None
        found = f"it would train on batches of {own}" if world == processes else f"its process group has {world}"
        return (
            f"{processes} processes were tuned to share batches of {self.batch} of {self.samples} samples, but this is"
            f" not so here: {found}. Start it as one process (autotune run --nproc 1), or tune it as it is started now"
        )


@dataclass(frozen=True)
class Order:
    """The settings that `autotune run` hands to the process of a script.

    Attributes:
        settings: to put in force.
        baseline: what the script has itself: a knob with the same value is left alone.
        compared: what tuning has compared with plain PyTorch.
        level: of the settings.
        device: that was tuned.
        shared_batch: the share of the batch of each of several processes, or the other batch of ``max``; else None.
        expected: steps a second that the profile promises; None if nobody asks at the end.
        by_batch: a batch that is read is a step, not a step of the optimizer.
    """

    settings: Settings
    baseline: Settings
    compared: Fingerprint
    level: str | None = None
    device: str | None = None
    shared_batch: SharedBatch | None = None
    expected: float | None = None
    by_batch: bool = True

    def as_text(self) -> str:
        """Return it for a variable of the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Order:
        """Return the inverse of `as_text`."""
        return decoded(cls, json.loads(text))

    @property
    def changed(self) -> frozenset[str]:
        """Return the knobs that differ from the script's own."""
        return frozenset(self.settings.difference(self.baseline))


class LatelyUsed:
    """Items in the order of their last use.

    Args:
        uses: of all of them, after which one that was not among them is late.
    """

    def __init__(self, uses: int) -> None:
        self._uses, self.count = uses, 0
        self._last: dict[int, tuple[weakref.ref[Any], int]] = {}

    def adds(self, item: Any) -> bool:
        """Note a use of ``item``. Return True if it is new."""
        self.count += 1
        known, _when = self._last.pop(id(item), (lambda: None, 0))
        self._last[id(item)] = weakref.ref(item), self.count
        return known() is not item

    def late(self) -> list[Any]:
        """Forget items that were not used lately, and return them."""
        late = {number: item() for number, (item, last) in self._last.items() if last < self.count - self._uses}
        for number in late:
            del self._last[number]
        return [item for item in late.values() if item is not None]


class Applied:
    """An order in force.

    Args:
        order: what to apply.
        strict: raise if something cannot be applied, as trials do; else the script runs on as it is.

    Attributes:
        session: the runtime that applies it.
    """

    def __init__(self, order: Order, *, strict: bool = False) -> None:
        from autotune.runtime.session import Session

        self.order, self._strict = order, strict
        self.session = Session(
            order.settings,
            order.device,
            level=order.level,
            origin="autotune run",
            announce=not strict,
            moves=False,
            compared=order.compared,
            knobs=order.changed | (ALWAYS if strict else set()),
            resizes=strict and "batch_size" in order.changed,
        )
        self._resized: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
        self._undo: list[Callable[[], object]] = []
        self._hook: Any = None
        self._loaders, self._optimizers = LatelyUsed(LATE_PASSES), LatelyUsed(LATE_STEPS)
        self._stepping = self._is_over = self._is_beside_tuned = False
        self._process = os.getpid()
        self._rate = None if order.expected is None else ending.StepRate(order.expected)

    def install(self) -> None:
        """Hook into what the changed knobs need, and no more."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        from torch.utils.data import DataLoader

        counts, by_batch = self._rate is not None, self.order.by_batch
        if self._needs("on_loader") or self.order.shared_batch is not None or (counts and by_batch):
            self._undo.append(replace(DataLoader, "__iter__", self._iterating))
        if self.order.shared_batch is not None:
            build = partial(self.order.shared_batch.building, built=self._resized.add)
            self._undo.append(replace(DataLoader, "__init__", build))
        if self._needs("on_model") or self._needs("on_optimizer"):
            self._hook = register_optimizer_step_pre_hook(self.before_step)
        if self._rate is not None and not by_batch:
            self._undo.append(register_optimizer_step_post_hook(self._rate.count).remove)
        if not self._strict:
            atexit.register(self._at_the_end)

    def _at_the_end(self) -> None:
        """Leave PyTorch's classes, which outlive the script: what they hold of it would never be closed or flushed."""
        if os.getpid() != self._process:
            return
        if is_first(os.environ) and getattr(sys, "last_value", None) is None and not self._is_over:
            self._say()
        ending.say()
        with contextlib.suppress(Exception):
            self.remove()

    def _say(self) -> None:
        """Say in one line how fast the script was, if it was asked, or that it has not trained."""
        if (self._undo or self._hook) and not (
            self._loaders.count + self._optimizers.count or (self._rate and self._rate.steps)
        ):
            tell("the script has not trained here: its profile had no effect")
        elif self._rate is not None:
            tell(str(self._rate))

    def remove(self) -> None:
        """Put everything back."""
        self._is_over = True
        while self._undo:
            self._undo.pop()()
        if self._hook is not None and not self._stepping:  # in a step, PyTorch goes through its hooks
            self._hook.remove()
        self.session.close()

    def _needs(self, hook: str) -> bool:
        return any(getattr(knob, hook) is not None for knob in KNOBS if knob.name in self.order.changed)

    def _iterating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        from autotune.runtime.sharing import Passing

        def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
            self.loader(loader)
            begun: Iterator[Any] = original(loader)
            rate = self._rate if self.order.by_batch and torch.is_grad_enabled() else None
            return begun if rate is None else Passing(begun, rate.takes)

        return iterate

    def loader(self, loader: DataLoader[Any]) -> None:
        """Change a loader that the script is about to train on."""
        import torch

        if torch.is_grad_enabled() and not self._is_over and self._loaders.adds(loader):
            for late in self._loaders.late():
                self._safely(partial(self.session.release, late))
            self._safely(lambda: self._prepare_loader(loader))

    def before_step(self, optimizer: Optimizer, *_: object) -> None:
        """Change an optimizer that is about to make its first step, and the models that it trains."""
        if not self._is_over and self._optimizers.adds(optimizer):
            self._stepping = True
            try:
                self._safely(self._release_late)
                self._safely(lambda: self.session.prepare(*self._models_of(optimizer), optimizer))
            finally:
                self._stepping = False

    def _release_late(self) -> None:
        """Hold optimizers that have not stepped lately no longer, nor models that no other trains: the script may have
        dropped them. What is used again is prepared again."""
        late = self._optimizers.late()
        for optimizer in late:
            self.session.release(optimizer)
        held = set(map(id, parameters_of(*self.session.optimizers)))
        for model in [*self.session.models] if late else ():
            if not any(id(parameter) in held for parameter in model.parameters()):
                self.session.release(model)

    def _prepare_loader(self, loader: DataLoader[Any]) -> None:
        shared = self.order.shared_batch
        if shared is not None and not self._strict:
            if self.order.settings.processes == 1:
                self._check_batch(loader, shared)
            elif (reason := shared.why_not(loader)) is not None:
                raise SystemExit(f"autotune: {reason}")
        self.session.prepare(loader)

    def _check_batch(self, loader: DataLoader[Any], shared: SharedBatch) -> None:
        """Give a loader its own batch back, unless it and a model of this process are like those that were tuned."""
        from autotune.runtime import fingerprints, loaders

        if loader not in self._resized:
            return
        tuned = self.order.compared
        if not self._is_beside_tuned:
            self._is_beside_tuned = any(fingerprints.of_model(model) in tuned.models for model in modules())
        if fingerprints.of_loader(loader) in tuned.loaders and self._is_beside_tuned:
            self.session.keep("batch_size", Change())
            return
        loaders.batch_change(loader, shared.batch)
        why = f"the model or the data set is not the one that was tuned; len(loader) was of batches of {shared.share}"
        self.session.keep("batch_size", Refused(why))

    def _models_of(self, optimizer: Optimizer) -> list[nn.Module]:
        """Return the models of which ``optimizer`` trains parameters: those like the tuned ones, and the outermost of
        the others, which the session refuses and says so."""
        from autotune.runtime import fingerprints

        if not self._needs("on_model"):
            return []
        held, outermost = set(map(id, parameters_of(optimizer))), models_trained_by([optimizer])
        waiting = list(outermost)
        models: list[nn.Module] = []
        while waiting:
            module = waiting.pop()
            if not any(id(parameter) in held for parameter in module.parameters()):
                continue
            if fingerprints.of_model(module) in self.order.compared.models:
                models.append(module)
            else:
                waiting += [child for child in module._modules.values() if child is not None]
        found = {id(parameter) for model in models for parameter in model.parameters()}
        return models + [m for m in outermost if any(id(p) in held - found for p in m.parameters())]

    def _safely(self, work: Callable[[], Any]) -> None:
        """Do ``work``. A real training goes on, as it is, if settings cannot be applied."""
        try:
            work()
        except Exception as error:
            if self._strict:
                raise
            self.remove()
            tell(f"the script runs as it is: {type(error).__name__}: {error}")


def models_trained_by(optimizers: Sequence[Optimizer]) -> list[nn.Module]:
    """Return the outermost models of this process of which ``optimizers`` train parameters."""
    held, found = set(map(id, parameters_of(*optimizers))), modules()
    inner = {id(child) for module in found for child in module._modules.values()}
    return [m for m in found if id(m) not in inner and any(id(p) in held for p in m.parameters())]


def modules() -> list[nn.Module]:
    """Return all modules of this process: by a walk, since hooks would be seen or see less (decision 029)."""
    from torch import nn

    return [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
