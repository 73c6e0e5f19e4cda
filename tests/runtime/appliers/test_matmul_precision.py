from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.matmul_precision import MatmulPrecision

from autotune.knobs.settings import Settings

CPU = Training(None, None, torch.device("cpu"))


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def test_it_is_set_and_put_back() -> None:
    precision = MatmulPrecision("medium", CPU)
    assert precision.start() is None
    assert torch.get_float32_matmul_precision() == "medium"
    precision.undo()
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_users_own_stays() -> None:
    torch.set_float32_matmul_precision("high")
    precision = MatmulPrecision("medium", CPU)
    assert precision.start() == "you have set it to high"
    precision.undo()
    assert torch.get_float32_matmul_precision() == "high"


def test_it_does_nothing_on_gpus_or_beside_autocast() -> None:
    assert MatmulPrecision("medium", Training(None, None, torch.device("cuda"))).start() == "it is for CPUs"
    assert Settings(precision="bf16", matmul_precision="medium") == Settings(precision="bf16")
