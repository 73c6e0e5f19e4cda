"""An LSTM that tells sums from differences in texts of different lengths: a collate function pads them."""

from __future__ import annotations

import argparse
import random

import torch
from step_times import StepTimes
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

SIGNS = "0123456789+-() "


class Expressions(Dataset):
    """Expressions of 3 to 20 numbers; the label is the sign of the value."""

    def __init__(self, count: int) -> None:
        draw = random.Random(0)
        self.items = []
        for _ in range(count):
            numbers = [draw.randint(-99, 99) for _ in range(draw.randint(3, 20))]
            text = " + ".join(f"({number})" for number in numbers)
            self.items.append(([SIGNS.index(sign) + 1 for sign in text], float(sum(numbers) > 0)))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, item: int) -> tuple[torch.Tensor, float]:
        text, label = self.items[item]
        return torch.tensor(text), label


def pad(items: list[tuple[torch.Tensor, float]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    texts, labels = zip(*items, strict=True)
    return pad_sequence(texts, batch_first=True), torch.tensor([len(text) for text in texts]), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(SIGNS) + 1, 32, padding_idx=0)
        self.lstm = nn.LSTM(32, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, 1)

    def forward(self, texts: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.embed(texts), lengths, batch_first=True, enforce_sorted=False)
        _outputs, (hidden, _cells) = self.lstm(packed)
        return self.head(torch.cat([hidden[0], hidden[1]], dim=1)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Expressions(3000), batch_size=arguments.batch_size, shuffle=True, collate_fn=pad)
    model = Classifier()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        clock.begin()
        for texts, lengths, labels in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(texts, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            clock.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    clock.print_summary()


if __name__ == "__main__":
    main()
