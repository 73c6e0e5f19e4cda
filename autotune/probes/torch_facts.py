"""Facts of the PyTorch installation as one JSON object.

Run as a child process, because it imports torch: ``python -m autotune.probes.torch_facts``. Every
query is guarded: builds differ in what their ``torch.distributed`` has.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from autotune import devices


def installation() -> dict[str, Any]:
    """Return fields of `autotune.probes.facts.Software`, and which backends are usable, or why not.

    Without PyTorch there is nothing but ``error``, the reason.
    """
    try:
        import torch
        import torch.distributed as distributed
    except Exception as error:  # a broken installation raises anything from OSError to RuntimeError
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    name, reason = compiler()
    nccl = distributed.is_available() and distributed.is_nccl_available()
    return {
        "software": {
            "python": platform.python_version(),
            "start_method": multiprocessing.get_all_start_methods()[0],
            "compiler": name,
            "compiler_reason": reason,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "accelerator": devices.found().type,
            "default_threads": torch.get_num_threads(),
            "default_interop_threads": torch.get_num_interop_threads(),
        },
        "backends": {
            "gloo": gloo(distributed),
            "nccl": (nccl, "" if nccl else "this PyTorch was built without CUDA"),
        },
    }


def gloo(distributed: Any) -> tuple[bool, str]:
    """Return whether a gloo group of one starts on the loopback, or why not."""
    if not (distributed.is_available() and distributed.is_gloo_available()):
        return False, "this PyTorch was built without it"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        distributed.destroy_process_group()
    except Exception as error:  # any error is the reason
        return False, f"{type(error).__name__}: {error}".splitlines()[0]
    return True, "a process group started"


def compiler() -> tuple[str | None, str | None]:
    """Return the C++ compiler that TorchInductor would use, or why there is none; a trial shows if it works."""
    name = (os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")).split()[0]
    if shutil.which(name) is None:
        return None, f"{Path(name).name} is not installed"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return None, "Python's header files are not installed"
    return Path(name).name, None


if __name__ == "__main__":
    print(json.dumps(installation()))
