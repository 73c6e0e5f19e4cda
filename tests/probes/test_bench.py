"""The driver of the benchmarks, and what its children print."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import host

from autotune.probes.bench import run
from autotune.probes.system import System
from autotune.testing.recorded import Recorded


def recorded(folder: Path, answers: dict[str, tuple[int, str]]) -> Recorded:
    commands = {f"python -m autotune.probes.bench.{name}": answer for name, answer in answers.items()}
    system = host([(0,)], cpuinfo="", commands=commands).at(folder)
    system.cache = folder
    return system


def test_results_are_remembered(tmp_path: Path) -> None:
    assert run.measure(recorded(tmp_path, {"gemm": (0, '{"fp32": 5}')}), ["gemm"]) == {"gemm": {"fp32": 5}}
    assert run.measure(recorded(tmp_path, {"gemm": (0, '{"fp32": 7}')}), ["gemm"]) == {"gemm": {"fp32": 5}}


@pytest.mark.parametrize("answer", [(1, '{"fp32": 5}'), (0, ""), (0, "[]"), (-9, "x")])
def test_failures_are_told_and_not_remembered(tmp_path: Path, answer: tuple[int, str]) -> None:
    assert "ended with" in run.measure(recorded(tmp_path, {"gemm": answer}), ["gemm"])["gemm"]["error"]
    assert run.measure(recorded(tmp_path, {"gemm": (0, '{"fp32": 7}')}), ["gemm"]) == {"gemm": {"fp32": 7}}


def test_an_unknown_benchmark_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'golf'"):
        run.measure(recorded(tmp_path, {}), ["golf"])


def test_disk(tmp_path: Path) -> None:
    done = System().run([sys.executable, "-m", "autotune.probes.bench.disk", str(tmp_path)], cwd=run._ROOT)
    rates = json.loads(done.stdout)
    assert rates["write"] > 0
    assert rates["read"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_allreduce() -> None:
    done = System().run([sys.executable, "-m", "autotune.probes.bench.allreduce"], cwd=run._ROOT)
    seconds = json.loads(done.stdout)["seconds"]
    assert set(seconds) == {"1024", "65536", "1048576", "16777216"}
    assert all(value > 0 for value in seconds.values())


class Distributed:
    """A ``torch.distributed`` of a build that lacks most questions."""

    def __init__(self, available: bool, **answers: bool) -> None:
        self.is_available = lambda: available
        for name, answer in answers.items():
            setattr(self, f"is_{name}_available", lambda answer=answer: answer)


@pytest.mark.parametrize(
    ("distributed", "expected"),
    [
        (Distributed(True, gloo=True), {"gloo": True, "nccl": False, "mpi": False, "ucc": False}),
        (Distributed(True, gloo=True, nccl=True), {"gloo": True, "nccl": True, "mpi": False, "ucc": False}),
        (Distributed(False, gloo=True), {"gloo": False, "nccl": False, "mpi": False, "ucc": False}),
    ],
)
def test_builds_without_a_question_are_survived(distributed: Any, expected: dict[str, bool]) -> None:
    from autotune.probes.bench.torch_facts import backends

    assert backends(distributed) == expected


@pytest.mark.parametrize(
    ("cxx", "reason"), [("no-such-compiler-here", "no-such-compiler-here is not installed"), ("false", "false failed")]
)
def test_a_compiler_that_does_not_work_has_a_reason(monkeypatch: pytest.MonkeyPatch, cxx: str, reason: str) -> None:
    from autotune.probes.bench.torch_facts import compiler

    monkeypatch.setenv("CXX", cxx)
    found, why = compiler()
    assert found is None
    assert reason in (why or "")
