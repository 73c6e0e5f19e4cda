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


def test_ranks_draw_apart_inside_and_together_outside() -> None:
    torch.manual_seed(4)
    state = torch.get_rng_state()
    inside, outside = [], []
    for rank in range(2):
        torch.set_rng_state(state)
        with random_state.apart(rank):
            inside.append(float(torch.rand(())))
        outside.append(float(torch.rand(())))
    assert inside[0] != inside[1]
    assert outside[0] == outside[1]


def test_nothing_moves_where_nothing_is_drawn() -> None:
    state = torch.get_rng_state()
    with random_state.apart(1):
        pass
    assert torch.equal(torch.get_rng_state(), state)
    with random_state.apart(1):
        torch.rand(())
    assert not torch.equal(torch.get_rng_state(), state)
