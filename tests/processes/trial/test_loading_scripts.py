"""Real processes: what happens while a script is loaded, and what the user is told where it does not train."""

from pathlib import Path

import pytest

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.stated import baseline_settings
from autotune.stats.outcome import Completed
from autotune.trial.parent import fork_servers
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.process_tree import child_command
from tests.processes.scripts.corpus import SMALL
from tests.processes.trial.running_scripts import baseline, here, running
from tests.processes.trial.users_world import WAYS

pytestmark = pytest.mark.torch

USAGE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
print("reads arguments")
parser.parse_args()
"""
HANGS = """
import signal
def prepare_data():
    signal.pause()
prepare_data()
"""
LIBRARY = """
from pathlib import Path
(Path.home() / ".keras").mkdir(exist_ok=True)
(Path.home() / ".keras" / "keras.json").write_text("written by an import")
"""
CANNOT_BE_FORKED = """
import a_library
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
""" + SMALL.format(samples=100_000, epochs=1)


def test_a_script_that_leaves_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(USAGE, tmp_path, monkeypatch) as runner, pytest.raises(UserCodeError, match="SystemExit: 2") as raised:
        runner.describe()
    assert "reads arguments" in raised.value.traceback
    assert "the following arguments are required: --data" in raised.value.traceback


def test_a_script_that_could_not_be_started_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "the budget ended before the script was started"
    with running(HANGS, tmp_path, monkeypatch, seconds=0.1) as runner, pytest.raises(NothingUsable, match=reason):
        runner.describe()


@pytest.mark.parametrize("steps", [1, 2])
def test_a_script_that_trains_too_little_is_not_told_that_it_does_not(steps, tmp_path, monkeypatch) -> None:
    words = f"after {steps} training step"
    source = SMALL.format(samples=4 * steps, epochs=1)
    with running(source, tmp_path, monkeypatch) as runner, pytest.raises(UserCodeError, match=words):
        runner.describe()


def test_a_script_that_asks_for_many_threads_can_be_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: they ran before training, so no fork was possible, and their number left no other settings to try."""
    own = "import torch\ntorch.set_num_threads(8)\ntorch.nn.Linear(512, 512)\nassert torch.get_num_threads() == 8\n"
    with running(own + SMALL.format(samples=100_000, epochs=1), tmp_path, monkeypatch) as runner:
        facts = runner.describe()
        assert (facts.no_fork_reason, facts.current["threads"]) == (None, 8)
        assert facts.fixed == {"threads": "torch.set_num_threads(8) (train.py:2)"}
        own_settings = baseline_settings(facts, here())
        bench = TrialBench(runner, own_settings)
        for settings in (own_settings, own_settings.but(threads=1)):  # in force, or the trial would fail
            assert isinstance(bench.measure(settings, 0.0, runner.deadline), Completed)


def test_epochs_of_one_batch_are_one_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(SMALL.format(samples=4, epochs=100_000), tmp_path, monkeypatch) as runner:
        facts = runner.describe()
        assert (facts.script, facts.samples, facts.skip) == ("batches", 4, 0)
        outcome = baseline(runner, facts)
        assert isinstance(outcome, Completed), outcome


def test_what_imports_write_does_not_land_where_the_script_cannot_be_forked(tmp_path, monkeypatch) -> None:
    """A copy of its process from before the thread starts trials."""
    packages, home = tmp_path / "packages", tmp_path / "home"
    packages.mkdir()
    home.mkdir()
    (packages / "a_library.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(
        fork_servers, "child_command", lambda *words: [*WAYS["no namespaces"].start, *child_command(*words)]
    )
    with running(CANNOT_BE_FORKED, tmp_path, monkeypatch) as runner:
        facts = runner.describe()
        assert len([warning for warning in facts.warnings if "can reach the network without a proxy" in warning]) == 1
        assert "1 extra thread" in str(facts.no_fork_reason)
        settings = baseline_settings(facts, here())
        bench = TrialBench(runner, settings)
        for _ in range(2):
            outcome = bench.measure(settings, 0.0, runner.deadline)
            assert isinstance(outcome, Completed), outcome
        assert "1 extra thread" in str(runner.no_fork_reason)
        scratch = runner.setup.paths.root
    assert [*home.iterdir()] == []
    assert not scratch.exists()


READS_A_FILE = """
import torch
from torch import nn
rows = open("rows.txt", "rb", buffering=0)
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
expected = 0
while True:
    row = int(rows.readline())
    assert row == expected, f"row {row} in place of {expected}"
    expected += 1
    model(torch.ones(1, 1) * 0).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_probe_run_moves_no_position_of_an_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork shares positions with its parent: the probe run goes on while another process waits to start trials."""
    (tmp_path / "rows.txt").write_text("".join(f"{row}\n" for row in range(100_000)))
    with running(READS_A_FILE, tmp_path, monkeypatch) as runner:
        assert isinstance(outcome := baseline(runner, runner.describe(steps=False)), Completed), outcome
