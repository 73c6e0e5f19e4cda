"""Small machines for real: one CPU, half a CPU, a tiny /dev/shm, little memory. Each ends with a profile that fits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slow.harness import MLP, Finished, autotune

pytestmark = [pytest.mark.torch, pytest.mark.root]

BIG_BATCHES = (  # 256 KiB a sample: 8 MiB a batch
    MLP.replace("batch_size=64", "batch_size=32")
    .replace("torch.randn(2048, 32,", "torch.randn(256, 65536,")
    .replace("nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)", "nn.Linear(65536, 10)")
)
FEW = "--only processes --only num_workers --fix prefetch_factor=2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MLP)
    return tmp_path


def tuned(folder: Path, options: str, prefix: tuple[str, ...]) -> Finished:
    """A run that ends when it has tried what ``options`` leave free and the machine allows."""
    done = autotune(folder, "tune", "model.py", "--budget", "59s", *options.split(), "--json", prefix=prefix)
    assert done.code == 0, done.err
    return done


def every_settings(done: Finished) -> Iterator[dict]:
    for level in done.profile["levels"].values():
        yield level["settings"]


def test_one_cpu(folder: Path) -> None:
    done = tuned(folder, FEW, ("taskset", "-c", str(min(os.sched_getaffinity(0)))))
    assert "affinity mask" in done.err
    for settings in every_settings(done):
        assert (settings["processes"], settings["threads"]) == (1, 1)
        assert settings["num_workers"] <= 1


def test_a_tiny_shared_memory(folder: Path) -> None:
    (folder / "model.py").write_text(BIG_BATCHES)
    probe = os.system("unshare -m true 2>/dev/null")
    if probe != 0:
        pytest.skip(f"unshare -m is not permitted (status {probe})")
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh")
    done = tuned(folder, "--only num_workers --fix prefetch_factor=2", mount)
    assert "/dev/shm" in done.err
    for settings in every_settings(done):
        assert settings["num_workers"] == 0
    (folder / "model.py").write_text(BIG_BATCHES.replace("num_workers=0", "num_workers=2"))
    refused = autotune(folder, "tune", "model.py", prefix=mount)
    assert refused.code == 4
    assert all(words in refused.err for words in ("your own settings do not fit: ", "/dev/shm"))
