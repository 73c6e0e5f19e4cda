"""Gloo's own threads that get CPU time late."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.processes.runtime.test_two_ranks import ROOT, by_gloo


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="needs threads of lower priority")
def test_late_threads_of_gloo_do_not_abort_a_finished_training() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "AUTOTUNE_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    script = str(Path(__file__).with_name("late_gloo.py"))
    by_gloo([script], {**os.environ, **meeting, "PYTHONPATH": str(ROOT)})
