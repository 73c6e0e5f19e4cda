"""How many steps a run makes, as its loops show while it trains."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from textwrap import dedent
from types import FrameType
from typing import Any

import pytest

from autotune.inspect import whole_run
from autotune.inspect.step_clock import above

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset
class Arguments: epochs = 3
loader = DataLoader(TensorDataset(torch.zeros(8, 1)), batch_size=2)
def bar(things): return things
"""


def looked_at(text: str, folder: Path, times: int = 2) -> tuple[list[list[Any]], list[int | None]]:
    """Run a script whose ``step()`` looks at the loops around it: the ranges, and the steps of the whole run."""
    found: list[list[Any]] = []
    steps: list[int | None] = []
    begun: list[int] = []

    def step() -> None:
        loops = whole_run._loops(_callers(sys._getframe()))
        found.append([(each.values, each.passes) for each in loops])
        if len(found) == 1:
            begun.extend(each.position for each in loops)
        else:
            steps.append(whole_run._steps(loops, begun, len(found) - 1, 4))
        if len(found) == times:
            raise SystemExit

    (folder / "train.py").write_text(dedent(HEAD) + dedent(text))
    with pytest.raises(SystemExit):
        runpy.run_path(str(folder / "train.py"), {"step": step})
    return found, steps


def _callers(frame: FrameType | None) -> list[FrameType]:
    """The frames of the script alone: those of pytest have loops, too."""
    return [each for each in above(frame) if each.f_code.co_filename.endswith("train.py")]


def test_epochs_over_a_loader(tmp_path: Path) -> None:
    found, steps = looked_at("for epoch in range(Arguments.epochs):\n  for batch in loader: step()", tmp_path)
    assert found[0] == [(range(3), True)]
    assert steps == [12]


def test_epochs_and_the_pass_in_functions(tmp_path: Path) -> None:
    text = """
    def train(epoch):
        for number, batch in enumerate(bar(loader), 1):
            step()
    def main():
        for epoch in bar(range(1, Arguments.epochs + 1)):
            train(epoch)
    main()
    """
    assert looked_at(text, tmp_path)[1] == [12]


def test_steps_of_a_loop_without_a_pass(tmp_path: Path) -> None:
    text = """
    for number in range(100):
        for of_two in range(2):
            step()
    """
    assert looked_at(text, tmp_path)[1] == [200]


def test_a_step_every_second_turn(tmp_path: Path) -> None:
    text = "for number in range(100):\n  if number % 2: step()"
    assert looked_at(text, tmp_path, times=3)[1][-1] == 50


@pytest.mark.parametrize(
    "loop", ["while True:", "for name in ['a', 'b']:", "for number in range(values.pop()):", "for x in iter(int, 1):"]
)
def test_other_loops_tell_nothing(loop: str, tmp_path: Path) -> None:
    text = f"values = [3]\n{loop}\n  for epoch in range(3):\n    for batch in loader: step()"
    assert looked_at(text, tmp_path) == ([[], []], [None])


def test_a_function_ends_the_loops_around_its_definition(tmp_path: Path) -> None:
    text = """
    for unused in range(7):
        def train():
            for epoch in range(3):
                for batch in loader: step()
    train()
    """
    assert looked_at(text, tmp_path)[1] == [12]
