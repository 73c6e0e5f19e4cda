"""Facts of the PyTorch installation, or rates of this machine, as one JSON object.

Run as a child process, because it imports torch: ``python -m autotune.probes.torch_facts [rates]``. Every
query is guarded: builds differ in what their ``torch.distributed`` has.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import platform
import shutil
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

OPTIONAL = ("mpi4py", "oneccl_bindings_for_pytorch")
GEMM_SECONDS = 0.4
"""Time spent per precision; the best multiplication counts, since noise only ever slows."""


def main() -> None:
    """Print what the command line asks for."""
    print(json.dumps(matrix_rates() if sys.argv[1:] == ["rates"] else installation()))


def installation() -> dict[str, Any]:
    """Return the facts. Without PyTorch ``torch`` is None and ``error`` is the reason."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "start_method": multiprocessing.get_all_start_methods()[0],
        "found": {
            name: importlib.util.find_spec(name) is not None for name in ("mpi4py", "oneccl_bindings_for_pytorch")
        },
    }
    facts["compiler"], facts["compiler_reason"] = compiler()
    try:
        import torch
    except Exception as error:  # a broken installation raises anything from OSError to RuntimeError
        facts.update(torch=None, error=f"{type(error).__name__}: {error}".splitlines()[0])
    else:
        facts.update(torch_facts(torch))
    return facts


def matrix_rates() -> dict[str, float | None]:
    """Multiply matrices in fp32 and bf16: GFLOP/s of each, None for one that this build cannot multiply."""
    import torch

    return {"fp32": _rate(torch, torch.float32), "bf16": _rate(torch, torch.bfloat16)}


def _rate(torch: Any, dtype: Any) -> float | None:
    """Return the best GFLOP/s of a square product, its size doubled until one takes a hundredth of the time."""
    try:
        size = 512
        while size < 4096 and _product_seconds(torch.ones(size, size, dtype=dtype), 0.0) < GEMM_SECONDS / 100:
            size *= 2
        seconds = _product_seconds(torch.ones(size, size, dtype=dtype), GEMM_SECONDS)
    except RuntimeError:
        return None
    return round(2 * size**3 / seconds / 1e9, 2)


def _product_seconds(matrix: Any, seconds: float, repeats: int = 3) -> float:
    """Return the least time of a product, repeated for so many ``seconds`` and at least ``repeats`` times."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < repeats or time.perf_counter() < end:
        start = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - start)
    return min(times)


def torch_facts(torch: Any) -> dict[str, Any]:
    """Return versions, threads and backends of an imported PyTorch."""
    import torch.distributed as distributed

    threads, interop = torch.get_num_threads(), torch.get_num_interop_threads()
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "default_threads": threads,
        "default_interop_threads": interop,
        "distributed": backends(distributed),
        "gloo_error": gloo_error(distributed),
    }


def backends(distributed: Any) -> dict[str, bool]:
    """Return the backends that this build holds; none if it was built without ``torch.distributed``."""
    names = ("gloo", "nccl", "mpi")
    if not distributed.is_available():
        return dict.fromkeys(names, False)
    return {name: bool(getattr(distributed, f"is_{name}_available", lambda: False)()) for name in names}


def gloo_error(distributed: Any) -> str | None:
    """Return why a gloo group of one cannot start on the loopback, or None if it does."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        distributed.destroy_process_group()
    except Exception as error:  # any error is the reason
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def compiler() -> tuple[str | None, str | None]:
    """Return the C++ compiler that TorchInductor would use, or why there is none; a trial shows if it works."""
    name = (os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")).split()[0]
    if shutil.which(name) is None:
        return None, f"{Path(name).name} is not installed"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return None, "Python's header files are not installed"
    return Path(name).name, None


if __name__ == "__main__":
    main()
