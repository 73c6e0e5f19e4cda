"""A graph convolutional network on plain tensors: the whole graph in each step, a sparse adjacency matrix."""

from __future__ import annotations

import argparse

import torch
from step_times import StepTimes
from torch import nn

NODES, FEATURES, CLASSES, DEGREE = 6000, 256, 7, 10


class GCN(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, width), nn.Linear(width, width)
        self.head = nn.Linear(width, CLASSES)
        self.dropout = nn.Dropout(0.5)

    def forward(self, adjacency: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(torch.sparse.mm(adjacency, self.first(self.dropout(x))))
        x = torch.relu(torch.sparse.mm(adjacency, self.second(self.dropout(x))))
        return self.head(x)


def graph() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A graph whose nodes mostly know nodes of their own class: normalised adjacency, features, classes."""
    classes = torch.randint(CLASSES, (NODES,)).sort().values
    sources = torch.arange(NODES).repeat_interleave(DEGREE)
    near = (sources + torch.randint(-200, 200, sources.shape)) % NODES
    targets = torch.where(torch.rand(len(sources)) < 0.8, near, torch.randint(NODES, sources.shape))
    loops = torch.arange(NODES)
    edges = torch.stack([torch.cat([sources, targets, loops]), torch.cat([targets, sources, loops])])
    degree = torch.bincount(edges[0], minlength=NODES).float()
    weights = (degree[edges[0]] * degree[edges[1]]).rsqrt()
    adjacency = torch.sparse_coo_tensor(edges, weights, (NODES, NODES)).coalesce()
    features = torch.randn(NODES, FEATURES) + 0.3 * nn.functional.one_hot(classes, FEATURES)
    return adjacency, features, classes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=300)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    adjacency, features, classes = graph()
    training = torch.rand(NODES) < 0.5
    model = GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    clock = StepTimes()
    for epoch in range(arguments.epochs):
        clock.begin()
        model.train()
        optimizer.zero_grad()
        scores = model(adjacency, features)
        loss = nn.functional.cross_entropy(scores[training], classes[training])
        loss.backward()
        optimizer.step()
        clock.step()
        if epoch % 20 == 0:
            model.eval()
            with torch.no_grad():
                right = (model(adjacency, features).argmax(1) == classes)[~training].float().mean().item()
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right:.3f}")
    clock.print_summary()


if __name__ == "__main__":
    main()
