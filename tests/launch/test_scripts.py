"""What starts a profile's settings for an unmodified script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.launch.scripts import check_shares, need_our_entry, variables
from autotune.profiles.format import NotOffered, Profile, Target
from tests.report.records import BASELINE, profile

SCRIPT = profile(target=Target("train", "samples", "cpu", 100, 1024, script="batches", skip=1))
BATCH = BASELINE.global_batch
TWO = BASELINE.but(processes=2, batch_size=BATCH // 2)
APART = replace(SCRIPT, evidence=replace(SCRIPT.evidence, not_offered=(NotOffered("processes", 2, "trains apart"),)))


@pytest.mark.parametrize("settings", [TWO, BASELINE.but(threads=1), BASELINE])
def test_a_script_that_applies_its_profile_itself_needs_nothing(settings: object) -> None:
    assert variables(profile(), settings) == {}  # type: ignore[arg-type]


def test_one_process_is_told_how_a_step_is_known() -> None:
    assert variables(SCRIPT, BASELINE.but(threads=1)) == {"AUTOTUNE_SCRIPT": "batches:1"}


def test_several_are_told_their_share_of_the_batch() -> None:
    assert variables(SCRIPT, TWO) == {"AUTOTUNE_SCRIPT": f"batches:1:{BATCH}:{BATCH // 2}:1024"}


def test_nothing_to_apply_needs_nobody() -> None:
    assert not need_our_entry(SCRIPT, BASELINE)
    assert variables(SCRIPT, BASELINE) == {}


def test_processes_that_train_together_may_start() -> None:
    check_shares(SCRIPT, TWO, 1)
    check_shares(APART, BASELINE, 1)
    check_shares(profile(), TWO, 2)


@pytest.mark.parametrize(
    ("saved", "processes", "nodes", "words"),
    [
        (APART, 2, 1, "train cannot train as 2 processes: trains apart"),
        (APART, 4, 1, "as 4 processes: trains apart"),
        (SCRIPT, 3, 1, f"cannot share its batch of {BATCH} equally"),
        (SCRIPT, 1, 2, "tuned for one machine"),
    ],
)
def test_others_are_refused(saved: Profile, processes: int, nodes: int, words: str) -> None:
    settings = BASELINE.but(processes=processes, batch_size=-(-BATCH // processes))
    with pytest.raises(UsageError, match=words):
        check_shares(saved, settings, nodes)
