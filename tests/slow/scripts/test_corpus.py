"""All other scripts of the corpus, brought to their training, and one that waits until its budget ends."""

from pathlib import Path

import pytest

from autotune.errors import UserCodeError
from tests.processes.scripts.corpus import CORPUS, Script
from tests.processes.scripts.test_corpus import check
from tests.processes.trial.running_scripts import running

WAITS_FOR_OTHERS = """
import multiprocessing
import time
process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(1000,))
if __name__ == "__main__":
    process.start()
    process.join()
"""


@pytest.mark.parametrize("script", [each for each in CORPUS if not each.daily], ids=lambda script: script.name)
def test_comes_to_its_training(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(script, tmp_path, monkeypatch)


def test_a_script_that_waits_for_its_own_processes_is_not_told_to_wait_longer(tmp_path, monkeypatch) -> None:
    with (
        running(WAITS_FOR_OTHERS, tmp_path, monkeypatch, seconds=12.0) as runner,
        pytest.raises(UserCodeError) as raised,
    ):
        runner.describe()
    assert "waits for processes of its own" in str(raised.value)
    assert "budget" not in str(raised.value)
