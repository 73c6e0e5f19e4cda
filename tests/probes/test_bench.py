"""The benchmarks' parent: results are kept, failures are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import host

from autotune.probes import bench
from tests.doubles.recorded import Recorded


def recorded(folder: Path, answers: dict[str, tuple[int, str]]) -> Recorded:
    commands = {f"python -m autotune.probes.bench {name}": answer for name, answer in answers.items()}
    system = host([(0,)], cpuinfo="", commands=commands).at(folder)
    system.cache = folder
    return system


def test_results_are_remembered(tmp_path: Path) -> None:
    assert bench.measure(recorded(tmp_path, {"gemm": (0, '{"fp32": 5}')}), ["gemm"]) == {"gemm": {"fp32": 5}}
    assert bench.measure(recorded(tmp_path, {"gemm": (0, '{"fp32": 7}')}), ["gemm"]) == {"gemm": {"fp32": 5}}


@pytest.mark.parametrize("answer", [(1, '{"fp32": 5}'), (0, ""), (0, "[]"), (-9, "x")])
def test_failures_are_told_and_not_remembered(tmp_path: Path, answer: tuple[int, str]) -> None:
    assert "ended with" in bench.measure(recorded(tmp_path, {"gemm": answer}), ["gemm"])["gemm"]["error"]
    assert bench.measure(recorded(tmp_path, {"gemm": (0, '{"fp32": 7}')}), ["gemm"]) == {"gemm": {"fp32": 7}}


def test_an_unknown_benchmark_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'golf'"):
        bench.measure(recorded(tmp_path, {}), ["golf"])
