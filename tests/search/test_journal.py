"""A run outlives its journal: a torn last line, a disk that is full."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.search.protocol import Observation
from autotune.search.study import open_study
from autotune.stats.outcome import Crashed


def observed(batch: int) -> Observation:
    return Observation(Settings(batch_size=batch), Crashed("signal 9"), "safe")


def test_a_torn_last_line_is_cut_off_and_the_study_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    open_study(path).record(observed(1))
    whole = path.read_bytes()
    open_study(path).record(observed(2))
    last = path.read_bytes()[len(whole) :]
    for cut in (1, len(last) // 2, len(last) - 1):
        path.write_bytes(whole + last[:cut])
        study = open_study(path)
        assert study.observations() == [observed(1)]
        for batch in (3, 4):
            study.record(observed(batch))
        assert open_study(path).observations() == [observed(1), observed(3), observed(4)]


@pytest.mark.parametrize("room", [0, 1, 200])
def test_a_full_disk_costs_the_run_nothing_and_a_resumed_one_only_what_came_after(tmp_path: Path, room: int) -> None:
    path = tmp_path / "run.journal"
    study = open_study(path)
    study.record(observed(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, before[1]))
    try:
        for batch in (2, 3):
            study.record(observed(batch))
        assert study.observations() == [observed(1), observed(2), observed(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    study.record(observed(4))
    assert len(study.observations()) == 4
    assert open_study(path).observations() == [observed(1)]
