"""Compiled calls: which calls they serve, what counts as a failure, and what the compiler's failures cost."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from autotune.knobs import compile as compiling
from autotune.knobs.change import Training
from autotune.knobs.compile import CACHE_VARIABLE, Compiled, compiled_graphs


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "/nowhere")
    torch._dynamo.utils.counters.clear()


def compiled(model: nn.Module) -> Compiled:
    return Compiled(model, "default", Training(torch.device("cpu")))


@pytest.mark.parametrize(
    ("sizes", "trains", "graphs", "reason"),
    [
        ([8, 8, 8, 8, 8, 3], True, 1, None),
        ([8], False, 0, None),
        ([8, 7, 6, 5, 8], True, 1, "3 of 5 calls had other shapes than the first and ran as before"),
    ],
    ids=["a smaller last batch", "evaluation", "shapes that change all the time"],
)
def test_other_calls_run_as_they_are(sizes: list[int], trains: bool, graphs: int, reason: str | None) -> None:
    model = nn.Linear(4, 2)
    change = compiled(model)
    with torch.set_grad_enabled(trains):
        for size in sizes:
            assert torch.equal(model(torch.ones(size, 4)), model._call_impl(torch.ones(size, 4)))
    assert compiled_graphs() == graphs
    assert change.why_not() == reason


def test_compiling_again_after_the_first_steps_is_a_failure() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout())
    change = compiled(model)
    for number in range(5):
        model.train(number < 4)  # it computes otherwise in its fifth call
        model(torch.ones(8, 4))
    assert "compiled again 1 times" in str(change.why_not())


class CompilerError(Exception):
    """As a C++ compiler's: the text of the program is an attribute."""

    output = "In file included from x.h\nx.cpp:3: error: one\n\nx.cpp:4: error: two\nx.cpp:5: error: three\n"


def test_a_failing_compiler_leaves_the_plain_call_its_last_lines_and_no_header_that_is_half_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    header, kept = tmp_path / "torchinductor_me/precompiled_headers/x.h.gch", tmp_path / "ab.so"
    header.parent.mkdir(parents=True)
    header.touch()
    kept.touch()

    def backend(_graph: Any, _inputs: Any) -> Any:
        raise CompilerError("C++ compile error")

    monkeypatch.setattr(compiling, "BACKEND", backend)
    model = nn.Linear(4, 2)
    change = compiled(model)
    assert torch.equal(model(torch.ones(8, 4)), model._call_impl(torch.ones(8, 4)))
    last = "last lines: x.cpp:3: error: one | x.cpp:4: error: two | x.cpp:5: error: three"
    assert str(change.why_not()).endswith(last)
    assert (kept.exists(), header.exists()) == (True, False)


def test_an_error_of_the_model_is_its_own() -> None:
    model = nn.Linear(4, 2)
    compiled(model)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model(torch.ones(8, 5))


def test_outputs_and_gradients_leave_the_memory_of_cuda_graphs() -> None:
    model = nn.Linear(4, 2)
    compiled(model).graphs = True
    model(torch.ones(8, 4)).sum().backward()
    first = model.weight.grad
    outputs = model(torch.ones(8, 4))
    assert model.weight.grad is not first
    assert outputs.grad_fn.name() == "CloneBackward0"
    outputs.sum().backward()
    assert first is not None
    assert torch.equal(model.weight.grad, 2 * first)
