"""The race: who runs, and who is left out."""

from __future__ import annotations

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.tuning.race import RUNGS, race
from autotune.tuning.state import RunState
from tests.doubles.fake_bench import FakeBench, completed, listed, make, speeds

OWN = Settings(threads=2, batch_size=64)
FOUND = [OWN.but(num_workers=count) for count in (1, 2, 3, 4)]
LOW = [settings.but(precision="bf16") for settings in FOUND]
EXACT = (0.0, 0.0, 0.0)


def searched(bench: FakeBench, rates: dict[Settings, float], budget: float = 500.0) -> RunState:
    """After a search whose trials measured ``rates``."""
    history = [Trial(settings, completed(rate), "safe") for settings, rate in {OWN: 1000.0, **rates}.items()]
    state = make(bench, listed(), history=history, budget=budget)
    state.baseline, state.start_seconds = OWN, 0.1
    return state


class TestRace:
    def test_the_slower_half_leaves_after_each_rung(self) -> None:
        bench = FakeBench(speeds(dict(zip(FOUND, (1.1, 1.2, 1.3, 1.4), strict=True))), noise=EXACT)
        winners = race(searched(bench, dict.fromkeys(FOUND, 1200.0)), {"safe": FOUND})
        assert winners == {"safe": FOUND[3]}
        assert [set(contest.values()) for contest in bench.contests] == [{OWN, *FOUND}, {OWN, *FOUND[2:]}]
        assert len(bench.contests) == RUNGS

    def test_settings_in_two_fields_run_once(self) -> None:
        bench = FakeBench(speeds(dict.fromkeys(LOW, 1.5)), noise=EXACT)
        race(searched(bench, {}), {"safe": FOUND[:2], "amp": [FOUND[0], LOW[0]]})
        assert len(bench.contests[0]) == 1 + 3
