"""The race: who runs, and who is left out."""

from __future__ import annotations

import pytest

from autotune.knobs.settings import Settings
from autotune.search.protocol import Observation
from autotune.tuning.finalists import leaders
from autotune.tuning.race import RUNGS, race
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools
from tests.tuning.fakes import (
    FakeBench,
    completed,
    listed,
    make,
    speeds,
)

OWN = Settings(threads=2, batch_size=64)
FINALISTS = [OWN.but(num_workers=count) for count in (1, 2, 3, 4)]
LOW = [settings.but(precision="bf16") for settings in FINALISTS]
EXACT = (0.0, 0.0, 0.0)


def searched(bench: FakeBench, rates: dict[Settings, float], budget: float = 500.0) -> tuple[RunState, Tools]:
    """After a search whose trials measured ``rates``."""
    state = RunState(OWN, 0.1)
    for settings, rate in {OWN: 1000.0, **rates}.items():
        state.add(Observation(settings, completed(rate), "safe"))
    return state, make(bench, listed(), history=state.history, budget=budget).tools


class TestRace:
    def test_the_slower_half_leaves_after_each_rung(self) -> None:
        bench = FakeBench(speeds(dict(zip(FINALISTS, (1.1, 1.2, 1.3, 1.4), strict=True))), noise=EXACT)
        winners = race(*searched(bench, dict.fromkeys(FINALISTS, 1200.0)), {"safe": FINALISTS})
        assert winners == {"safe": FINALISTS[3]}
        assert [set(contest.values()) for contest in bench.contests] == [{OWN, *FINALISTS}, {OWN, *FINALISTS[2:]}]
        assert len(bench.contests) == RUNGS

    def test_settings_in_two_fields_run_once(self) -> None:
        bench = FakeBench(speeds(dict.fromkeys(LOW, 1.5)), noise=EXACT)
        race(*searched(bench, {}), {"safe": FINALISTS[:2], "amp": [FINALISTS[0], LOW[0]]})
        assert len(bench.contests[0]) == 1 + 3

    def test_a_level_no_faster_than_the_one_below_is_left_out(self) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 1.5, LOW[0]: 1.2}), noise=EXACT)
        trials = {FINALISTS[0]: 1200.0, FINALISTS[1]: 1190.0, LOW[0]: 1300.0}
        state, tools = searched(bench, trials)
        assert set(leaders(state, {"safe": FINALISTS[:2], "amp": LOW[:1]}, state.estimate)) == {"safe", "amp"}
        assert race(state, tools, {"safe": FINALISTS[:2], "amp": LOW[:1]}) == {"safe": FINALISTS[0]}

    def test_a_level_no_faster_than_the_baseline_is_left_out(self) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 0.98, LOW[0]: 1.2}), noise=EXACT)
        state, tools = searched(bench, {FINALISTS[0]: 1010.0, FINALISTS[1]: 1005.0, LOW[0]: 1300.0})
        assert race(state, tools, {"safe": FINALISTS[:1], "amp": LOW[:2]}) == {"amp": LOW[0]}

    def test_trials_count_beside_rungs(self) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 1.2, FINALISTS[1]: 1.25}), noise=EXACT)
        trials = {FINALISTS[0]: 1400.0, FINALISTS[1]: 1100.0}
        assert race(*searched(bench, trials), {"safe": FINALISTS[:2]}) == {"safe": FINALISTS[0]}

    def test_they_do_not_where_the_host_moved_the_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("autotune.tuning.race.moved", lambda _: True)
        bench = FakeBench(speeds({FINALISTS[0]: 1.2, FINALISTS[1]: 1.25}), noise=EXACT)
        trials = {FINALISTS[0]: 1400.0, FINALISTS[1]: 1100.0}
        assert race(*searched(bench, trials), {"safe": FINALISTS[:2]}) == {"safe": FINALISTS[1]}

    def test_no_time_no_race(self) -> None:
        bench = FakeBench(speeds({}), noise=EXACT)
        trials = {FINALISTS[0]: 1200.0, FINALISTS[1]: 1300.0}
        assert (
            race(*searched(bench, trials, budget=2.0), {"safe": FINALISTS[:2]}) == {"safe": FINALISTS[1]}
            or bench.contests == []
        )
        assert bench.contests == []
