"""Seconds that an allreduce takes between two processes on this machine, by size in bytes.

    python -m autotune.probes.bench.allreduce [backend]

gloo runs over the loopback with a file as rendezvous: it needs no port and no host name. nccl needs two GPUs. The
result is null, with ``error``, where the backend does not start.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24)
REPEATS = 9
TIMEOUT_SECONDS = 30


def main() -> None:
    """Parent: start two ranks and print what rank 0 measured. Rank: measure."""
    if len(sys.argv) == 4:
        rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
        return
    backend = sys.argv[1] if len(sys.argv) > 1 else "gloo"
    print(json.dumps(measure(backend)))


def measure(backend: str) -> dict[str, Any]:
    """``{"backend", "seconds": {bytes: seconds}}``, the best of a few repeats each, since noise only ever slows."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback()}
        command = [sys.executable, "-m", "autotune.probes.bench.allreduce", backend]
        ranks = [
            subprocess.Popen(
                [*command, str(index), f"{folder}/store"],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for index in range(2)
        ]
        try:
            output = ranks[0].communicate(timeout=TIMEOUT_SECONDS)[0]
            return {"backend": backend, "seconds": json.loads(output)}
        except (subprocess.TimeoutExpired, ValueError):
            return {"backend": backend, "seconds": None, "error": f"{backend} gave no answer on this machine"}
        finally:
            for process in ranks:
                process.kill()
                process.wait()


def rank(backend: str, index: int, store: str) -> None:
    """One of the two processes; rank 0 prints seconds by size."""
    import torch
    import torch.distributed

    dist: Any = torch.distributed
    device = torch.device("cuda", index) if backend == "nccl" else torch.device("cpu")
    timeout = datetime.timedelta(seconds=TIMEOUT_SECONDS)
    rendezvous = dist.FileStore(store, 2)
    dist.init_process_group(backend, store=rendezvous, rank=index, world_size=2, timeout=timeout)
    seconds = {size: _best_seconds(dist, torch.ones(size // 4, device=device)) for size in SIZES}
    if index == 0:
        print(json.dumps(seconds), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def _best_seconds(dist: Any, tensor: Any) -> float:
    """Least over repeats; reading one element waits for the device."""
    times = []
    for _ in range(REPEATS):
        tensor.fill_(1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        tensor[0].item()
        times.append(time.perf_counter() - start)
    return round(min(times), 7)


def loopback() -> str:
    """Name of the loopback interface."""
    return "lo0" if sys.platform == "darwin" else "lo"


if __name__ == "__main__":
    main()
