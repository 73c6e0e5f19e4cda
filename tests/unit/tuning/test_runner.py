"""The environment of fork servers, and signals that end a run."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import Interrupted
from autotune.knobs.settings import Settings
from autotune.trial.paths import StudyPaths
from autotune.tuning.runner import STOPS, interrupt_on_signals, start_environment
from tests.doubles.simulation.simulator import inventory

MACHINE = inventory(4, 4)


def test_the_environment_is_scrubbed_of_the_surrounding_job_and_says_how_threads_wait_before_openmp_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "7")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    found = start_environment(MACHINE, StudyPaths(tmp_path), Settings())
    assert not {"MASTER_ADDR", "OMP_WAIT_POLICY"} & set(found)
    assert found["TMPDIR"] == str(tmp_path)
    assert os.environ["MASTER_ADDR"] == "7", "the user's own stays"
    passive = Settings(threads=2, omp_wait_policy="passive")
    assert start_environment(MACHINE, StudyPaths(tmp_path), passive)["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    found = start_environment(MACHINE, StudyPaths(tmp_path), passive)
    assert found["OMP_WAIT_POLICY"] == "active", "as training will find it"


class TestSignals:
    @pytest.mark.parametrize("signum", STOPS)
    def test_raise_once_and_are_put_back(self, signum: signal.Signals) -> None:
        own = signal.signal(signum, signal.SIG_DFL)  # under nohup it is ignored
        before = {each: signal.getsignal(each) for each in STOPS}
        with pytest.raises(Interrupted) as interruption, interrupt_on_signals():
            os.kill(os.getpid(), signum)
        assert interruption.value.signal == signum
        assert {each: signal.getsignal(each) for each in before} == before
        signal.signal(signum, own)

    def test_a_second_one_does_not_disturb_the_cleaning_up(self) -> None:
        cleaned = []

        def interrupted() -> None:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(True)

        with pytest.raises(Interrupted), interrupt_on_signals():
            interrupted()
        assert cleaned

    def test_are_left_alone_outside_the_main_thread(self) -> None:
        seen: list[Any] = []

        def other() -> None:
            with interrupt_on_signals():
                seen.append(signal.getsignal(signal.SIGINT))

        before = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert seen == [before]
