"""The two sides that run one loop: plain PyTorch, and the runtime."""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session
from tests.same_training.case import BATCH, WORLDS, Case
from tests.same_training.legal import SETTINGS

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class PlainSide:
    """Plain PyTorch, with autocast written by hand if the settings have a low precision: what a training loop calls."""

    rank = 0

    def __init__(self, precision: str = "fp32", *, peeks: bool = True) -> None:
        """``peeks``: looking at one batch moves the data on, as it does in plain PyTorch."""
        self.dtype, self.peeks = AUTOCAST.get(precision), peeks

    def reads(self, ids: list[int]) -> None:
        """Take the samples of the batch that the next forward passes are for."""

    def prepare(self, *objects: Any) -> list[Any]:
        """Return models, optimizers, loaders and schedulers, ready to train."""
        return list(objects)

    def call(self, network: nn.Module, *inputs: Any) -> Tensor:
        """Run the forward pass, in autocast if asked."""
        if self.dtype is None:
            return network(*inputs)
        with torch.autocast("cpu", dtype=self.dtype):
            outputs = network(*inputs)
        return outputs.float()

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass."""
        loss.backward()

    def clip(self, parameters: list[Tensor], most: float) -> None:
        """Clip gradients by their norm."""
        nn.utils.clip_grad_norm_(parameters, most)

    def unwrap(self, network: nn.Module) -> nn.Module:
        """Return the user's own module."""
        return network

    def no_sync(self, *_networks: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """Surround the backward passes that no optimizer step follows."""
        return contextlib.nullcontext()

    def state_dict(self) -> dict[str, Any]:
        """Return what the side itself adds to a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what the side has added; a plain script does not know the entry."""

    def said(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return notes, and knobs that are not applied with the reason."""
        return (), ()

    def close(self) -> None:
        """End the training."""


class RuntimeSide(PlainSide):
    """The same calls through a session. The process group is not the session's to leave."""

    def __init__(self, case: Case) -> None:
        self.session = session = Session(settings(case), device="cpu", level=case.level if case.profile else None)
        self.rank, self.peeks = session.rank, True
        self.backward, self.clip, self.unwrap = session.backward, session.clip_grad_norm_, session.unwrap
        self.no_sync, self.close = session.no_sync, session.close
        self.state_dict, self.load_state_dict = session.state_dict, session.load_state_dict

    def prepare(self, *objects: Any) -> list[Any]:
        """Prepare all in one call, as the README shows."""
        prepared = self.session.prepare(*objects)
        return list(prepared) if len(objects) > 1 else [prepared]

    def call(self, network: nn.Module, *inputs: Any) -> Tensor:
        """Run the prepared model, which brings its own precision."""
        return network(*inputs)

    def said(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return the session's notes, and knobs that are not applied with the reason."""
        return self.session.notes, self.session.not_applied


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
