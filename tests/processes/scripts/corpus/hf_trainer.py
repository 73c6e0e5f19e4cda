"""A Hugging Face `Trainer` with a small BERT that is built from its configuration, without a download."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

SIZES = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


class Sentences(Dataset):
    def __init__(self, samples: int) -> None:
        self.tokens = torch.randint(5, 200, (samples, 16))
        self.labels = (self.tokens[:, 0] > 100).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


class PrintLoss(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.global_step <= 20 and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", default="trainer_output")
    parser.add_argument("--mean-per-process", action="store_true")
    arguments = parser.parse_args()
    set_seed(0)
    settings = TrainingArguments(
        arguments.output,
        max_steps=arguments.steps,
        per_device_train_batch_size=16,
        use_cpu=True,
        average_tokens_across_devices=not arguments.mean_per_process,
    )
    settings = settings.set_logging(strategy="steps", steps=1).set_save(strategy="steps", steps=50)
    trainer = Trainer(
        model=BertForSequenceClassification(BertConfig(**SIZES)),
        args=settings,
        train_dataset=Sentences(512),
        eval_dataset=Sentences(64),
        callbacks=[PrintLoss()],
    )
    trainer.train()
    print(trainer.evaluate()["eval_loss"])


if __name__ == "__main__":
    main()
