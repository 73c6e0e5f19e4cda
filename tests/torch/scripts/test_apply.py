"""Settings applied from outside give the same training, and reach what is trained with alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from autotune.script.tuned import BACKWARDS, BATCHES, STEPS, Tuned, as_plain
from autotune.script.watch import Watch
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session

SETTINGS = Settings(batch_size=4, threads=torch.get_num_threads(), num_workers=1, optimizer_impl="fused")
Begin = Callable[..., Tuned]


class Counting:
    """A meter that counts, and lets a script end."""

    loader: Any = None

    def __init__(self, most: int = 10**9) -> None:
        self.begun, self.batches, self.steps, self.interrupted, self.most = 0, 0, 0, 0, most
        self.losses: list[float] = []

    def begins(self, session: Session) -> None:
        self.begun += 1

    def next_batch(self, read: Callable[[], Any]) -> Any:
        return read()

    def takes(self, batch: Any, waited: float) -> None:
        self.batches += 1

    def goes_backward(self, loss: Tensor) -> None:
        self.losses.append(loss.item())

    def ends_step(self, *, interrupted: bool = False) -> None:
        self.steps += 1
        self.interrupted += interrupted
        if self.steps == self.most:
            raise TimeoutError


@pytest.fixture
def begin() -> Iterator[Begin]:
    found: list[Tuned] = []

    def make(settings: Settings = SETTINGS, **options: Any) -> Tuned:
        watch = Watch()
        tuned = Tuned(watch, lambda: Session(settings, device="cpu", moves=False), **options)
        watch.watcher = tuned
        watch.install()
        found.append(tuned)
        return tuned

    yield make
    for tuned in found:
        tuned.watch.remove()
        if tuned.session is not None:
            tuned.session.close()


def data(count: int = 24) -> TensorDataset:
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def train(epochs: int = 2, **options: Any) -> tuple[list[float], dict[str, Tensor]]:
    """A plain loop; its losses and weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(data(), batch_size=4, shuffle=True, **options)
    valid = DataLoader(data(), batch_size=8)
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            losses += [nn.functional.mse_loss(model(inputs), targets).item() for inputs, targets in valid]
    return losses, model.state_dict()


class TestSameTraining:
    def test_a_plain_loop(self, begin: Begin) -> None:
        losses, weights = train()
        tuned = begin()
        again, found = train()
        assert again == pytest.approx(losses, rel=1e-5)
        for name, value in weights.items():
            torch.testing.assert_close(found[name], value)
        assert tuned.session is not None
        assert tuned.session.not_applied == ()

    def test_without_a_loader(self, begin: Begin) -> None:
        def loop() -> list[float]:
            torch.manual_seed(0)
            model, losses = nn.Linear(3, 1), []
            optimizer = SGD(model.parameters(), lr=0.1)
            for _ in range(5):
                loss = model(torch.ones(2, 3)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses

        plain = loop()
        tuned = begin(known_by=STEPS)
        assert loop() == pytest.approx(plain, rel=1e-5)
        assert tuned.session is not None

    def test_outputs_under_autocast_are_float32(self, begin: Begin) -> None:
        begin(SETTINGS.but(precision="bf16", num_workers=0))
        seen = []
        model = nn.Linear(3, 1)
        optimizer = SGD(model.parameters(), lr=0.1)
        model.register_forward_hook(lambda _model, _inputs, output: seen.append(output.dtype))
        for inputs, _targets in DataLoader(data(), batch_size=4):
            output = model(inputs)
            output.detach().numpy()
            output.mean().backward()
            optimizer.step()
        assert set(seen) == {torch.bfloat16}, "from the first step on"


class TestReach:
    def test_other_loaders_are_left_alone(self, begin: Begin) -> None:
        tuned = begin()
        model = nn.Linear(3, 1)
        loader, valid = DataLoader(data(), batch_size=4), DataLoader(data(), batch_size=8)
        assert list(valid), "nothing trains yet"
        assert tuned.session is None
        optimizer = SGD(model.parameters(), lr=0.1)
        next(iter(loader))
        with torch.no_grad():
            next(iter(loader))
        iterator = iter(valid)
        assert type(iterator).__name__ == "_SingleProcessDataLoaderIter"
        assert tuned.session is not None
        assert len(optimizer.param_groups) == 1

    def test_skips_what_only_looks_like_training(self, begin: Begin) -> None:
        tuned = begin(skip=1)
        optimizer = SGD(nn.Linear(3, 1).parameters(), lr=0.1)
        list(DataLoader(data(), batch_size=8))
        assert tuned.session is None
        list(DataLoader(data(), batch_size=4))
        assert tuned.session is not None
        assert optimizer.param_groups

    def test_a_loader_built_for_each_epoch(self, begin: Begin) -> None:
        tuned = begin()
        dataset = data()
        optimizer = SGD(nn.Linear(3, 1).parameters(), lr=0.1)
        for _ in range(2):
            assert type(iter(DataLoader(dataset, batch_size=4))).__name__ == "_Passing"
        assert len(tuned._loaders) == 2
        assert optimizer.param_groups

    def test_a_stream_without_a_length(self, begin: Begin) -> None:
        class Stream(IterableDataset[Any]):
            def __iter__(self) -> Iterator[Any]:
                return iter(torch.ones(8, 3))

        tuned = begin(SETTINGS.but(num_workers=0))
        optimizer = SGD(nn.Linear(3, 1).parameters(), lr=0.1)
        loader = DataLoader(Stream(), batch_size=4)
        assert [len(list(loader)) for _ in range(2)] == [2, 2]
        assert tuned.session is not None
        assert optimizer.param_groups

    def test_a_subclass_that_calls_its_parent(self, begin: Begin) -> None:
        class Counted(DataLoader[Any]):
            begun = 0

            def __iter__(self) -> Any:
                self.begun += 1
                yield from super().__iter__()

        begin()
        optimizer = SGD(nn.Linear(3, 1).parameters(), lr=0.1)
        loader = Counted(data(), batch_size=4)
        assert len(list(loader)) == 6
        assert loader.begun == 1
        assert type(as_plain(loader)) is DataLoader
        assert optimizer.param_groups

    def test_a_failure_leaves_the_script_as_it_is(
        self, begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        losses, _ = train()

        def broken(*_: object, **__: object) -> None:
            raise ValueError("broken")

        tuned = begin()
        monkeypatch.setattr(Session, "prepare", broken)
        assert train()[0] == losses
        assert "the script runs as it is: ValueError: broken" in caplog.text
        assert type(tuned.watch.watcher).__name__ == "Watcher"


class TestMeter:
    def test_passes_go_on_without_end(self, begin: Begin) -> None:
        meter = Counting(20)
        begin(meter=meter, known_by=BATCHES)
        with pytest.raises(TimeoutError):
            train(epochs=1)
        assert (meter.begun, meter.batches, meter.steps, meter.interrupted) == (1, 20, 20, 0)
        assert len(meter.losses) == 20

    def test_a_script_that_begins_a_new_pass_interrupts(self, begin: Begin) -> None:
        meter = Counting()
        begin(SETTINGS.but(num_workers=0), meter=meter)
        optimizer = SGD(nn.Linear(3, 1).parameters(), lr=0.1)
        loader = DataLoader(data(), batch_size=4)
        for _ in range(2):
            iterator = iter(loader)
            for _ in range(3):
                next(iterator)
        assert (meter.batches, meter.steps, meter.interrupted) == (6, 5, 1)
        assert optimizer.param_groups

    @pytest.mark.parametrize(("known_by", "steps"), [(STEPS, 3), (BACKWARDS, 3)])
    def test_without_a_loader(self, begin: Begin, known_by: str, steps: int) -> None:
        meter = Counting()
        begin(meter=meter, known_by=known_by)
        model = nn.Linear(3, 1)
        optimizer = SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(2, 3)).mean().backward()
            optimizer.step()
        assert (meter.begun, meter.steps) == (1, steps)
