"""Signals raise `Interrupted` once."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from autotune.errors import Interrupted
from autotune.tuning.host_signals import interrupt_on_signals


class TestSignals:
    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_raise_once_and_are_put_back(self, signum: signal.Signals) -> None:
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        with pytest.raises(Interrupted) as interruption, interrupt_on_signals():
            os.kill(os.getpid(), signum)
        assert interruption.value.signal == signum
        assert {each: signal.getsignal(each) for each in before} == before

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
