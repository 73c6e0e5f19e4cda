"""Loops that several processes must run as one process does. Each returns numbers that say what came out.

Every process draws other random numbers of its own: what rank 0 draws must decide. Usual models, loaders, optimizers
and schedules on several processes stand in `tests.same_training`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from autotune.runtime.session import Session
from tests.torch.records import dataset, network

Scene = Callable[[Session], list[float]]
SCENES: dict[str, Scene] = {}
LOSS = nn.functional.mse_loss


def scene(function: Scene) -> Scene:
    """Register ``function`` under its name."""

    def seeded(session: Session) -> list[float]:
        torch.manual_seed(10 + session.rank)
        return function(session)

    SCENES[function.__name__.replace("_", " ")] = seeded
    return seeded


def numbers(*models: nn.Module) -> list[float]:
    """All parameters."""
    return [float(value) for model in models for p in model.parameters() for value in p.detach().flatten()]


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
) -> list[float]:
    """Parameters after a training; a loss of None leaves its batch out."""
    model = model or network()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = session.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for number, (inputs, targets) in enumerate(loader):
            loss = loss_of(model, inputs, targets, number)
            if loss is None:
                continue
            optimizer.zero_grad()
            session.backward(loss)
            optimizer.step()
    return numbers(model)


@scene
def training_in_eval_mode(session: Session) -> list[float]:
    return fitted(session, shuffled(), model=network().eval())


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


class Doubles(DataLoader[Any]):
    """Does something to each batch itself."""

    def __iter__(self) -> Any:
        for inputs, targets in super().__iter__():
            yield inputs * 2, targets


@scene
def a_loader_that_iterates_in_its_own_way(session: Session) -> list[float]:
    return fitted(session, Doubles(dataset(22), batch_size=8, shuffle=True))


@scene
def workers_that_persist(session: Session) -> list[float]:
    return fitted(session, DataLoader(dataset(22), 8, shuffle=True, num_workers=1, persistent_workers=True))


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

    return fitted(session, DataLoader(dataset(32), batch_size=8), loss_of, epochs=1)


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
