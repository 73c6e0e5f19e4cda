"""Cases that run in the test's own process have one thread and random numbers of their own."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _own_process_state() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        yield
    torch.set_num_threads(before)
