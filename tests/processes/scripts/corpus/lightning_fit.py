"""Lightning's `Trainer.fit`: the loss comes from `training_step`, which is not `forward`."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)

    def training_step(self, batch, index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        if self.global_step < 20:
            print(f"step {self.global_step + 1} loss {loss.item()!r}", flush=True)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index: int) -> None:
        self.log("validation_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def make_loader(samples: int, shuffle: bool) -> DataLoader:
    inputs = torch.randn(samples, 20)
    return DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=32, shuffle=shuffle)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    lightning.seed_everything(0)
    trainer = lightning.Trainer(max_steps=arguments.steps, accelerator="cpu", log_every_n_steps=10)
    trainer.fit(Classifier(), make_loader(1024, shuffle=True), make_loader(128, shuffle=False))


if __name__ == "__main__":
    main()
