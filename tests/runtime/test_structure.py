"""Marks of models and optimizers, and what is said where a profile was made for others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from autotune.core.identity import Identity
from autotune.runtime.structure import optimizer_of, parameter_count, structure_of
from torch import nn

from autotune.profiles.format import Profile
from autotune.runtime.session import Session

from .records import network, profile, quiet, shuffled, train


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)


class Renamed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.secret_project = nn.Linear(8, 4)


def test_names_and_values_do_not_count_and_shapes_do() -> None:
    assert structure_of(Net()) == structure_of(Renamed()) == structure_of(nn.DataParallel(Net()))
    assert structure_of(Net()) != structure_of(Net(5))
    assert structure_of(nn.Conv2d(3, 8, 3)) != structure_of(nn.Conv2d(3, 8, 3, stride=2))
    assert structure_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) != structure_of(
        nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    )
    assert structure_of(Net()) != structure_of(Net().to(torch.bfloat16))
    assert structure_of(Net(), Net()) != structure_of(Net())


def test_shared_parameters_count_once() -> None:
    layer = nn.Linear(2, 2)
    assert parameter_count([layer, nn.Sequential(layer)]) == 6


class Own(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})


class OwnAdam(torch.optim.AdamW):
    pass


def test_only_pytorchs_own_classes_are_named() -> None:
    weights = [nn.Parameter(torch.zeros(1))]
    assert optimizer_of(torch.optim.SGD(weights, lr=0.1)) == "SGD"
    assert optimizer_of(OwnAdam(weights)) == "AdamW"
    assert optimizer_of(Own(weights)) == "other"


def made_for(model: nn.Module, optimizer: str) -> Profile:
    data = profile(quiet(batch_size=16))
    identity = Identity(structure_of(model), optimizer, ("float32 8", "float32 1"))
    return dataclasses.replace(
        data, target=dataclasses.replace(data.target, parameters=parameter_count([model]), identity=identity)
    )


@pytest.mark.parametrize(
    ("model", "optimizer", "words"),
    [
        (network(), "AdamW", None),
        (network(), "SGD", "optimizer SGD, here AdamW"),
        (nn.Linear(8, 1), "AdamW", "a model of 9 parameters, this has 161"),
    ],
)
def test_a_training_that_is_another_says_so_once(model: nn.Module, optimizer: str, words: str | None) -> None:
    with Session(quiet(batch_size=16), level="safe", made=made_for(model, optimizer).made) as tuned:
        train(tuned, shuffled(64, 16))
        said = [note for note in tuned.notes if "made for another training" in note]
    assert [words in note for note in said] == ([True] if words else [])
