"""Accelerate: a small transformer encoder that classifies generated texts, with accumulation of gradients."""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from step_times import StepTimes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH, CLASSES, WIDTH = 2000, 64, 8, 128


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(words.shape[1], device=words.device))
        return self.head(self.layers(self.words(words) + places).mean(dim=1))


def texts(count: int) -> TensorDataset:
    """Texts in which each class prefers its own tenth of the words."""
    classes = torch.randint(CLASSES, (count,))
    own = torch.randint(WORDS // 10, (count, LENGTH)) + (classes * (WORDS // 10))[:, None]
    anything = torch.randint(WORDS, (count, LENGTH))
    return TensorDataset(torch.where(torch.rand(count, LENGTH) < 0.2, own, anything), classes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10**9, help="end after so many batches")
    arguments = parser.parse_args()
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = DataLoader(texts(3000), batch_size=32, shuffle=True, num_workers=2)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-4, total_steps=arguments.epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        clock.begin()
        for words, classes in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(words), classes)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            clock.step()
            if len(clock.steps) == arguments.steps:
                break
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}")
        if len(clock.steps) == arguments.steps:
            break
    clock.print_summary()


if __name__ == "__main__":
    main()
