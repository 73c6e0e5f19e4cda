"""A flat script: no function, no main guard, scikit-learn's digits, arguments by position."""

import sys

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
torch.manual_seed(0)
np.random.seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
train_loader = DataLoader(TensorDataset(images[order[:1500]], labels[order[:1500]]), batch_size=50, shuffle=True)
test_loader = DataLoader(TensorDataset(images[order[1500:]], labels[order[1500:]]), batch_size=100)

model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
step = 0
while step < steps:
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        step += 1
        if step <= 20:
            print(f"step {step} loss {loss.item()!r}", flush=True)
        if step >= steps:
            break
    model.eval()
    with torch.no_grad():
        correct = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
    print(f"accuracy {correct / 297:.3f}", flush=True)
    model.train()
