"""A TensorBoard-like writer: its thread runs before training starts, and `close` waits for it."""

import argparse
import queue
import threading
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Writer:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.file = path.open("w")
        self.queue: queue.Queue[str | None] = queue.Queue(maxsize=100)
        self.thread = threading.Thread(target=self._drain, daemon=True)
        self.thread.start()

    def _drain(self) -> None:
        while (line := self.queue.get()) is not None:
            self.file.write(line)
            self.file.flush()

    def close(self) -> None:
        self.queue.put(None)
        self.thread.join()
        self.file.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    writer = Writer(Path("runs") / "events.txt")
    inputs = torch.randn(1024, 20)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < arguments.steps:
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            writer.queue.put(f"loss {step} {loss.item()}\n")
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == arguments.steps:
                break
    writer.close()


if __name__ == "__main__":
    main()
