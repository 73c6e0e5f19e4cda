"""An exchange that is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from autotune.runtime.exchange import Exchange, stop
from torch import nn

from autotune.knobs.settings import Settings
from autotune.runtime import exchange
from autotune.runtime.notes import Notes
from autotune.runtime.session import Session


@pytest.mark.parametrize("stopped", [False, True])
def test_no_gradient_is_averaged_once_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    averaged: list[int] = []
    monkeypatch.setattr(exchange, "average", lambda parameters, *_: averaged.append(len(parameters)))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with Session(Settings(threads=torch.get_num_threads()), device="cpu") as session:
            own = Exchange(torch.device("cpu"), session.preparer.training.progress, Notes(()))
            weight = nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            undo = own.optimizer(optimizer)
            if stopped:
                stop(own)
            own.before_backward()
            weight.sum().backward()
            own.after_backward()
            optimizer.step()
            undo()
    finally:
        dist.destroy_process_group()
    assert averaged == ([] if stopped else [1])
