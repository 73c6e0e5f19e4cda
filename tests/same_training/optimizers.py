"""Optimizers, schedulers and losses: one builder a value of the axis."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop, lr_scheduler

from tests.same_training.models import CLASSES

IGNORED = -100
EPS = 1e-3
"""Large, so that an update stays a smooth function of the gradient: rounding noise is not blown up to whole steps."""


def build(name: str, networks: dict[str, nn.Module]) -> list[Optimizer]:
    """Optimizers over the parameters of ``networks``: one for each network of a GAN, else one or as named."""
    if "generator" in networks:
        return [_one(name, list(network.parameters())) for network in networks.values()]
    parameters = list({id(p): p for network in networks.values() for p in network.parameters()}.values())
    if name == "several":
        half = len(parameters) // 2
        return [_one("adam", parameters[:half]), _one("sgd", parameters[half:])]
    return [_one(name, parameters)]


def _one(name: str, parameters: list[nn.Parameter]) -> Optimizer:
    if name in ("groups", "several"):
        half = len(parameters) // 2
        groups: Any = [{"params": parameters[:half], "lr": 0.02, "weight_decay": 0.1}, {"params": parameters[half:]}]
        return AdamW(groups, lr=0.01, eps=EPS)
    return OPTIMIZERS[name](parameters)


class Velocity(Optimizer):
    """A user's own: the state of a parameter is one tensor, where PyTorch's optimizers have a dictionary."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Momentum."""
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                if p not in self.state:
                    self.state[p] = torch.zeros_like(p)
                self.state[p].mul_(0.9).add_(p.grad)
                p.sub_(self.state[p], alpha=group["lr"])


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda parameters: SGD(parameters, lr=0.05, momentum=0.9),
    "adam": lambda parameters: Adam(parameters, lr=0.01, eps=EPS),
    "adamw": lambda parameters: AdamW(parameters, lr=0.01, eps=EPS, amsgrad=True),
    "adagrad": lambda parameters: Adagrad(parameters, lr=0.05, eps=EPS),
    "rmsprop": lambda parameters: RMSprop(parameters, lr=0.01, eps=EPS, momentum=0.5),
    "velocity": Velocity,
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=2, history_size=3),
}


def schedulers(name: str, optimizers: list[Optimizer], steps: int) -> list[Any]:
    """One scheduler an optimizer; ``steps``: optimizer steps of an epoch, as the loader's length tells."""
    if name == "per_step":
        return [lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * steps) for optimizer in optimizers]
    if name == "per_epoch":
        return [lr_scheduler.StepLR(optimizer, 1, gamma=0.5) for optimizer in optimizers]
    if name == "plateau":
        return [
            lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.05, factor=0.5)
            for optimizer in optimizers
        ]
    return []


def loss(name: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss ``name`` of logits ``(batch, tokens, classes)`` and classes, some of which are `IGNORED`."""
    flat, wanted = outputs.flatten(0, 1), targets.flatten()
    if name == "token_mean":
        return functional.cross_entropy(flat, wanted, ignore_index=IGNORED)
    if name == "class_weighted":
        return functional.cross_entropy(flat, wanted, torch.linspace(0.2, 2, CLASSES), ignore_index=IGNORED)
    if name == "sum":
        return functional.cross_entropy(flat, wanted, ignore_index=IGNORED, reduction="sum") * 0.1
    each = functional.cross_entropy(flat, wanted, ignore_index=IGNORED, reduction="none")
    return each.reshape(targets.shape).sum(1).mean()
