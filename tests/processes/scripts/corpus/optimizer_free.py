"""No optimizer and no loader: the loop changes the weights by hand, as in PyTorch's word-level tutorials."""

import sys

import torch
from torch import nn


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(20 + 32, 32)
        self.output = nn.Linear(32, 5)

    def forward(self, letter: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.hidden(torch.cat([letter, hidden], dim=1)))
        return torch.log_softmax(self.output(hidden), dim=1), hidden


def train(network: nn.Module, word: torch.Tensor, category: torch.Tensor) -> float:
    network.zero_grad()
    hidden = torch.zeros(1, 32)
    for letter in word:
        output, hidden = network(letter, hidden)
    loss = nn.functional.nll_loss(output, category)
    loss.backward()
    for p in network.parameters():
        p.data.add_(p.grad.data, alpha=-0.005)
    return loss.item()


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    torch.manual_seed(0)
    words = torch.nn.functional.one_hot(torch.randint(20, (200, 6)), 20).float().unsqueeze(2)
    categories = torch.randint(5, (200,))
    network = Network()
    for step in range(1, steps + 1):
        index = int(torch.randint(200, ()))
        loss = train(network, words[index], categories[index : index + 1])
        if step <= 20:
            print(f"step {step} loss {loss!r}", flush=True)


if __name__ == "__main__":
    main()
