"""A container's tiny /dev/shm for real: it ends with a profile that fits."""

import os
from pathlib import Path

import pytest

from tests.slow.harness import MLP, autotune

pytestmark = [pytest.mark.torch, pytest.mark.root]

BIG_BATCHES = (  # 256 KiB a sample: 8 MiB a batch
    MLP.replace("batch_size=64", "batch_size=32")
    .replace("torch.randn(2048, 32,", "torch.randn(256, 65536,")
    .replace("nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)", "nn.Linear(65536, 10)")
)


def test_a_tiny_shared_memory(tmp_path: Path) -> None:
    probe = os.system("unshare -m true 2>/dev/null")
    if probe != 0:
        pytest.skip(f"unshare -m is not permitted (status {probe})")
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh")
    (tmp_path / "model.py").write_text(BIG_BATCHES)
    few = ("--only", "num_workers", "--fix", "prefetch_factor=2")
    done = autotune(tmp_path, "tune", "model.py", "--budget", "59s", *few, "--json", prefix=mount)
    assert done.code == 0, done.err
    assert "/dev/shm" in done.err
    for level in done.profile["levels"].values():
        assert level["settings"]["num_workers"] == 0
    (tmp_path / "model.py").write_text(BIG_BATCHES.replace("num_workers=0", "num_workers=2"))
    refused = autotune(tmp_path, "tune", "model.py", prefix=mount)
    assert refused.code == 4
    assert all(words in refused.err for words in ("your own settings do not fit: ", "/dev/shm"))
