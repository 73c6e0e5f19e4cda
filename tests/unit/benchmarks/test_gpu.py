"""The one command for a machine with a GPU: the order and limits of its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.plan import SUBJECTS, TOTAL_SECONDS, Part, parts


def test_all_parts_fit_into_nine_minutes() -> None:
    assert sum(part.seconds for part in parts(rehearse=False)) <= 1.1 * TOTAL_SECONDS
    assert TOTAL_SECONDS < 540


@pytest.mark.parametrize(("rehearse", "subjects"), [(False, SUBJECTS), (True, SUBJECTS[:1])])
def test_each_subject_is_tuned_before_its_claims_are_measured_again(
    rehearse: bool, subjects: tuple[object, ...]
) -> None:
    names = [part.name for part in parts(rehearse=rehearse)]
    wanted = [f"{kind} {subject.name}" for subject in SUBJECTS[: len(subjects)] for kind in ("tune", "recheck")]
    assert names == ["facts", "tests", *wanted]


def test_nothing_begins_once_the_time_is_over(tmp_path: Path) -> None:
    found = gpu.run([Part("facts", 60.0)], tmp_path, tmp_path / "out.json", 1.0, rehearse=True)
    assert found["parts"] == {"facts": {"skipped": "no time left"}}
