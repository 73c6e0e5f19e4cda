"""Transformers' Trainer: a small GPT-2 built from its configuration, on generated sentences."""

from __future__ import annotations

import argparse
import random

import torch
from step_times import StepTimes
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

SUBJECTS = "the cat|a small dog|my sister|the old man|every teacher|nobody|the quick fox".split("|")
VERBS = "sees|likes|follows|paints|forgets|remembers|builds".split("|")
OBJECTS = "the house|a red ball|the long road|three stars|an answer|the open sea".split("|")


class Sentences(Dataset):
    """Sentences by a grammar, as bytes, packed into rows of ``length``."""

    def __init__(self, rows: int, length: int) -> None:
        random.seed(0)
        text = ""
        while len(text) < rows * length:
            text += f"{random.choice(SUBJECTS)} {random.choice(VERBS)} {random.choice(OBJECTS)}. "
        self.rows = torch.tensor(list(text.encode()[: rows * length])).view(rows, length)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[item], "labels": self.rows[item]}


class Clock(TrainerCallback):
    def __init__(self) -> None:
        self.steps = StepTimes()

    def on_epoch_begin(self, *_args: object, **_kwargs: object) -> None:
        self.steps.begin()

    def on_step_end(self, *_args: object, **_kwargs: object) -> None:
        self.steps.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", default="trainer-output")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=128, n_embd=192, n_layer=4, n_head=6))
    settings = TrainingArguments(
        output_dir=arguments.output,
        max_steps=arguments.steps,
        per_device_train_batch_size=16,
        learning_rate=5e-4,
        warmup_steps=20,
        logging_steps=50,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=0,
    )
    clock = Clock()
    Trainer(model=model, args=settings, train_dataset=Sentences(2000, 128), callbacks=[clock]).train()
    clock.steps.print_summary()


if __name__ == "__main__":
    main()
