"""The losses are attributes of an object that holds the networks and is no module itself."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Translator:
    def __init__(self) -> None:
        self.forth = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.back = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.optimizer = torch.optim.Adam([*self.forth.parameters(), *self.back.parameters()], lr=1e-3)

    def set_input(self, batch: list[torch.Tensor]) -> None:
        self.here, self.there = batch

    def optimize_parameters(self) -> None:
        self.optimizer.zero_grad()
        self.loss_forth = nn.functional.l1_loss(self.forth(self.here), self.there)
        self.loss_cycle = nn.functional.l1_loss(self.back(self.forth(self.here)), self.here)
        self.loss = self.loss_forth + 10 * self.loss_cycle
        self.loss.backward()
        self.optimizer.step()

    def current_losses(self) -> dict[str, float]:
        return {name: float(getattr(self, f"loss_{name}")) for name in ("forth", "cycle")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    here = torch.randn(512, 16)
    loader = DataLoader(TensorDataset(here, here.flip(1)), batch_size=16, shuffle=True)
    model = Translator()
    step = 0
    while step < arguments.steps:
        for batch in loader:
            model.set_input(batch)
            model.optimize_parameters()
            step += 1
            if step <= 20:
                print(f"step {step} loss {sum(model.current_losses().values())!r}", flush=True)
            if step == arguments.steps:
                break


if __name__ == "__main__":
    main()
