"""Frameworks are kept still in trials, and nothing that a script asks of them is refused."""

import importlib.util

import pytest

from tests.processes.scripts.corpus import LIGHTNING, PLAIN, added, changed
from tests.processes.trial.running_scripts import running

LIGHTNINGS = changed(
    LIGHTNING,
    added("import torch\n", "from lightning.pytorch.callbacks import LearningRateMonitor, RichProgressBar"),
    ("int(sys.argv[1])", "100_000, callbacks=[RichProgressBar(), LearningRateMonitor()]"),
)
RICH = changed(
    PLAIN,
    added("from torch import nn\n", "from rich.progress import track"),
    ("in training:", "in track(training):"),
    ("default=200", "default=100_000"),
)


@pytest.mark.parametrize(
    ("source", "needs"), [(LIGHTNINGS, "lightning"), (RICH, "rich")], ids=["Lightning's rich bar", "rich"]
)
def test_a_script_with_bars_and_monitors_can_be_forked_where_it_trains(source, needs, tmp_path, monkeypatch) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    with running(source, tmp_path, monkeypatch) as runner:
        facts = runner.describe(steps=False)
        assert facts.script == "batches"
        assert facts.no_fork_reason is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
