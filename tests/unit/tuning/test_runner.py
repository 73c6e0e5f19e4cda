"""The environment of zygotes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.trial.paths import StudyPaths
from autotune.tuning.host_runner import start_environment
from benchmarks.simulation.simulator import inventory

MACHINE = replace(inventory(4, 4), gpus=())


class TestEnvironment:
    def test_of_trials_is_scrubbed_of_the_surrounding_job(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in ("MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, "7")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        found = start_environment(MACHINE, StudyPaths(tmp_path), Settings())
        assert not {"MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"} & set(found)
        assert found["CUDA_VISIBLE_DEVICES"] == "1"
        assert found["TMPDIR"] == str(tmp_path)
        assert os.environ["MASTER_ADDR"] == "7", "the user's own stays"

    def test_an_allocator_that_is_not_here_is_not_preloaded(self, tmp_path: Path) -> None:
        gone = replace(MACHINE, software=replace(MACHINE.software, allocators=()))
        assert "LD_PRELOAD" not in start_environment(gone, StudyPaths(tmp_path), Settings(allocator="jemalloc"))

    def test_threads_that_sleep_are_asked_for_before_openmp_is_loaded(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        passive = Settings(threads=2, omp_wait_policy="passive")
        assert start_environment(MACHINE, StudyPaths(tmp_path), passive)["OMP_WAIT_POLICY"] == "passive"
        assert "OMP_WAIT_POLICY" not in start_environment(MACHINE, StudyPaths(tmp_path), Settings())
        monkeypatch.setenv("OMP_WAIT_POLICY", "active")
        found = start_environment(MACHINE, StudyPaths(tmp_path), passive)
        assert found["OMP_WAIT_POLICY"] == "active", "as training will find it"
