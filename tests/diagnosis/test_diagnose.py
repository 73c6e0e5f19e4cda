"""From rounds and an inspection to a diagnosis."""

from __future__ import annotations

import pytest

from autotune.diagnosis.diagnose import STEP, contenders, diagnose, quick_verdict
from autotune.diagnosis.passes import BANDWIDTH, OVERHEAD
from autotune.diagnosis.verdict import KINDS, MAIN_PROCESS, THREADS
from autotune.knobs.settings import Settings
from autotune.trial.parts import EXCHANGE, LOADER, UPDATE

from .records import LIMITS, inspection, rounds

OWN = Settings(threads=2, batch_size=10)


class TestContenders:
    def test_a_single_process_exchanges_nothing(self) -> None:
        assert contenders(OWN, 2) == {STEP: (OWN, ""), LOADER: (OWN, LOADER), UPDATE: (OWN, UPDATE)}

    def test_several_processes_also_run_without_the_exchange(self) -> None:
        own = OWN.but(processes=2, threads=1, backend="gloo")
        assert contenders(own, 2)[EXCHANGE] == (own, EXCHANGE)

    @pytest.mark.parametrize(
        ("own", "threads", "fewer"),
        [
            (OWN.but(threads=16), 2, 2),
            (OWN.but(num_workers=1), 2, 1),
            (OWN.but(processes=4, threads=4), 8, 2),
            (OWN, 2, None),
            (OWN.but(threads=1, num_workers=8), 2, None),
        ],
    )
    def test_fewer_threads_run_where_more_are_busy_than_fit(
        self, own: Settings, threads: int, fewer: int | None
    ) -> None:
        found = contenders(own, threads).get(THREADS)
        assert (found[0].threads if found else None) == fewer


class TestDiagnose:
    def test_bounds_come_from_the_rounds(self) -> None:
        found = diagnose(rounds(loader=4.0, update=1.1), inspection(), LIMITS, OWN, "samples", 1000.0)
        assert found.verdict.kind == MAIN_PROCESS
        assert found.bounds[LOADER].value == pytest.approx(4.0)
        assert found.bounds[LOADER].low < 4.0 < found.bounds[LOADER].high

    def test_passes_gain_no_more_than_their_share(self) -> None:
        found = diagnose(
            rounds(loader=2.0, update=1.0), inspection(batches=((1.0, 1.0),) * 5), LIMITS, OWN, "samples", 1000.0
        )
        assert found.bounds[OVERHEAD].value == pytest.approx(2.0, rel=0.01)

    def test_where_the_batch_cannot_be_cut_calls_give_the_least_and_kernels_the_most(self) -> None:
        found = diagnose(rounds(loader=1.0, update=1.0), inspection(), LIMITS, OWN, "samples", 1000.0)
        overhead = found.bounds[OVERHEAD]
        assert 1.0 <= overhead.low <= overhead.value <= overhead.high
        assert overhead.high == pytest.approx(1 / 0.199, rel=0.1), "2 ms of kernels in a step of 10 ms"

    def test_traffic_is_bounded_too(self) -> None:
        found = diagnose(rounds(loader=1.0, update=1.0), inspection(), LIMITS, OWN, "samples", 1000.0)
        assert found.bounds[BANDWIDTH].value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("load_share", "update", "kind"),
    [(0.8, 0.001, MAIN_PROCESS), (0.1, 0.007, KINDS["update"]), (0.1, 0.001, KINDS["compute"])],
)
def test_one_trial_gives_a_quick_verdict(load_share: float, update: float, kind: str) -> None:
    assert quick_verdict(inspection(update_seconds=update), LIMITS, OWN, load_share).kind == kind
