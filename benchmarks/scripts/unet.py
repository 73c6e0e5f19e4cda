"""A small U-Net that finds discs in noise, with a checkpoint after each epoch."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Discs(Dataset):
    """Noisy pictures with three discs each, and their masks; each is drawn from its own seed."""

    def __init__(self, count: int, size: int = 64) -> None:
        self.count, self.size = count, size
        self.rows, self.columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(item)
        mask = torch.zeros(self.size, self.size)
        for row, column, radius in torch.rand(3, 3, generator=generator).tolist():
            distance = (self.rows - row * self.size) ** 2 + (self.columns - column * self.size) ** 2
            mask[distance < (3 + 7 * radius) ** 2] = 1
        return (mask + 0.7 * torch.randn(mask.shape, generator=generator))[None], mask[None]


def block(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down_1, self.down_2, self.bottom = block(1, 16), block(16, 32), block(32, 64)
        self.up_2, self.up_1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.merge_2, self.merge_1, self.head = block(64, 32), block(32, 16), nn.Conv2d(16, 1, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.down_1(images)
        second = self.down_2(self.pool(first))
        bottom = self.bottom(self.pool(second))
        second = self.merge_2(torch.cat([second, self.up_2(bottom)], dim=1))
        return self.head(self.merge_1(torch.cat([first, self.up_1(second)], dim=1)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=640)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Discs(arguments.samples), batch_size=16, shuffle=True, num_workers=1)
    model, criterion = UNet(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    arguments.checkpoints.mkdir(exist_ok=True)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        clock.begin()
        for images, masks in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), masks)
            loss.backward()
            optimizer.step()
            clock.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, arguments.checkpoints / f"epoch-{epoch}.pt")
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    clock.print_summary()


if __name__ == "__main__":
    main()
