"""Run by `test_two_ranks` as each of two ranks: trains in several ways and writes what came out.

python two_ranks.py FOLDER          with RANK, WORLD_SIZE, LOCAL_WORLD_SIZE
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session
from tests.processes.runtime.scenes import LOSS, SCENES, fitted, numbers, shuffled
from tests.torch.records import dataset, network

SETTINGS = Settings(processes=2, batch_size=32)


def main(folder: Path) -> None:
    """Everything two ranks are asked, in one group."""
    result: dict[str, Any] = {}
    with Session(SETTINGS, device="cpu", init_method=f"file://{folder}/meet") as session:
        result["place"] = [session.rank, session.world_size, session.is_main]
        result["not_applied"] = session.not_applied
        result["scenes"] = scenes()
        result["sampler of its own"] = own_sampler()
        result["noise"] = noise()
        result["written"] = [written(kind()) for kind in (Centred, Codebook)]
        result["drifting"] = [drifting(skips=each) for each in (False, True)]
        result["split"] = split()
    result["left"] = not dist.is_initialized()
    (folder / f"rank{session.rank}.json").write_text(json.dumps(result))


def scenes() -> dict[str, list[float]]:
    """What each scene ends with, though this rank is seeded apart."""
    found = {}
    for name, scene in SCENES.items():
        with Session(SETTINGS.but(batch_size=4), device="cpu", level="safe") as session:
            found[name] = scene(session)
    return found


def own_sampler() -> list[list[int]]:
    """A script that shares its data out itself: its batch size is per process, and epochs are its own."""
    data = list(range(8))
    with Session(SETTINGS.but(batch_size=2), device="cpu") as session:
        sampler = DistributedSampler(data, seed=1)
        loader = session.prepare(DataLoader(data, batch_size=2, sampler=sampler))
        assert loader.batch_size == 2
        found = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            found.append([int(x) for batch in loader for x in batch])
        return found


def noise() -> list[list[float]]:
    """Numbers that the loop draws for its batches, and one that it draws afterwards."""
    torch.manual_seed(1)
    found: list[list[float]] = [[], []]
    with Session(SETTINGS.but(batch_size=4), device="cpu") as session:

        def noisy(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, _number: int) -> torch.Tensor:
            drawn = torch.randn_like(inputs)
            found[0].append(float(drawn.sum()))
            return LOSS(model(inputs + drawn), targets)

        fitted(session, shuffled(16), noisy, epochs=1)
        found[1].append(float(torch.rand(())))
    return found


class Centred(nn.Module):
    """Buffers that forward assigns anew, and changes behind autograd's back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.register_buffer("center", torch.zeros(1))
        self.register_buffer("counts", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The centred output."""
        y = self.layer(x)
        self.center = self.center * 0.9 + y.detach().mean(0) * 0.1
        self.counts.data.add_(x.mean(0))
        return y - self.center


class Codebook(Centred):
    """A frozen parameter in the place of the buffer."""

    def __init__(self) -> None:
        super().__init__()
        center = self.center
        del self.center
        self.center = nn.Parameter(center, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        with torch.no_grad():
            self.center.mul_(0.9).add_(0.1 * y.mean(0))
            self.counts.add_(1)
        return y - self.center


def written(model: Centred) -> tuple[list[list[float]], tuple[str, ...]]:
    """What buffers and the like hold after training, and the notes."""
    with Session(SETTINGS.but(batch_size=4), device="cpu") as session:
        fitted(session, DataLoader(dataset(32), batch_size=8), model=model, epochs=1)
        return [model.center.tolist(), model.counts.tolist()], session.notes


def drifting(*, skips: bool) -> tuple[list[float], tuple[str, ...]]:
    """Weights of a loop whose random numbers decide about gradients, or about steps; and the notes."""
    torch.manual_seed(1)
    model = network()
    with Session(SETTINGS.but(batch_size=4), device="cpu") as session:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = session.prepare(model, optimizer, DataLoader(dataset(32), batch_size=8))
        for _ in range(4):
            for inputs, targets in loader:
                optimizer.zero_grad()
                session.backward(nn.functional.mse_loss(model(inputs), targets))
                if not skips:
                    for parameter in model.parameters():
                        parameter.grad.add_(torch.randn_like(parameter.grad))
                if not skips or torch.rand(()) < 0.5:
                    optimizer.step()
        inputs, targets = dataset(8).tensors
        session.backward(nn.functional.mse_loss(model(inputs), targets))
        return numbers(model), session.notes


def split() -> dict[str, Any]:
    """Data that each process has split in its own way, before the session began."""
    order = torch.randperm(16, generator=torch.Generator().manual_seed(dist.get_rank())).tolist()
    data = [{"inputs": dataset(16)[index][0], "number": index} for index in order[:8]]
    with Session(SETTINGS.but(batch_size=2), device="cpu") as session:
        loader = session.prepare(DataLoader(data, batch_size=4))
        seen = [batch["number"].tolist() for batch in loader]
        return {"seen": seen, "own": order[:8], "reason": dict(session.not_applied).get("processes")}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
