"""Waits for its data: each sample costs about 2 ms of NumPy work, and the model is small. Workers gain."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    """Sound that is made, windowed and transformed for each sample, as in an audio pipeline."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        draws = np.random.default_rng(index)
        label = index % 4
        time = np.arange(32_768) / 16_000
        sound = np.sin(2 * np.pi * 200 * (label + 1) * time) + draws.standard_normal(len(time))
        frames = np.lib.stride_tricks.sliding_window_view(sound, 512)[::256] * np.hanning(512)
        power = np.log1p(np.abs(np.fft.rfft(frames, axis=1)[:, :64]))
        return torch.from_numpy(power.mean(axis=0)).float(), label


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Spectra(), batch_size=16, shuffle=True, num_workers=arguments.workers)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while step < arguments.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step <= 20:
                print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == arguments.steps:
                break


if __name__ == "__main__":
    main()
