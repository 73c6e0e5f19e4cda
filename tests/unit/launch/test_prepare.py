"""What starts a profile's settings: for an unmodified script, for one that applies them itself, and for nobody."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.launch.prepare import _order, _why_alone, check_shares
from autotune.profiles.format import NotOffered, Profile, Target
from autotune.scripts.apply import Order, SharedBatch
from autotune.trial.target import Script
from tests.doubles.results import BASELINE, profile

SCRIPT = profile(target=Target("train", "samples", "cpu", 100, 1024, script="batches"))
BATCH = BASELINE.global_batch
TWO = BASELINE.but(processes=2, batch_size=BATCH // 2)
APART = replace(SCRIPT, evidence=replace(SCRIPT.evidence, not_offered=(NotOffered("processes", 2, "trains apart"),)))


def test_a_script_is_handed_what_differs_from_its_own() -> None:
    assert _order(SCRIPT, "amp", BASELINE) is None
    found = _order(SCRIPT, "amp", BASELINE.but(threads=1))
    assert (found.changed, found.level, found.shared_batch) == ({"threads"}, "amp", None)
    assert Order.from_text(found.as_text()) == found

    assert _order(SCRIPT, "amp", TWO).shared_batch == SharedBatch(BATCH, BATCH // 2, 1024)


@pytest.mark.parametrize(
    ("saved", "processes", "nodes", "words"),
    [
        (SCRIPT, 2, 1, None),
        (APART, 1, 1, None),
        (profile(), 2, 2, None),
        (APART, 2, 1, "train cannot train as 2 processes: trains apart"),
        (APART, 4, 1, "as 4 processes: trains apart"),
        (SCRIPT, 3, 1, f"cannot share its batch of {BATCH} equally"),
        (SCRIPT, 1, 2, "tuned for one machine"),
    ],
)
def test_processes_start_if_they_train_together(saved: Profile, processes: int, nodes: int, words: str | None) -> None:
    settings = BASELINE.but(processes=processes, batch_size=-(-BATCH // processes))
    with pytest.raises(UsageError, match=words) if words else nullcontext():
        check_shares(saved, settings, nodes)


@pytest.mark.parametrize(("variables", "alone"), [({}, False), ({"RANK": "1", "WORLD_SIZE": "2"}, True)])
def test_a_process_that_the_user_has_numbered_starts_no_others(
    variables: dict[str, str], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    reason = _why_alone(SCRIPT, Script(Path("train.py"), written="train.py"))
    assert ("RANK and WORLD_SIZE are yours" in (reason or "")) is alone
