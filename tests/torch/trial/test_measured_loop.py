"""The measured loop in this process, whole and without parts, on a clock that only the task's own work moves."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from autotune.devices import CPU, Device
from autotune.knobs.settings import Settings
from autotune.probes.cpu_time import Load
from autotune.runtime.session import Session
from autotune.runtime.shards import Shard
from autotune.trial.child import measured_loop
from autotune.trial.messages import CHECK_STEPS, Without

from .conftest import BATCH, STEP, Workshop, block


class TestBlock:
    def test_counts_the_users_own_items(self, workshop: Workshop) -> None:
        loop = workshop.loop(count_items=lambda batch: batch[0].numel())
        assert block(loop, 2).items == 2 * BATCH * 3

    def test_counts_what_a_ragged_last_batch_holds(self, workshop: Workshop) -> None:
        assert block(workshop.loop(samples=20), 6).items == 2 * 20

    def test_time_in_the_loader_counts(self, workshop: Workshop) -> None:
        loop = workshop.loop(reading=STEP)
        measured = block(loop, 4)
        assert measured.seconds == pytest.approx(4 * (STEP + BATCH * STEP))
        assert loop.waited == pytest.approx(3 * BATCH * STEP), "the first batch starts the workers"

    @pytest.mark.parametrize(("starved", "steps"), [(False, 1), (True, 3)])
    def test_a_block_takes_as_many_batches_of_each_worker(self, starved, steps, workshop, monkeypatch) -> None:
        """Seen: both workers' batches came together, and a block between them showed 50 times the rate."""
        loop = workshop.loop()
        monkeypatch.setattr(loop, "spec", replace(loop.spec, settings=Settings(num_workers=3)))
        loop.starved = starved
        assert [loop.steps_for(0.0, pace) for pace in (1.0, 0.1 / 30)] == [steps, 30]

    def test_waits_for_the_device_at_its_edges_only(self, workshop: Workshop) -> None:
        loop = workshop.loop()
        block(loop, 50)
        assert workshop.syncs == 2

    def test_slow_synchronisation_is_in_the_time(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        """G01: launching is instant, the work is only seen when waited for."""
        workshop.cost = lambda _: 0.0
        loop = workshop.loop()

        def synchronize(_device: Device) -> None:
            workshop.clock.now += 1.0

        monkeypatch.setattr(type(CPU), "synchronize", synchronize)
        assert block(loop, 10).seconds == pytest.approx(1.0)

    def test_notes_what_others_took(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        load = Load(taken=1.0, steal=0.5, threads=4, waited=0.7)
        monkeypatch.setattr(measured_loop.Neighbours, "load", lambda _: load)
        measured = block(workshop.loop(), 1)
        assert (measured.cpu_wait, measured.neighbours) == (0.3, 1.5)


class TestSteps:
    def test_samples_that_other_ranks_have_too_count_in_part(self, workshop, monkeypatch) -> None:
        monkeypatch.setattr(Session, "part", property(lambda _: Shard([], share=0.25)))
        assert block(workshop.loop(), 3).items == 3 * BATCH / 4

    @pytest.mark.parametrize(("workers", "kept"), [(0, False), (2, False), (2, True)])
    def test_come_from_a_loader_with_the_users_workers(self, workshop, monkeypatch, workers, kept) -> None:
        prepared: list[Any] = []
        monkeypatch.setattr(Session, "prepare", lambda _, *objects, **options: prepared.extend(objects) or objects)
        current = {"num_workers": workers, "persistent_workers": kept}
        workshop.loop(Settings(batch_size=BATCH, num_workers=3), CURRENT=current)
        assert (prepared[2].num_workers, prepared[2].persistent_workers) == (workers, kept)
        assert prepared[2].batch_size == BATCH


@pytest.mark.parametrize(("every", "earning"), [(2, 5), (5, 8), (1, 0)])
def test_steps_that_a_gradient_scaler_skips_take_time_and_earn_nothing(workshop, monkeypatch, every, earning) -> None:
    monkeypatch.setattr(Session, "skipped_steps", property(lambda _: workshop.steps // every))
    measured = block(workshop.loop(), 10)
    assert (measured.items, measured.steps) == (earning * BATCH, 10)
    assert measured.seconds == pytest.approx(10 * STEP)


class TestStepsOfABlock:
    @pytest.mark.parametrize(
        ("seconds", "pace", "steps"),
        [(1.0, 0.1, 10), (1.0, 0.3, 4), (0.0, 0.01, 10), (0.25, 60.0, 1), (0.1, 0.0, 1_000_000)],
        ids=["fill", "rounded up", "at least a block", "one slow step", "no pace known"],
    )
    def test_for_a_block(self, workshop: Workshop, seconds: float, pace: float, steps: int) -> None:
        assert workshop.loop().steps_for(seconds, pace) == pytest.approx(steps, rel=1e-3)

    def test_show_life_about_every_half_second(self, workshop: Workshop) -> None:
        workshop.cost = lambda _: 0.2
        loop = workshop.loop()
        start = workshop.clock.now
        block(loop, 20)
        gaps = [after - before for before, after in zip([start, *workshop.signs], workshop.signs, strict=False)]
        assert len(gaps) >= 5
        assert max(gaps) <= measured_loop.LIFE_SIGN_SECONDS + 2 * 0.2 + 1e-9, "seen between steps only"


class TestNumbers:
    def test_the_first_losses_are_kept(self, workshop: Workshop) -> None:
        loop = workshop.loop()
        block(loop, CHECK_STEPS + 5)
        losses = loop.checked_losses()
        assert len(losses) == CHECK_STEPS
        assert all(loss > 0 for loss in losses)
        assert loop.finite

    @pytest.mark.parametrize("precision", ["fp32", "bf16"])
    def test_what_overflows_in_bf16_only_is_noticed(self, workshop: Workshop, precision: str) -> None:
        class Narrow(nn.Linear):
            def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                outputs = super().forward(inputs)
                return outputs + torch.log(outputs * 0 + 1.001 - 1)  # in bfloat16, 1.001 is exactly 1

        settings = Settings(batch_size=BATCH, precision=precision)
        loop = workshop.loop(settings, build_model=lambda: Narrow(3, 1))
        block(loop, 2)
        assert loop.finite == (precision == "fp32")


class TestLeavingOut:
    def test_a_loader_that_is_left_out_gives_one_batch_again_and_again(self, workshop: Workshop) -> None:
        block(workshop.loop(spec={"without": Without.LOADER}), 5)
        assert len({each.data_ptr() for each in workshop.seen}) == 1

    def test_an_update_that_is_left_out_changes_no_weight(self, workshop: Workshop) -> None:
        loop = workshop.loop(spec={"without": Without.UPDATE})
        loop.leave_out()
        before = [p.clone() for p in loop.model.parameters()]
        block(loop, 3)
        assert all(map(torch.equal, before, loop.model.parameters()))

    def test_a_closure_is_still_called(self, workshop: Workshop) -> None:
        loop = workshop.loop(spec={"without": Without.UPDATE})
        loop.leave_out()
        assert loop.optimizer.step(lambda: torch.tensor(3.0)) == 3.0
        assert loop.optimizer.step() is None

    def test_a_scripts_own_gradient_sync(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        model = SimpleNamespace(syncs=True)

        @contextlib.contextmanager
        def no_sync() -> Iterator[None]:
            model.syncs = False
            yield
            model.syncs = True

        model.no_sync = no_sync
        monkeypatch.setattr(DistributedDataParallel, "forward", lambda own, number: (own.syncs, number))
        workshop.loop(spec={"without": Without.GRADIENT_SYNC}).leave_out()
        assert DistributedDataParallel.forward(model, 3) == (False, 3)  # type: ignore[arg-type]
