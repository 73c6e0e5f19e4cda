"""`load` and the `Session` it returns: settings applied to one training loop, with Accelerate's habits."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autotune.core.binding import own_affinity
from autotune.core.errors import ProfileError, UsageError
from autotune.core.identity import Made
from autotune.core.overrides import DISABLE, overrides
from autotune.core.settings import Settings
from autotune.runtime import processes, watchdog
from autotune.runtime.accelerate_names import AccelerateNames
from autotune.runtime.applier import Training, create_appliers
from autotune.runtime.appliers.precision import Precision
from autotune.runtime.dealing import Part
from autotune.runtime.described import Described
from autotune.runtime.notes import Notes
from autotune.runtime.pace import Pace
from autotune.runtime.preparer import Preparer


class Session(Described, AccelerateNames, contextlib.AbstractContextManager["Session"]):
    """Settings in force for one training loop, from construction to `close`.

    Args:
        settings: what to apply; None for baseline behaviour: devices and launched processes are served, no more.
        device: ``cpu`` or ``cuda``; CUDA where there is any if None.
        init_method: where processes meet; ``MASTER_ADDR`` and ``MASTER_PORT`` if None.
        level: the level the settings come from. None in trials, which obey the settings alone.
        origin: where the settings come from, for people.
        notes: what is already to be said.
        timeout: seconds a collective may take; PyTorch's default if None.
        announce: say notes through the ``autotune`` logger, on the main process.
        step_seconds: what an optimizer step should take; one warning, with the likely cause, where it takes longer.
        moves: put models and batches on the device, and share the work out among processes. An unmodified script does
            both itself.
        made: what the profile was made for; one warning where something else is trained.

    Attributes:
        device: where batches and models go.
        rank, world_size: this process's place among the training processes.
        is_main: True on the process that should print and save.
        autocast: makes a context manager with the precision of the model's forward, for other parts of the loop.
        preparer: what is prepared, which trials look at.
    """

    def __init__(
        self,
        settings: Settings | None,
        device: str | None = None,
        init_method: str | None = None,
        level: str | None = None,
        *,
        origin: str = "",
        notes: Iterable[str] = (),
        timeout: float | None = None,
        announce: bool = False,
        step_seconds: float | None = None,
        moves: bool = True,
        made: Made | None = None,
    ) -> None:
        self.settings, self.level, self.origin = settings, level, origin
        self.device = processes.own_device(device, os.environ)
        self._notes = Notes(notes)
        self._restore = contextlib.ExitStack()
        try:
            if moves:
                world = processes.join_for(settings, self.device, init_method, timeout, self._notes)
            else:
                world = processes.of_script(settings, self._notes)
            self._restore.callback(world.leave)
            self.rank, self.world_size, self.is_main = world.rank, world.size, world.rank == 0
            self._notes.announce = announce and self.is_main
            own = settings if moves or settings is None else settings.but(processes=1)
            together = world if moves else processes.World()
            self._training = Training(
                own, level, self.device, together, own_affinity(os.environ), self._notes, moves=moves
            )
            for knob, applier in create_appliers(self._training).items():
                self._restore.callback(applier.undo)
                self._notes.not_applied(knob, applier.start())
        except BaseException:
            self._restore.close()
            raise
        self._precision = cast(Precision, self._training.appliers["precision"])
        self.autocast = self._precision.autocast
        pace = _pace(step_seconds, self._notes)
        self.preparer = Preparer(self._training, self._precision, pace, made)

    # What the user's loop calls -----------------------------------------------------------------------------------

    def prepare(self, *objects: Any, find_unused_parameters: bool = False) -> Any:
        """Models, optimizers and loaders, in any order and number, ready to train; others as they are.

        Models and optimizers stay the user's own objects. A loader's batch is the global one, over all processes.

        Args:
            objects: what to prepare.
            find_unused_parameters: for several processes, where some parameters take no part in some losses.

        Raises:
            TypeError: a list, tuple or dictionary holds what is to be prepared: hand each over by itself.
        """
        prepared = self.preparer.prepare(objects, find_unused_parameters)
        return prepared[0] if len(prepared) == 1 else prepared

    def no_sync(self, *models: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """For gradient accumulation: gradients of ``models``, or of all, stay in this process while inside.

        Put it around the forward and backward passes of every batch but the last one before `Optimizer.step`. Without
        it the result is the same, at the cost of an exchange for every batch.
        """
        exchange = self.preparer.exchange
        return contextlib.nullcontext() if exchange is None else exchange.no_sync(models)

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Backward pass, with the weight of this process's part of the batch and the scale of this precision."""
        exchange, progress = self.preparer.exchange, self._training.progress
        if exchange is not None:
            weight = progress.part.weight
            loss = loss if weight == 1.0 else loss * weight
            if progress.mixed:
                self._notes.say("two loaders are read together whose batches are shared out unequally")
            exchange.before_backward()
        self._precision.backward(loss, **options)
        progress.steps += 1
        if exchange is not None:
            exchange.after_backward()

    def mean(self, value: Tensor | float) -> float:
        """The whole batch's ``value``, of which each process has its part's: such as a loss to decide by."""
        own = value.item() if isinstance(value, Tensor) else value
        exchange = self.preparer.exchange
        return own if exchange is None else exchange.mean(own)

    def clip_grad_norm_(self, parameters: Tensor | Iterable[Tensor], max_norm: float, **options: Any) -> Tensor:
        """Clip unscaled gradients. Returns their norm, as `torch.nn.utils.clip_grad_norm_` does."""
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        self._precision.unscale(self.preparer.owners(parameters))
        return nn.utils.clip_grad_norm_(parameters, max_norm, **options)

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The module inside the user's own wrappers: no ``module.`` and no ``_orig_mod.`` in its state dict.

        What `prepare` returns is the user's own model already.
        """
        while True:
            wrapped = isinstance(model, DistributedDataParallel | nn.DataParallel)
            inner: nn.Module | None = getattr(model, "module" if wrapped else "_orig_mod", None)
            if inner is None:
                return model
            model = inner

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside models, optimizers and schedulers."""
        return self._precision.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; a state from another precision is ignored."""
        self._precision.load_state_dict(state)

    @property
    def notes(self) -> tuple[str, ...]:
        """What this session has to say."""
        return tuple(self._notes.texts)

    @property
    def part(self) -> Part:
        """This process's part of the current batch. Losses times ``part.weight``, averaged over processes, are the loss
        of the global batch."""
        return self._training.progress.part

    # What trials read ---------------------------------------------------------------------------------------------

    @property
    def not_applied(self) -> tuple[tuple[str, str], ...]:
        """``(knob, reason)`` for whatever was asked and is not in force, read back now."""
        found = {knob: applier.why_not() for knob, applier in self._training.appliers.items()}
        return tuple((knob, why) for knob, why in (found | self._notes.reasons).items() if why is not None)

    @property
    def skipped_steps(self) -> int:
        """Optimizer steps that the gradient scaler skipped."""
        self._precision.settle()
        return self._precision.skipped_steps

    def close(self) -> None:
        """Leave the process group and put every process-wide switch back. Random numbers are never touched."""
        self.preparer.close()
        self._restore.close()

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _pace(step_seconds: float | None, notes: Notes) -> tuple[Callable[[], bool], ...]:
    if step_seconds is None:
        return ()
    from autotune.runtime.slowness import Slowness  # here: trials promise nothing

    return (Pace(1 / step_seconds, notes.say, Slowness()).tick,)


def load(
    path_or_url: str | Path | None = None,
    *,
    target: str | None = None,
    level: str | None = None,
    strict: bool = True,
) -> Session:
    """The best profile for this machine and script, in force. What it finds by itself never raises.

    Args:
        path_or_url: a profile; else ``AUTOTUNE_PROFILE``, else the best match for this machine and ``target``.
        target: what was tuned; the running script's name if None.
        level: ``safe``, ``amp`` or ``max``; else ``AUTOTUNE_LEVEL``, else what the profile recommends.
        strict: raise where ``path_or_url`` or ``level`` cannot be met; else training runs without, and it is said once.

    Raises:
        ProfileError: ``path_or_url`` is no valid profile.
        UsageError: there is no such ``level``.

    Returns:
        A session; with baseline behaviour, said once, where no profile fits or ``AUTOTUNE_DISABLE`` is set.
    """
    disabled = overrides(os.environ).disabled
    session = Session(None, origin=DISABLE) if disabled else _chosen(path_or_url, target, level, strict=strict)
    seconds = watchdog.seconds_of(os.environ)
    if seconds is not None:
        session._restore.callback(watchdog.watch(seconds))
    if session.world_size > 1:
        atexit.register(processes.settle)  # called last
        atexit.register(session.close)
    return session


def session_of_profile(*, moves: bool) -> Session:
    """The best profile for this machine and script, in force, as `load` has it.

    Args:
        moves: put models and batches on the device.
    """
    return _chosen(None, None, None, moves=moves)


def _chosen(
    path_or_url: str | Path | None,
    target: str | None,
    level: str | None,
    *,
    moves: bool = True,
    strict: bool = False,
) -> Session:
    from autotune.runtime.choice import (  # here: trials know their settings and need no store
        Choice,
        choose,
        take_compiled,
    )

    try:
        choice = choose(path_or_url, target, level, os.environ)
    except Exception as error:  # whatever is wrong with a profile or a probe, training goes on
        if strict and (isinstance(error, UsageError) or (path_or_url and isinstance(error, ProfileError))):
            raise
        choice = Choice(notes=(f"training runs without a profile: {str(error) or type(error).__name__}",))
    kept = take_compiled(choice.settings, os.environ)
    session = Session(
        choice.settings,
        choice.device,
        level=choice.level,
        origin=choice.origin,
        announce=True,
        step_seconds=choice.step_seconds,
        moves=moves,
        made=choice.made,
    )
    session._restore.callback(kept)
    session._notes.say_together(choice.notes)
    return session
