"""How far apart the cores are: measured where threads share data, else nothing."""

from __future__ import annotations

import torch

from autotune.knobs.settings import Settings
from autotune.trial.child.core_latency import CoreLatencyTimer


def test_several_threads_share_data_and_one_does_not():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert 0 < CoreLatencyTimer("cpu", Settings(threads=2)).seconds() < 1
    finally:
        torch.set_num_threads(before)
    assert CoreLatencyTimer("cpu", Settings(threads=1)).seconds() == 0.0


def test_the_waking_of_threads_that_sleep_is_not_taken_for_the_cores():
    assert CoreLatencyTimer("cpu", Settings(threads=2, omp_wait_policy="passive")).seconds() == 0.0


def test_a_gpu_waits_for_other_things():
    assert CoreLatencyTimer("cuda", Settings(threads=8)).seconds() == 0.0


def test_it_leaves_no_graph_behind_and_autograd_as_it_was():
    with torch.enable_grad():
        CoreLatencyTimer("cpu", Settings(threads=2)).seconds()
        assert torch.is_grad_enabled()
