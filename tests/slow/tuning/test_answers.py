"""How often the tuner is wrong, on many seeds of machines with known truth, in simulated time."""

import pytest

from autotune.knobs.level import LEVELS
from autotune.stats.decide import LevelVerdict
from autotune.tuning.result import proven_answers
from tests.doubles.fake_bench import FakeBench, make, run, wandering
from tests.unit.tuning.test_run import NO_GAIN


@pytest.mark.parametrize(("name", "seeds", "claims"), zip(NO_GAIN, (100, 100, 30), (3, 3 * 2, 0), strict=True))
def test_the_default_is_kept(name: str, seeds: int, claims: int) -> None:
    """L08, M03. Whatever luck chose for the proof. Each claim of level safe is carried by the two above it."""
    rate, noise = NO_GAIN[name]
    for seed in range(seeds):
        state = run(make(FakeBench(rate, seed, noise=noise), wandering(seed)))
        for result in proven_answers(state, LEVELS).values():
            claims -= result.proven
            assert result.proven or result.verdict in (
                LevelVerdict.CANNOT_TELL,
                LevelVerdict.NO_GAIN,
                LevelVerdict.NOT_TRIED,
            )
    assert claims >= 0
