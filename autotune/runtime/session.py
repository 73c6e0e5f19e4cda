"""`load` and the `Session` it returns: settings applied to one training loop, with Accelerate's method names."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.environment import DISABLE, disabled
from autotune.errors import ProfileError, UsageError
from autotune.knobs import precision
from autotune.knobs.binding import own_affinity
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.level import LEVELS
from autotune.knobs.optimizer_impl import parameters_of
from autotune.knobs.settings import KNOB_NAMES, KNOBS, Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import ending, fingerprints, loaders, processes
from autotune.runtime.gradient_sync import GradientSync
from autotune.runtime.notes import Notes, tell
from autotune.runtime.shards import Progress, Shard
from autotune.runtime.sharing import Sharing, divides_itself

CONTAINED = (nn.Module, Optimizer, DataLoader)
NOT_LOADERS = (nn.Module, DataLoader, Tensor, list, tuple, dict, str)
OTHER = {
    "models": "the model is not the one that was tuned",
    "optimizers": "the optimizer is not the one that was tuned",
    "loaders": "the data set is not the one that was tuned",
}


class Session(contextlib.AbstractContextManager["Session"]):
    """Settings in force for one training loop, from construction to `close`.

    A model, optimizer or loader is changed only if a setting differs from what it has.

    Args:
        settings: what to apply; None for baseline behaviour: only devices and launched processes are handled.
        device: ``cpu`` or ``cuda``; CUDA if there is any if None.
        init_method: where processes meet; ``MASTER_ADDR`` and ``MASTER_PORT`` if None.
        level: the level the settings come from. None in trials, which apply exactly the settings.
        origin: where the settings come from, for people.
        announce: print notes through the ``autotune`` logger, on the main process.
        moves: put models and batches on the device, and share the work out among processes. An unmodified script does
            both itself.
        compared: what tuning has compared with plain PyTorch; nothing else is changed. None in trials.
        knobs: those that differ from the user's own settings; the others are left alone.
        resizes: give the loader that is trained on another batch, if the settings have one.

    Attributes:
        device: where batches and models go.
        rank, world_size: this process's place among the training processes; also ``process_index``, ``num_processes``.
        is_main: True on the process that should print and save; also ``is_main_process``.
        local_process_index: this process's number on its machine.
        autocast: makes a context manager with the precision of the model's forward, for other parts of the loop.
        models, optimizers: those that are prepared.
        sync: averages gradients over processes; None in one process.
        seen: fingerprints of all that was prepared.
    """

    def __init__(
        self,
        settings: Settings | None,
        device: str | None = None,
        init_method: str | None = None,
        level: str | None = None,
        *,
        origin: str = "",
        announce: bool = False,
        moves: bool = True,
        compared: Fingerprint | None = None,
        knobs: Collection[str] = KNOB_NAMES,
        resizes: bool = True,
    ) -> None:
        self.settings, self.level, self.origin = settings, level, origin
        self.device = processes.own_device(device, os.environ)
        self.models: list[nn.Module] = []
        self.seen = Fingerprint()
        self._moves, self._compared, self._resizes = moves, compared, resizes
        self._knobs = [knob for knob in KNOBS if knob.name in knobs and settings is not None]
        self._notes, self._progress = Notes(of_script=not moves), Progress()
        self._trained_on: tuple[DataLoader[Any] | None, tuple[Any, Any], int | None] | None = None
        self._prepared: dict[int, tuple[Any, list[Change]]] = {}
        """Each item, and what was changed for it. A loader ends with the user's last reference: its data are large."""
        self._changes: list[Change] | None = None
        """Of the item that is being prepared."""
        self._in_force: dict[str, list[Change]] = {}
        self._restore = contextlib.ExitStack()
        self._training = Training(self.device, own_affinity(os.environ))
        self.optimizers: list[Optimizer] = []
        try:
            self._join(init_method)
            self._notes.announce = announce and self.is_main
            for knob in self._knobs:
                value = getattr(settings, knob.name)
                if knob.start is not None and knob.changes(value):
                    change = knob.start(value, self._training)
                    self.keep(knob.name, change)
                    if change is not None:
                        self._training.started[knob.name] = change
        except BaseException:
            self._restore.close()
            raise
        self._precision = precision.of(self._training)
        self.autocast = self._precision.autocast
        if announce and settings is not None:
            self._restore.callback(ending.explain(self._applied))

    def _join(self, init_method: str | None) -> None:
        """Join the other processes."""
        world = processes.started_as(os.environ)
        if self._moves:
            world = processes.join_for(self.settings, self.device, init_method, self._notes, self._restore)
        self.rank, self.world_size, self.is_main = world.rank, world.size, world.rank == 0
        self.process_index, self.num_processes, self.is_main_process = self.rank, self.world_size, self.is_main
        self.local_process_index = int(os.environ.get("LOCAL_RANK", self.rank))
        self.is_local_main_process = self.local_process_index == 0
        self.sync: GradientSync | None = None
        if self._moves and world.size > 1:
            self.sync = GradientSync(self.device, self._progress, self._notes)
            self._restore.callback(self.sync.finish)
        self._sharing = Sharing(world, self.device, self._progress, self._notes, self.models)
        self._restore.callback(self._sharing.numbers.end)

    def keep(self, knob: str, change: Change | None) -> None:
        """Remember a change, to be undone at the end; note why it did not take effect."""
        if change is not None:
            self._undo_later(change)
            self._in_force.setdefault(knob, []).append(change)
            self._notes.not_applied(knob, change.why_not())

    def _undo_later(self, change: Change) -> None:
        if self._changes is None:
            self._restore.callback(change.undo)
        else:
            self._changes.append(change)

    # What the user's loop calls -----------------------------------------------------------------------------------

    def prepare(self, *objects: Any) -> Any:
        """Make models, optimizers and loaders, in any order and number, ready to train; return others as they are.

        All stay the user's own objects. A loader's batch is the global one, over all processes.

        Args:
            objects: what to prepare.

        Raises:
            TypeError: a list, tuple or dictionary holds what is to be prepared: hand each over by itself.
        """
        for item in objects:
            _refuse_container(item)
        for kind in CONTAINED:  # models first, whatever the order
            for item in objects:
                if isinstance(item, kind):
                    self._prepare(item)
                elif kind is DataLoader and self.sync is not None:
                    self._pass_over(item)
        return objects[0] if len(objects) == 1 else objects

    def no_sync(self, *models: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """Keep gradients of ``models``, or of all, in this process while inside: for gradient accumulation.

        Put it around the forward and backward passes of every batch but the last one before `Optimizer.step`. Without
        it the result is the same, at the cost of gradient sync for every batch.
        """
        return contextlib.nullcontext() if self.sync is None else self.sync.no_sync(models)

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Run the backward pass, with the weight of this process's part of the batch and this precision's scale."""
        if self.sync is not None:
            weight = self.part.weight
            loss = loss if weight == 1.0 else loss * weight
            if self._progress.mixed:
                self._notes.add("two loaders are read together whose batches are shared out unequally")
            self.sync.before_backward()
        self._precision.backward(loss, **options)
        if self.sync is not None:
            self.sync.after_backward()

    def mean(self, value: Tensor | float) -> float:
        """Return the whole batch's ``value``, of which each process has its part's: such as a loss to decide by."""
        own = value.item() if isinstance(value, Tensor) else value
        return own if self.sync is None else self.sync.mean(own)

    def clip_grad_norm_(self, parameters: Tensor | Iterable[Tensor], max_norm: float, **options: Any) -> Tensor:
        """Clip unscaled gradients. Returns their norm, as `torch.nn.utils.clip_grad_norm_` does."""
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        ids = {id(parameter) for parameter in parameters}
        self._precision.unscale([o for o in self.optimizers if any(id(p) in ids for p in parameters_of(o))])
        return nn.utils.clip_grad_norm_(parameters, max_norm, **options)

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the module inside the user's own wrappers: no ``module.`` and no ``_orig_mod.`` in its state dict.

        What `prepare` returns is the user's own model already.
        """
        while True:
            wrapped = isinstance(model, DistributedDataParallel | nn.DataParallel)
            inner: nn.Module | None = getattr(model, "module" if wrapped else "_orig_mod", None)
            if inner is None:
                return model
            model = inner

    unwrap_model = unwrap

    def wait_for_everyone(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            dist.barrier()

    def print(self, *values: Any, **options: Any) -> None:
        """Print as Python does, on the main process only."""
        if self.is_main:
            print(*values, **options)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs beside models, optimizers and schedulers."""
        return self._precision.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave; a state from another precision is ignored."""
        self._precision.load_state_dict(state)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for the user, oldest first."""
        return tuple(self._notes.texts)

    @property
    def part(self) -> Shard:
        """Return this process's part of the current batch. Losses times ``part.weight``, averaged over processes, are
        the loss of the global batch."""
        return self._progress.part

    @property
    def not_applied(self) -> tuple[tuple[str, str], ...]:
        """Return ``(knob, reason)`` for whatever was asked and is not in force, read back now."""
        reasons = dict(self._notes.reasons)
        if self.settings is not None and not self._moves:
            reasons |= processes.why_not_of_script(self.settings)
        for knob, changes in self._in_force.items():
            reason = next(filter(None, (change.why_not() for change in changes)), None)
            if reason is not None:
                reasons[knob] = reason
        return tuple(reasons.items())

    @property
    def skipped_steps(self) -> int:
        """Return the optimizer steps that the gradient scaler skipped."""
        self._precision.settle()
        return self._precision.skipped_steps

    def close(self) -> None:
        """Leave the process group and put everything back that was changed. Random numbers are never touched."""
        for _item, changes in list(self._prepared.values()):
            for change in changes:
                self._restore.callback(change.undo)
        self._prepared.clear()
        self._restore.close()

    def release(self, item: Any) -> None:
        """Put back what was changed for ``item``, and hold it no longer; nothing if it is not prepared."""
        self._release(id(item))
        self.models[:] = [model for model in self.models if model is not item]
        self.optimizers[:] = [optimizer for optimizer in self.optimizers if optimizer is not item]

    def _release(self, number: int) -> None:
        _item, changes = self._prepared.pop(number, (None, []))
        for change in reversed(changes):
            change.undo()
        gone = set(map(id, changes))
        for known in self._in_force.values():
            known[:] = [change for change in known if id(change) not in gone]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None = None, *_traceback: object
    ) -> None:
        """Close. A process that failed stops answering: the others would train on without its share."""
        if kind is not None and self.sync is not None:
            self.sync.abandon()
        applied = self._applied() if error is not None and self._notes.announce else ""
        self.close()
        if applied:
            ending.explain(lambda: applied, error)

    def __repr__(self) -> str:
        """Return one line, for prompts and logs."""
        if self.settings is None:
            return f"<Session without a profile ({self.origin})>"
        missing = dict(self.not_applied)
        applied = self._applied().partition(": ")[2] or "nothing"
        parts = [f"level {self.level}", self.origin, f"applied: {applied}"]
        parts += [f"not applied: {'; '.join(f'{name} ({why})' for name, why in missing.items())}"] * bool(missing)
        return f"<Session {'; '.join(filter(None, parts))}>"

    def _applied(self) -> str:
        """Return the level and the knobs that are in force; nothing if none is."""
        missing = dict(self.not_applied)
        names = [name for name in self._in_force if name not in missing]
        names += ["processes"] * (self.world_size > 1 and "processes" not in missing)
        values = ", ".join(f"{name}={getattr(self.settings, name)}" for name in names)
        return f"level {self.level}: {values}" if values else ""

    # How things are prepared ----------------------------------------------------------------------------------------

    def _prepare(self, item: Any) -> None:
        if id(item) in self._prepared:
            return
        self._changes = []
        may_end = isinstance(item, DataLoader) and self.world_size == 1  # ranks end what they share together
        ends = partial(_forget, weakref.ref(self), id(item))
        self._prepared[id(item)] = weakref.ref(item, ends) if may_end else item, self._changes
        try:
            if isinstance(item, nn.Module):
                self.models.append(item)
                self._model(item)
            elif isinstance(item, Optimizer):
                self.optimizers.append(item)
                self._optimizer(item)
            else:
                self._loader(item)
        finally:
            self._changes = None

    def _model(self, model: nn.Module) -> None:
        if self._moves:
            model.to(self.device)
        self._change("models", fingerprints.of_model, "on_model", model)
        if self.sync is not None:
            self._undo_later(self.sync.model(model))
            if any(isinstance(module, _BatchNorm) for module in model.modules()):
                self._notes.add("BatchNorm normalises over each process's share of a batch")

    def _optimizer(self, optimizer: Optimizer) -> None:
        if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
            return  # a wrapper of the user's that is an optimizer in name only
        self._change("optimizers", fingerprints.of_optimizer, "on_optimizer", optimizer)
        if self.sync is not None:
            self._undo_later(self.sync.optimizer(optimizer))

    def _change(self, kind: str, fingerprint: Callable[[Any], str], hook: str, item: Any) -> None:
        """Let each knob change ``item``, if tuning has compared one like it."""
        if self.settings is None:
            return
        compared = self._is_compared(kind, fingerprint, item)
        for knob in self._knobs:
            act = getattr(knob, hook)
            value = getattr(self.settings, knob.name)
            later = not compared and self.level is None and knob.name in self._in_force  # in a trial: left alone too
            if act is None or not knob.changes(value) or later:
                continue
            self.keep(knob.name, act(value, item, self._training) if compared else Refused(OTHER[kind]))

    def _is_compared(self, kind: str, fingerprint: Callable[[Any], str], item: Any) -> bool:
        digest = fingerprint(item)
        self.seen = self.seen.with_one(kind, digest)
        return self._compared is None or digest in getattr(self._compared, kind)

    def _loader(self, loader: DataLoader[Any]) -> None:
        if self._trained_on is None:  # a script may drop its loader, and build it anew
            self._trained_on = loader if self._moves else None, loaders.kinds(loader), loader.batch_size
        first, kinds, batch = self._trained_on
        if self.settings is not None:
            again = loaders.kinds(loader) == kinds if first is None else loaders.reads_like(loader, first)
            if again and loader.batch_size == batch:
                self._resize(loader, self.settings)
            if any(knob.on_loader is not None for knob in self._knobs):
                self._workers(loader, self.settings)
        if first is not None:
            self._undo_later(self._sharing.serve(loader, first))

    def _workers(self, loader: DataLoader[Any], settings: Settings) -> None:
        """Give the loader the workers of ``settings``, if tuning has compared one like it."""
        compared = self._is_compared("loaders", fingerprints.of_loader, loader)
        asked = loaders.asked_of(loader, settings, self._training)
        if not asked:
            return
        names = ["num_workers"] if "num_workers" in asked else [*asked]
        own = f"kept at {loader.num_workers}: " if "num_workers" in asked else ""

        def note(reason: str) -> None:
            for name in names:
                self._notes.not_applied(name, f"{own}{reason}")

        change: Change | str = OTHER["loaders"]
        if compared:
            change = loaders.workers_change(loader, asked.values(), settings.num_workers, note)
        kept = Refused(f"{own}{change}") if isinstance(change, str) else change
        for name in names:
            self.keep(name, kept)

    def _resize(self, loader: DataLoader[Any], settings: Settings) -> None:
        """Give the loader that is trained on the global batch of its level, or keep the user's own."""
        own, any_batch = loader.batch_size, self.level is not None and LEVELS[self.level].any_batch
        if own is None:
            if any_batch:
                self._notes.not_applied("batch_size", "the loader makes batches of its own")
            return
        alone = self._moves and not divides_itself(loader, self.world_size)
        ranks = 1 if alone else self.world_size  # a script's loader is that of one process
        wanted = settings.global_batch // ranks
        reason = loaders.why_not_resized(loader, wanted)
        if self._compared is not None and self.seen.models and not set(self.seen.models) & set(self._compared.models):
            reason = OTHER["models"]
        grows = self._resizes and (any_batch or not self._moves)  # a trial applies exactly the settings
        if wanted == own or (self.level is None and self._moves):
            return
        if grows and reason is None:
            self.keep("batch_size", loaders.batch_change(loader, wanted))
            self._notes.add(
                f"batches of {wanted} in place of {own}: len(loader) has changed, and schedules made from it"
            )
            return
        if grows:
            self._notes.not_applied("batch_size", reason)
        self._notes.add(f"your batch of {own * ranks} is kept; the profile was measured with {settings.global_batch}")

    def _pass_over(self, item: Any) -> None:
        """Note what looks like a loader and is none: nothing shares it out among the processes."""
        if hasattr(item, "__iter__") and not isinstance(item, (*NOT_LOADERS, Optimizer)):
            self._notes.not_applied("processes", f"a {type(item).__name__} is not shared out: it is no DataLoader")


def _forget(known: weakref.ref[Session], number: int, _ended: object) -> None:
    """Drop what a session knows of a loader that has ended."""
    session = known()
    if session is not None:
        session._release(number)


def _refuse_container(item: Any) -> None:
    """Raise `TypeError` if ``item`` is a plain container of what is to be prepared: nothing would happen to it."""
    if type(item) not in (list, tuple, dict):
        return
    inner, words = (item.values(), "*objects.values()") if isinstance(item, dict) else (item, "*objects")
    if any(isinstance(each, CONTAINED) for each in inner):
        raise TypeError(f"prepare() got a {type(item).__name__} of what it prepares. Write tuned.prepare({words})")


def load(
    path_or_url: str | Path | None = None,
    *,
    target: str | None = None,
    level: str | None = None,
    strict: bool = True,
) -> Session:
    """Apply the best profile for this machine and script. A profile that it finds by itself never raises.

    Args:
        path_or_url: a profile; else ``AUTOTUNE_PROFILE``, else the best match for this machine and ``target``. A URL is
            read within 10 s and kept in the user's cache, which serves if it cannot be read.
        target: what was tuned; the running script's name in its project if None.
        level: one of `LEVELS`; else ``AUTOTUNE_LEVEL``, else what the profile recommends.
        strict: raise if ``path_or_url`` or ``level`` cannot be met; else training runs without, with one note.

    Raises:
        ProfileError: ``path_or_url`` is no valid profile.
        UsageError: there is no such ``level``.
        TypeError: an argument is no text.

    Returns:
        A session; with baseline behaviour, noted once, if no profile fits or ``AUTOTUNE_DISABLE`` is set.
    """
    for name, value in (("path_or_url", path_or_url), ("target", target), ("level", level)):
        if not isinstance(value, str | os.PathLike | None):
            raise TypeError(f"load() got {name}={value!r}: give text")
    off = disabled(os.environ)
    session = Session(None, origin=DISABLE) if off else _chosen(path_or_url, target, level, strict=strict)
    if session.world_size > 1:
        atexit.register(processes.settle)  # called last
        atexit.register(_close_at_exit, session)
    return session


def _close_at_exit(session: Session) -> None:
    """Close; if another process has failed meanwhile, its own error explains more."""
    try:
        session.__exit__(getattr(sys, "last_type", None))  # an uncaught error
    except RuntimeError as error:
        words = str(error).partition("\n")[0]
        tell(f"another process of this training ended early: {words[:200]}")


def _chosen(path_or_url: str | Path | None, target: str | None, level: str | None, *, strict: bool) -> Session:
    from autotune.runtime.choice import Choice, choose  # here: trials have their settings

    try:
        choice = choose(path_or_url, target, level, os.environ)
    except Exception as error:  # whatever is wrong with a profile or a probe, training goes on
        if strict and (isinstance(error, UsageError) or (path_or_url and isinstance(error, ProfileError))):
            raise
        choice = Choice(notes=(f"training runs without a profile: {str(error) or type(error).__name__}",))
    session = Session(
        choice.settings,
        choice.device,
        level=choice.level,
        origin=choice.origin,
        announce=True,
        compared=choice.compared,
    )
    session._notes.add(*choice.notes)
    return session
