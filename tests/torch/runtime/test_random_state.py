from __future__ import annotations

import random

import numpy
import torch

from autotune.runtime import random_state


def test_everything_goes_on_from_where_it_stood() -> None:
    generator = torch.Generator().manual_seed(3)
    state = random_state.read(generator)

    def draw() -> list[float]:
        drawn = torch.rand(()), random.random(), numpy.random.rand(), torch.rand((), generator=generator)
        return [float(each) for each in drawn]

    first = draw()
    assert random_state.read(generator) != state
    random_state.write(state, generator)
    assert random_state.read(generator) == state
    assert draw() == first


def test_each_rank_draws_numbers_of_its_own_meanwhile_and_common_ones_afterwards() -> None:
    torch.manual_seed(4)
    state = torch.get_rng_state()
    own, common, again = [], [], []
    for rank in range(2):
        torch.set_rng_state(state)
        numbers = random_state.OwnNumbers(rank)
        for found in (own, again):
            numbers.begin()
            found.append(float(torch.rand(())))
            numbers.end()
        numbers.end()
        common.append(float(torch.rand(())))
    assert len({*own, *again}) == 4, "each batch and each rank draws others"
    assert common[0] == common[1]
