"""The two sides that run one loop: plain PyTorch, and the runtime. The loop sees only this interface."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session
from tests.same_training.case import BATCH, WORLDS, Case
from tests.same_training.legal import SETTINGS

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Side(Protocol):
    """What a training loop calls."""

    rank: int
    peeks: bool
    """Whether looking at one batch moves the data on, as it does in plain PyTorch."""

    def reads(self, ids: list[int]) -> None:
        """The samples of the batch that the next forward passes are for."""

    def prepare(self, *objects: Any) -> list[Any]:
        """Models, optimizers, loaders and schedulers, ready to train."""

    def call(self, network: nn.Module, *inputs: Any) -> Tensor:
        """Forward pass."""

    def backward(self, loss: Tensor) -> None:
        """Backward pass."""

    def clip(self, parameters: list[Tensor], most: float) -> None:
        """Clip gradients by their norm."""

    def unwrap(self, network: nn.Module) -> nn.Module:
        """The user's own module."""

    def no_sync(self, *networks: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """Around the backward passes that no optimizer step follows."""

    def state_dict(self) -> dict[str, Any]:
        """What the side itself adds to a checkpoint."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse."""

    def said(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Notes, and knobs that are not applied with the reason."""

    def close(self) -> None:
        """The end of the training."""


class PlainSide:
    """Plain PyTorch, with autocast written by hand where the settings have a low precision."""

    rank = 0

    def __init__(self, precision: str = "fp32", *, peeks: bool = True) -> None:
        self.dtype, self.peeks = AUTOCAST.get(precision), peeks

    def reads(self, ids: list[int]) -> None:
        """Of no interest here."""

    def prepare(self, *objects: Any) -> list[Any]:
        """Nothing to do."""
        return list(objects)

    def call(self, network: nn.Module, *inputs: Any) -> Tensor:
        """The model, in autocast if asked."""
        if self.dtype is None:
            return network(*inputs)
        with torch.autocast("cpu", dtype=self.dtype):
            outputs = network(*inputs)
        return outputs.float()

    def backward(self, loss: Tensor) -> None:
        """PyTorch's own."""
        loss.backward()

    def clip(self, parameters: list[Tensor], most: float) -> None:
        """PyTorch's own."""
        nn.utils.clip_grad_norm_(parameters, most)

    def unwrap(self, network: nn.Module) -> nn.Module:
        """Nothing is wrapped."""
        return network

    def no_sync(self, *_networks: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """Nothing to hold back."""
        return contextlib.nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A plain script does not know the entry."""

    def said(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Nothing."""
        return (), ()

    def close(self) -> None:
        """Nothing to do."""


class RuntimeSide:
    """The same calls through a session."""

    def __init__(self, case: Case) -> None:
        self.session = Session(settings(case), device="cpu", level=case.level if case.profile else None)
        self.rank, self.peeks = self.session.rank, True

    def reads(self, ids: list[int]) -> None:
        """Of no interest here."""

    def prepare(self, *objects: Any) -> list[Any]:
        """All in one call, as the README shows."""
        prepared = self.session.prepare(*objects)
        return list(prepared) if len(objects) > 1 else [prepared]

    def call(self, network: nn.Module, *inputs: Any) -> Tensor:
        """The prepared model brings its own precision."""
        return network(*inputs)

    def backward(self, loss: Tensor) -> None:
        """The session's."""
        self.session.backward(loss)

    def clip(self, parameters: list[Tensor], most: float) -> None:
        """The session's."""
        self.session.clip_grad_norm_(parameters, most)

    def unwrap(self, network: nn.Module) -> nn.Module:
        """The session's."""
        return self.session.unwrap(network)

    def no_sync(self, *networks: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """The session's, which a loop may leave out."""
        return self.session.no_sync(*networks)

    def state_dict(self) -> dict[str, Any]:
        """The session's."""
        return self.session.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The session's."""
        self.session.load_state_dict(state)

    def said(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """The session's."""
        return self.session.notes, self.session.not_applied

    def close(self) -> None:
        """Leave the session; the process group is not the session's to leave."""
        self.session.close()


def settings(case: Case) -> Settings | None:
    """The profile's settings of ``case``; None where there is no profile."""
    if not case.profile:
        return None
    processes, backend = WORLDS[case.world]
    batch = profile_batch(case) // processes
    knobs = {name: getattr(case, name) for name in SETTINGS}
    return Settings(processes=processes, backend=backend, batch_size=batch, **knobs)


def profile_batch(case: Case) -> int:
    """The global batch that the profile was measured with."""
    return BATCH * (2 if case.profile_batch == "other" else 1)
