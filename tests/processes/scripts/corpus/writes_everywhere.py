"""Writes into its own folder, the folder above, a fixed path below HOME, and temp; the log is open before training."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).resolve().parent
PLACES = (
    HERE / "checkpoints" / "last.pt",
    HERE.parent / "corpus_results.pt",
    Path(os.environ["HOME"]) / ".cache" / "corpus" / "weights.pt",
    Path(tempfile.gettempdir()) / "corpus_scratch.pt",
)


def save(model: nn.Module) -> None:
    for place in PLACES:
        torch.save(model.state_dict(), place)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    for place in PLACES:
        place.parent.mkdir(parents=True, exist_ok=True)
    log = Path("training.log").open("a")  # noqa: SIM115
    log.write("start\n")
    inputs = torch.randn(1024, 20)
    loader = DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < arguments.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            log.write(f"{step} {loss.item()}\n")
            if step % 5 == 0:
                save(model)
            if step == arguments.steps:
                break
    save(model)
    log.close()


if __name__ == "__main__":
    main()
