"""What the user asked for: its spaces, and the budget if none was given."""

from typing import Any

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.knobs.level import LEVELS
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Outcome, TimedOut
from autotune.tuning.options import Options
from tests.doubles.simulation.simulator import context, inventory

MACHINE = inventory(4, 4)
CONTEXT = context(MACHINE, 32)
OWN = CONTEXT.baseline


class TestSpaces:
    @pytest.mark.parametrize(
        ("only", "follow"),
        [
            ("optimizer_impl", set()),
            ("num_workers", {"prefetch_factor"}),
            ("processes", {"threads", "backend", "batch_size"}),
        ],
    )
    def test_only_lets_this_knob_move_and_what_follows_from_it(self, only: str, follow: set[str]) -> None:
        space = Options(only=(only,)).spaces(CONTEXT)["safe"]
        moves = [set(settings.difference(OWN)) for _, settings in space.moves(OWN)]
        assert any(only in changed for changed in moves)
        assert all(changed <= {only} | follow for changed in moves)

    def test_fix_leaves_one_value_at_each_level(self) -> None:
        spaces = Options(fix={"num_workers": 1}).spaces(CONTEXT)
        assert {level: (space.level, space.values["num_workers"]) for level, space in spaces.items()} == {
            level: (level, (1,)) for level in LEVELS
        }


def baseline(step_seconds: float) -> Outcome:
    """A trial of ten steps."""
    return Completed(measurement=Measurement((Block(640, 10 * step_seconds, 10),)))


@pytest.mark.parametrize(
    ("outcome", "wishes", "expected"),
    [
        (None, {}, 90.0),
        (TimedOut("slow"), {}, 90.0),
        (baseline(0.001), {}, 60.0),
        (baseline(0.1), {}, 90.0),
        (baseline(2.0), {}, 150.0),
        (baseline(0.001), {"train_seconds": 3600.0}, 72.0),
        (baseline(0.1), {"train_seconds": 36_000.0}, 600.0),
        (None, {"train_seconds": 4 * 3600.0}, 288.0),
        (baseline(2.0), {"train_seconds": 36_000.0, "budget": 20.0}, 20.0),  # what the user says is final
    ],
)
def test_the_step_and_the_training_ahead_decide(outcome, wishes, expected) -> None:
    assert Options(**wishes).seconds(outcome) == expected


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"max_memory": 0}, "--max-memory 0"),
        ({"sampler": "tpee"}, "--sampler tpee: .*tpe"),
        ({"sampler": "optuna.samplers:BaseSampler"}, "is no class that implements"),
        ({"max_memory": "8g"}, "max_memory: .8g. is not a whole number"),
        *(({"budget": each}, "--budget .*s is too short") for each in (float("nan"), 0)),
        ({"train_seconds": -1.0}, "--train-time -1s"),
        ({"only": [3]}, "only.0: 3 is not text"),
        ({"fix": "num_workers=2"}, "fix: .* is not a group of keys"),
    ],
)
def test_what_cannot_work_is_refused_at_once(option: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Options(**option)


def test_numpys_numbers_are_numbers() -> None:
    own = Options(budget=np.float32(30.0), seed=np.int64(3))  # type: ignore[arg-type]
    assert (own.budget, type(own.budget), type(own.seed)) == (30.0, float, int)


@pytest.mark.parametrize("option", [{"max_gpu_memory": 2**30}, {"only": ("compile",)}, {"fix": {"pin_memory": True}}])
def test_what_cannot_act_on_the_machine_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(option)).replace('_', '-')}"):
        Options(**option).check_on(MACHINE)
