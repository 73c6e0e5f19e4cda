"""Loops that several processes must run as one process does. Each returns numbers that say what came out.

Every process draws other random numbers of its own: what rank 0 draws must decide.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, random_split

from autotune.runtime.session import Session
from tests.torch.records import dataset, network

Scene = Callable[[Session], list[float]]
SCENES: dict[str, Scene] = {}
LOSS = nn.functional.mse_loss
NOT_OVERLAPPED = (
    *("two heads", "inner steps", "parts that take turns"),
    *("a batch is skipped by its loss", "a batch is skipped since a sample is broken"),
)
"""What `DistributedDataParallel` cannot do, and so several GPUs cannot: it raises."""


def scene(function: Scene, name: str = "") -> Scene:
    """Register ``function`` under its name."""

    def seeded(session: Session) -> list[float]:
        torch.manual_seed(10 + session.rank)
        return function(session)

    SCENES[name or function.__name__.replace("_", " ")] = seeded
    return seeded


def numbers(*models: nn.Module) -> list[float]:
    """All parameters."""
    return [float(value) for model in models for p in model.parameters() for value in p.detach().flatten()]


def plain(samples: int = 32) -> DataLoader[Any]:
    """A loader in fixed order."""
    return DataLoader(dataset(samples), batch_size=8)


def shuffled(samples: int = 22) -> DataLoader[Any]:
    """A loader that shuffles by the process's own random numbers."""
    return DataLoader(dataset(samples), batch_size=8, shuffle=True)


Step = Callable[[Any, torch.Tensor, torch.Tensor, int], torch.Tensor | None]


def usual(model: Any, inputs: torch.Tensor, targets: torch.Tensor, _number: int) -> torch.Tensor:
    """The loss of a batch."""
    return LOSS(model(inputs), targets)


def fitted(
    session: Session,
    loader: DataLoader[Any],
    loss_of: Step = usual,
    *,
    model: Any = None,
    optimizer: Any = None,
    epochs: int = 2,
    before: Callable[[Any, int], None] = lambda _loader, _epoch: None,
    after: Callable[[torch.Tensor], None] = lambda _loss: None,
) -> list[float]:
    """Parameters after a training; a loss of None leaves its batch out."""
    model = model or network()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = session.prepare(model, optimizer, loader)
    for epoch in range(epochs):
        before(loader, epoch)
        for number, (inputs, targets) in enumerate(loader):
            loss = loss_of(model, inputs, targets, number)
            if loss is None:
                continue
            optimizer.zero_grad()
            session.backward(loss)
            optimizer.step()
            after(loss)
    return numbers(model)


class Own(Sampler[int]):
    """Draws from PyTorch's random numbers and has no length."""

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(22).tolist())


class Stream(IterableDataset[Any]):
    """Samples in random order."""

    def __iter__(self) -> Iterator[Any]:
        data = dataset(22)
        return (data[index] for index in torch.randperm(22).tolist())


class OwnLoader(DataLoader[Any]):
    """A user's subclass."""


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled without a generator": shuffled,
    "sampler without length": lambda: DataLoader(dataset(22), batch_size=8, sampler=Own()),
    "batch sampler": lambda: DataLoader(dataset(22), batch_sampler=BatchSampler(Own(), 5, False)),
    "stream": lambda: DataLoader(Stream(), batch_size=8),
    "subclass of the loader": lambda: OwnLoader(dataset(22), batch_size=8, shuffle=True),
    "a split at random": lambda: DataLoader(random_split(dataset(32), [22, 10])[0], batch_size=8, shuffle=True),
}
for _name, _make in LOADERS.items():
    scene(lambda session, make=_make: fitted(session, make()), _name)  # type: ignore[misc]


@scene
def evaluation_in_between(session: Session) -> list[float]:
    """Also by rank 0 alone, and also on the loader that is trained on. In fixed order: a look draws another one."""

    def evaluate(loader: Any, _epoch: int) -> None:
        with torch.no_grad():
            assert sum(len(inputs) for inputs, _ in loader) == 22
            if session.is_main:
                assert sum(len(inputs) for inputs, _ in loader) == 22
        if session.is_main:
            next(iter(loader))

    return fitted(session, plain(22), before=evaluate)


@scene
def training_in_eval_mode(session: Session) -> list[float]:
    return fitted(session, shuffled(), model=network().eval())


@scene
def normalised_ragged_batch(session: Session) -> list[float]:
    """Nine samples in batches of eight: BatchNorm cannot normalise over one. Compared is that it trains at all."""
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    taken: list[torch.Tensor] = []
    fitted(session, plain(10), model=model, after=taken.append)
    return [len(taken)]


@scene
def unfreezing_and_freezing(session: Session) -> list[float]:
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)

    def freeze(_loader: Any, epoch: int) -> None:
        for parameter in model[epoch % 3].parameters():
            parameter.requires_grad_(epoch != 2)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return fitted(session, shuffled(), model=model, optimizer=optimizer, epochs=4, before=freeze)


@scene
def teacher_and_average(session: Session) -> list[float]:
    """A frozen teacher, made apart on every rank, and a copy of the model that follows it."""
    model, teacher = session.prepare(network(), nn.Linear(8, 1).requires_grad_(False))
    average = copy.deepcopy(model)

    def follow(_loss: torch.Tensor) -> None:
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.5)

    return fitted(session, shuffled(), lambda m, x, *_: LOSS(m(x), teacher(x)), model=model, after=follow) + numbers(
        average
    )


@scene
def two_backward_passes_and_a_method(session: Session) -> list[float]:
    """Gradients that reach the parameters past the model's call."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = session.prepare(model, optimizer, shuffled())
    for inputs, targets in loader:
        optimizer.zero_grad()
        outputs = model(inputs)
        session.backward(LOSS(outputs, targets), retain_graph=True)
        session.backward(outputs.square().mean())
        session.backward(model.forward(inputs).abs().mean())
        session.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return numbers(model)


@scene
def accumulation_by_the_user(session: Session) -> list[float]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = session.prepare(model, optimizer, shuffled(32))
    for apart in (False, True):
        for k, (inputs, targets) in enumerate(loader):
            if apart and k % 2 == 0:
                with session.no_sync():
                    session.backward(LOSS(model(inputs), targets) / 2)
            else:
                session.backward(LOSS(model(inputs), targets) / 2)
            if k % 2:
                optimizer.step()
                optimizer.zero_grad()
    return numbers(model)


@scene
def adversaries(session: Session) -> list[float]:
    """A GAN as in the textbooks: two optimizers, the discriminator frozen while the generator trains."""
    torch.manual_seed(3)
    maker, judge = nn.Linear(2, 8), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
    makes, judges = (torch.optim.SGD(model.parameters(), lr=0.1) for model in (maker, judge))
    loader = DataLoader(TensorDataset(dataset(22)[:][0], torch.randn(22, 2)), batch_size=8, shuffle=True)
    maker, judge, makes, judges, loader = session.prepare(maker, judge, makes, judges, loader)
    for real, noise in loader:
        judge.requires_grad_(True)
        judges.zero_grad()
        session.backward(judge(real).sigmoid().log().neg().mean())
        fake = maker(noise)
        session.backward((1 - judge(fake.detach()).sigmoid()).log().neg().mean())
        judges.step()
        judge.requires_grad_(False)
        makes.zero_grad()
        session.backward(judge(fake).sigmoid().log().neg().mean())
        makes.step()
    return numbers(maker, judge)


@scene
def a_bad_batch_is_left_out(session: Session) -> list[float]:
    """One before its backward pass, and one after it: the next step has no gradients of it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = session.prepare(model, optimizer, shuffled(32))
    for k, (inputs, targets) in enumerate(loader):
        if k == 1:
            continue
        optimizer.zero_grad()
        session.backward(LOSS(model(inputs), targets))
        if k != 2:
            optimizer.step()
    return numbers(model)


class Odd(Dataset[Any]):
    """Samples of which one is not a number, or cannot be read."""

    def __init__(self, *, broken: bool) -> None:
        self.data, self.broken = dataset(32), broken

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        inputs, targets = self.data[index]
        if index == 9 and self.broken:
            raise ValueError("this sample is broken")
        return inputs, targets * float("nan") if index == 9 else targets


@scene
def a_batch_is_skipped_by_its_loss(session: Session) -> list[float]:
    """Only one process sees that it is not a number."""

    def finite(model: Any, inputs: torch.Tensor, targets: torch.Tensor, _number: int) -> torch.Tensor | None:
        loss = LOSS(model(inputs), targets)
        return loss if torch.isfinite(loss) else None

    return fitted(session, DataLoader(Odd(broken=False), batch_size=8), finite, epochs=1)


@scene
def a_batch_is_skipped_since_a_sample_is_broken(session: Session) -> list[float]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = session.prepare(model, optimizer, DataLoader(Odd(broken=True), batch_size=8))
    batches = iter(loader)
    while True:
        try:
            inputs, targets = next(batches)
        except ValueError:
            continue
        except StopIteration:
            return numbers(model)
        optimizer.zero_grad()
        session.backward(LOSS(model(inputs), targets))
        optimizer.step()


class Heads(nn.Module):
    """Two outputs of one trunk."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.left, self.right = network()[0], nn.Linear(16, 1), nn.Linear(16, 1)
        with torch.no_grad():
            for parameter in (*self.left.parameters(), *self.right.parameters()):
                parameter.fill_(0.1)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both."""
        hidden = self.trunk(inputs).tanh()
        return self.left(hidden), self.right(hidden)


@scene
def two_heads(session: Session) -> list[float]:
    """One backward pass for each output of one call."""
    model = Heads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = session.prepare(model, optimizer, shuffled())
    for inputs, targets in loader:
        optimizer.zero_grad()
        left, right = model(inputs)
        session.backward(LOSS(left, targets), retain_graph=True)
        session.backward(LOSS(right, -targets))
        optimizer.step()
    return numbers(model)


@scene
def parts_that_take_turns(session: Session) -> list[float]:
    """A part of the model takes no part in every second loss."""
    model = Heads()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return fitted(
        session, shuffled(32), lambda m, x, y, k: LOSS(m(x)[k % 2], y), model=model, optimizer=optimizer, epochs=1
    )


@scene
def inner_steps(session: Session) -> list[float]:
    """As in MAML: the loss of parameters that are themselves one step away."""

    def loss_of(model: Any, inputs: torch.Tensor, targets: torch.Tensor, _number: int) -> torch.Tensor:
        fast = {name: parameter * 0.9 for name, parameter in model.named_parameters()}
        return LOSS(torch.func.functional_call(model, fast, (inputs,)), targets)

    return fitted(session, plain(), loss_of, epochs=1)


@scene
def parameters_beside_the_model(session: Session) -> list[float]:
    """In the optimizer, and in no model that is prepared; one comes later, and so does a layer of the model."""
    scale, later, model = nn.Parameter(torch.rand(1)), nn.Parameter(torch.rand(1)), network()
    optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)

    def loss_of(model: Any, inputs: torch.Tensor, targets: torch.Tensor, number: int) -> torch.Tensor:
        if number == 1:
            model[2] = nn.Linear(16, 1)
            nn.init.constant_(model[2].weight, 0.2 + session.rank)
            nn.init.constant_(model[2].bias, 0.2 + session.rank)
            optimizer.add_param_group({"params": list(model[2].parameters())})
        if number == 2:
            optimizer.add_param_group({"params": [later]})
        return LOSS(model(inputs) * scale + (later.detach() * 0 + number // 2 * later * 0.1), targets)

    return [*fitted(session, shuffled(32), loss_of, model=model, optimizer=optimizer, epochs=1), scale.item()]


@scene
def gradients_by_hand(session: Session) -> list[float]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = session.prepare(model, optimizer, shuffled(32))
    for inputs, targets in loader:
        own = list(model.parameters())
        for parameter, gradient in zip(own, torch.autograd.grad(LOSS(model(inputs), targets), own), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return numbers(model)


@scene
def a_closure_decides_by_its_loss(session: Session) -> list[float]:
    model = network().double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe")
    model, optimizer, loader = session.prepare(model, optimizer, DataLoader(dataset(32), batch_size=16))
    for inputs, targets in loader:

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = LOSS(model(inputs.double()), targets.double())
            session.backward(loss)
            return loss

        optimizer.step(closure)
    return numbers(model)


@scene
def the_schedule_follows_the_whole_batch(session: Session) -> list[float]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    found = fitted(
        *(session, shuffled(32)),
        model=model,
        optimizer=optimizer,
        epochs=1,
        after=lambda loss: plateau.step(session.mean(loss)),
    )
    return [*found, optimizer.param_groups[0]["lr"]]
