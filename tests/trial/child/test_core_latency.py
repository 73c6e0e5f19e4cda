"""How far apart the cores are: measured where threads share data, else nothing."""

from __future__ import annotations

import torch

from autotune.trial.child.core_latency import CoreLatencyTimer


def test_several_threads_share_data_and_one_does_not():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert 0 < CoreLatencyTimer("cpu", 2).seconds() < 1
    finally:
        torch.set_num_threads(before)
    assert CoreLatencyTimer("cpu", 1).seconds() == 0.0


def test_a_gpu_waits_for_other_things():
    assert CoreLatencyTimer("cuda", 8).seconds() == 0.0


def test_it_leaves_no_graph_behind_and_autograd_as_it_was():
    with torch.enable_grad():
        CoreLatencyTimer("cpu", 2).seconds()
        assert torch.is_grad_enabled()
