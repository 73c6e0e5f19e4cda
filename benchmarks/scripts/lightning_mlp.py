"""Lightning: a residual network on generated tables, with validation after each epoch."""

from __future__ import annotations

import argparse

import lightning
import torch
from sklearn.datasets import make_classification
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Classifier(lightning.LightningModule):
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(64, width), *(Residual(width) for _ in range(3)), nn.Linear(width, 5))
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        loss = self.criterion(self.network(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        right = (self.network(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("accuracy", right, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Clock(lightning.Callback):
    def __init__(self) -> None:
        self.steps = StepTimes()

    def on_train_epoch_start(self, *_args: object) -> None:
        self.steps.begin()

    def on_train_batch_end(self, *_args: object) -> None:
        self.steps.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=-1)
    arguments = parser.parse_args()
    lightning.seed_everything(0)
    rows, classes = make_classification(24_000, 64, n_informative=24, n_classes=5, random_state=0)
    tables = TensorDataset(torch.tensor(rows, dtype=torch.float32), torch.tensor(classes))
    train, valid = random_split(tables, [20_000, 4_000])
    clock = Clock()
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        max_steps=arguments.steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[clock],
    )
    loaders = DataLoader(train, batch_size=64, shuffle=True), DataLoader(valid, batch_size=256)
    trainer.fit(Classifier(), *loaders)
    if "accuracy" in trainer.callback_metrics:
        print(f"accuracy {trainer.callback_metrics['accuracy'].item():.3f}")
    clock.steps.print_summary()


if __name__ == "__main__":
    main()
