"""What `prepare` hands back for optimizers and schedulers: the same calls, acting at the accumulation boundary only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from autotune.runtime.loader import Progress
from autotune.runtime.precision import Precision


class PreparedOptimizer(Optimizer):
    """The user's optimizer. ``step`` and ``zero_grad`` act at the accumulation boundary only.

    An `Optimizer` by class, so that schedulers accept it, but without state of its own: all of it is the user's.
    """

    def __init__(self, optimizer: Optimizer, precision: Precision, progress: Progress, *, counts: bool = True) -> None:
        self.optimizer = optimizer
        self.watch: Callable[[], None] | None = None
        """Called after each step, while somebody is interested."""
        self._precision, self._progress, self._counts = precision, progress, counts
        self._held = False

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Step at the accumulation boundary; elsewhere keep the gradients."""
        if not self._progress.boundary:
            self._held = True
            return None
        self._held = False
        if self._counts:
            self._progress.steps += 1
        result = self._precision.step(self.optimizer, *arguments, **options)
        if self.watch is not None:
            self.watch()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients, unless some are held for the step at the boundary; so it may come before or after step."""
        if not self._held:
            self.optimizer.zero_grad(set_to_none=set_to_none)

    def drop_held(self) -> None:
        """Forget gradients of a global batch that the user left half done."""
        if self._held:
            self._held = False
            self.optimizer.zero_grad()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The user's optimizer's own."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The user's optimizer's own."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        """The user's optimizer's own."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.optimizer.defaults = defaults

    def state_dict(self) -> dict[str, Any]:
        """The user's optimizer's own; loads without the profile."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the user's optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add to the user's optimizer."""
        self.optimizer.add_param_group(param_group)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __repr__(self) -> str:
        return repr(self.optimizer)


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: PreparedOptimizer, *arguments: Any, **options: Any) -> Any:
        return getattr(self.optimizer, name)(*arguments, **options)

    call.__name__ = name
    return call


for _name in [name for name in vars(Optimizer) if name.startswith("register_")]:
    setattr(PreparedOptimizer, _name, _passed_on(_name))


class PreparedScheduler:
    """A learning-rate scheduler that counts finished optimizer steps, not micro-steps or skipped ones."""

    def __init__(self, scheduler: Any, precision: Precision, progress: Progress) -> None:
        self.scheduler = scheduler
        self._precision, self._progress = precision, progress
        self._skipped = 0

    def step(self, *arguments: Any, **options: Any) -> None:
        """Step, unless the optimizer has not."""
        if not self._progress.boundary:
            return
        self._precision.settle()
        before, self._skipped = self._skipped, self._precision.skipped_steps
        if self._skipped == before:
            self.scheduler.step(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":
            raise AttributeError(name)
        return getattr(self.scheduler, name)
