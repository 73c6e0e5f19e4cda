"""How many steps a run makes, as its loops show while it trains."""

import runpy
import sys
from pathlib import Path

import pytest

from autotune.inspect.epoch_end import Loops
from autotune.trial.child.beside import above

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset
class Arguments: epochs = 3
loader = DataLoader(TensorDataset(torch.zeros(8, 1)), batch_size=2)
def bar(things): return things
"""


def looked_at(text: str, folder: Path, times: int = 2) -> tuple[Loops, int | None]:
    """Run a script whose ``step()`` looks at the loops around it: what it finds first, and the steps of the run."""
    found: list[Loops] = []

    def step() -> None:
        # Those of the script alone: pytest has loops, too.
        own = (each for each in above(sys._getframe()) if each.f_code.co_filename.endswith("train.py"))
        found.append(Loops.around(own))
        if len(found) == times:
            raise SystemExit

    (folder / "train.py").write_text(HEAD + text)
    with pytest.raises(SystemExit):
        runpy.run_path(str(folder / "train.py"), {"step": step})
    return found[0], found[0].steps(found[-1], times - 1, 4)


IN_FUNCTIONS = """
def train(epoch):
    for number, batch in enumerate(bar(loader), 1):
        step()
def main():
    for epoch in bar(range(1, Arguments.epochs + 1)):
        train(epoch)
main()
"""
DEFINED_IN_A_LOOP = """
for unused in range(7):
    def train():
        for epoch in range(3):
            for batch in loader: step()
train()
"""


@pytest.mark.parametrize(
    ("text", "times", "passes", "steps"),
    [
        ("for epoch in range(Arguments.epochs):\n  for batch in loader: step()", 2, True, 12),
        (IN_FUNCTIONS, 2, True, 12),
        (DEFINED_IN_A_LOOP, 2, True, 12),
        ("for number in range(100):\n  for of_two in range(2): step()", 2, False, 200),
        ("for number in range(100):\n  if number % 2: step()", 3, False, 50),
        ("for a in range(9):\n  for b in range(4):\n    for c in range(0, 8, 2): step()", 12, False, 144),
        ("def train():\n  for b in range(4): step()\nfor a in range(9): train()", 7, False, 36),
    ],
    ids=[
        "epochs",
        "in functions",
        "a function ends",
        "no pass",
        "every second turn",
        "over their ends",
        "called again",
    ],
)
def test_the_steps_of_a_run(text: str, times: int, passes: bool, steps: int, tmp_path: Path) -> None:
    found, counted = looked_at(text, tmp_path, times)
    assert (found.passes, counted) == (passes, steps)


@pytest.mark.parametrize(
    "loop", ["while True:", "for name in ['a', 'b']:", "for number in range(values.pop()):", "for x in iter(int, 1):"]
)
def test_other_loops_tell_nothing(loop: str, tmp_path: Path) -> None:
    text = f"values = [3]\n{loop}\n  for epoch in range(3):\n    for batch in loader: step()"
    found, steps = looked_at(text, tmp_path)
    assert (found.ranges, steps) == ((), None)
