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
