"""Scripts that compile themselves, with PyTorch's real compiler: watched in a trial, and with settings in force."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.torch.runtime.test_compilers import SCRIPTS, Loop, check_own_compile, check_same

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _fresh_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("loop", SCRIPTS, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("side", ["watched", "applied"])
def test_a_script_that_compiles_trains_the_same(loop: Loop, side: str) -> None:
    check_same(loop, side, "inductor")


def test_the_users_own_compile_of_a_prepared_model() -> None:
    check_own_compile("inductor")
