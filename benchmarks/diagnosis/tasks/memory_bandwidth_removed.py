"""`memory_bandwidth` piece by piece, each of which the nearest cache holds: the same arithmetic, hardly any traffic."""

from benchmarks.diagnosis.tasks.memory_bandwidth import (  # noqa: F401
    CURRENT,
    WIDTH,
    build_dataset,
    build_model,
    build_optimizer,
)

PIECES = 50


def compute_loss(model, batch):
    total = 0.0
    for piece in model.weight.split(WIDTH // PIECES):
        wide = batch[0] * piece
        part = ((wide * 2.0 + 1.0) * wide).mean() / PIECES
        part.backward(retain_graph=False)
        total += part.detach()
    return total + 0.0 * model.weight[0]
