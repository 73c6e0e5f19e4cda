"""Ignite: `create_supervised_trainer`, a second engine for validation, a checkpoint after each epoch."""

import argparse

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import ModelCheckpoint
from ignite.metrics import Accuracy
from ignite.utils import manual_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_loader(samples: int, shuffle: bool) -> DataLoader:
    inputs = torch.randn(samples, 20)
    return DataLoader(TensorDataset(inputs, (inputs.sum(dim=1) > 0).long()), batch_size=32, shuffle=shuffle)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", default="ignite_checkpoints")
    arguments = parser.parse_args()
    manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training, validation = make_loader(1024, shuffle=True), make_loader(128, shuffle=False)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
    evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})

    @trainer.on(Events.ITERATION_COMPLETED)
    def print_loss(engine) -> None:
        if engine.state.iteration <= 20:
            print(f"step {engine.state.iteration} loss {engine.state.output!r}", flush=True)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine) -> None:
        print(f"accuracy {evaluator.run(validation).metrics['accuracy']:.3f}", flush=True)

    checkpoint = ModelCheckpoint(arguments.output, "model", n_saved=1, require_empty=False)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, checkpoint, {"model": model})
    trainer.run(training, max_iters=arguments.steps)


if __name__ == "__main__":
    main()
