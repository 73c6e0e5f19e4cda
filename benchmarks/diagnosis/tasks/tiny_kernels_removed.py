"""`tiny_kernels` in few operators: the loop in closed form."""

import torch

from benchmarks.diagnosis.tasks.tiny_kernels import CURRENT, STEPS, Cell, build_dataset, compute_loss  # noqa: F401


class Closed(Cell):
    def forward(self, inputs):
        powers = self.decay ** torch.arange(STEPS + 1).unsqueeze(1)
        return self.out(inputs * powers.sum(0))


def build_model():
    return Closed()
