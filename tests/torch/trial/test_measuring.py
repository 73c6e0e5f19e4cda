"""When a warm-up ends."""

import pytest

from autotune.knobs.settings import Settings

from .conftest import BATCH, STEP, Workshop, block, warm


class TestWarmUp:
    def test_10_5_2_1_1_is_measured_as_1(self, workshop: Workshop) -> None:
        """G02: compiling, tuning and turbo are over before the first block."""
        workshop.cost = lambda step: STEP * {0: 10, 1: 5, 2: 2}.get(step, 1)
        loop = workshop.loop()
        first = loop.run(loop.timed(1))
        warmed = warm(loop)
        assert warmed.warmup_seconds < 2.0, "before the cap"
        assert warmed.warmup_steps >= 6
        assert first == pytest.approx(10 * STEP)
        assert block(loop, 10).rate == pytest.approx(BATCH / STEP, rel=0.03)

    def test_never_steady_ends_at_the_cap(self, workshop: Workshop) -> None:
        workshop.cost = lambda step: STEP * 1.05**step
        warmed = warm(workshop.loop(spec={"warmup_seconds": 2.0}))
        assert 2.0 <= warmed.warmup_seconds < 3.0
        assert warmed.warmup_steps >= 3

    @pytest.mark.parametrize("cost", [5.0, 0.2])
    def test_takes_three_steps_however_slow(self, workshop: Workshop, cost: float) -> None:
        workshop.cost = lambda _: cost
        warmed = warm(workshop.loop(spec={"warmup_seconds": 0.1}))
        assert warmed.warmup_steps == 3
        assert warmed.warmup_seconds == pytest.approx(3 * cost)

    @pytest.mark.parametrize(("cost", "steps"), [(STEP, 12), (STEP / 4, 0)])
    def test_a_clear_loser_ends_at_once(self, workshop: Workshop, cost: float, steps: int) -> None:
        """A bar that a step of a quarter of `STEP` would just clear."""
        workshop.cost = lambda _: cost
        taken = warm(workshop.loop(spec={"give_up_below": BATCH / (STEP / 4)})).warmup_steps
        assert taken <= steps if steps else taken > 12

    @pytest.mark.parametrize(("workers", "prefetch"), [(2, 2), (2, 32)])
    def test_consumes_what_the_loader_had_ready(self, workshop: Workshop, workers: int, prefetch: int) -> None:
        settings = Settings(batch_size=BATCH, num_workers=workers, prefetch_factor=prefetch)
        loop = workshop.loop(settings, spec={"warmup_seconds": 60.0})
        assert warm(loop).warmup_steps >= workers * (prefetch + 1)
