"""What starts a profile's settings: for an unmodified script, for one that applies them itself, and for nobody."""

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.task_facts import LeftOut
from autotune.launch.prepare import _order, _why_alone, _why_apart, _why_one_machine
from autotune.profiles.format import Profile, Target
from autotune.scripts.apply import Order, SharedBatch
from autotune.trial.target import Script
from tests.doubles.results import BASELINE, profile

SCRIPT = profile(target=Target("train", "samples", "cpu", 100, 1024, script="batches"))
BATCH = BASELINE.global_batch
TWO = BASELINE.but(processes=2, batch_size=BATCH // 2)
APART = replace(SCRIPT, evidence=replace(SCRIPT.evidence, not_offered=(LeftOut("processes", 2, "trains apart"),)))


def test_a_script_is_handed_what_differs_from_its_own() -> None:
    assert _order(SCRIPT, "amp", BASELINE) is None
    found = _order(SCRIPT, "amp", BASELINE.but(threads=1))
    assert (found.changed, found.level, found.shared_batch) == ({"threads"}, "amp", None)
    assert Order.from_text(found.as_text()) == found

    assert _order(SCRIPT, "amp", TWO).shared_batch == SharedBatch(BATCH, BATCH // 2, 1024)


@pytest.mark.parametrize(
    ("saved", "processes", "words"),
    [
        (SCRIPT, 2, None),
        (APART, 1, None),
        (profile(), 2, None),
        (APART, 2, "train cannot train as 2 processes: trains apart"),
        (APART, 4, "as 4 processes: trains apart"),
        (SCRIPT, 3, f"cannot share its batch of {BATCH} equally"),
    ],
)
def test_processes_start_if_they_train_together(saved: Profile, processes: int, words: str | None) -> None:
    settings = BASELINE.but(processes=processes, batch_size=-(-BATCH // processes))
    assert (words or "None") in str(_why_apart(saved, settings))


def test_a_profile_that_is_not_applied_on_several_machines() -> None:
    assert _why_one_machine(profile(), "safe") is None
    assert "tuned for one machine" in str(_why_one_machine(SCRIPT, "safe"))
    level = profile().levels["safe"]
    mpi = profile(levels={"safe": replace(level, settings=level.settings.but(processes=2, backend="mpi"))})
    assert "backend mpi trains on one machine" in str(_why_one_machine(mpi, "safe"))


def test_a_process_that_the_user_has_numbered_starts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(Path("train.py"), written="train.py")
    assert _why_alone(SCRIPT, script, None) is None
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _why_alone(SCRIPT, script, None) == "RANK and WORLD_SIZE are yours"
