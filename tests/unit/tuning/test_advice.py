"""What the user's own code fixes: tried, proven, said, and never applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import LeftOut
from autotune.profiles import file
from autotune.report import result
from autotune.tuning.advice import ADVICE, advice, try_fixed
from autotune.tuning.result import proven_answers
from tests.doubles import profiles
from tests.doubles.fake_bench import MACHINE, OWN, SPACES, STILL, FakeBench, listed, make, run

LINE = "torch.set_num_threads(1) (train.py:4)"
FIXED = replace(
    MACHINE.context,
    task=replace(
        MACHINE.context.task, fixed={"threads": LINE}, left_out=(LeftOut("threads", None, "the script sets them"),)
    ),
)


def speed(settings: Settings) -> float:
    return 1000.0 * (2.0 if settings.threads != OWN.threads else 1.0)


def test_a_gain_is_proven_and_written_and_no_level_has_it(tmp_path: Path) -> None:
    state = make(FakeBench(speed, noise=STILL), listed())
    state.advised = try_fixed(state, FIXED)
    run(state)
    (found,) = advice(state, FIXED)
    assert (found.knob, found.instead_of) == ("threads", LINE)
    assert found.speedup.low == pytest.approx(2.0, rel=0.1)
    assert ADVICE not in proven_answers(state, SPACES)
    assert all(answer.settings == OWN for answer in proven_answers(state, SPACES).values())
    own = profiles.profile()
    path, _note = file.save(tmp_path / "x.yaml", replace(own, evidence=replace(own.evidence, advice=(found,))))
    (said,) = result.details(file.read(path))["Advice"]
    assert f"in place of {LINE}: 2.0" in said


@pytest.mark.parametrize("others", [1000.0, 500.0])
def test_what_is_no_faster_takes_no_place_in_the_proof(others: float) -> None:
    state = make(FakeBench(lambda settings: 1000.0 if settings == OWN else others, noise=STILL), listed())
    assert try_fixed(state, FIXED) is None
    assert run(state).rounds == []
    assert advice(state, FIXED) == ()


def test_nothing_is_tried_where_nothing_is_fixed() -> None:
    bench = FakeBench(speed)
    assert try_fixed(make(bench), MACHINE.context) is None
    assert bench.measured == []
