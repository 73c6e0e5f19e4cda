"""The environment that trials run in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autotune.trial.paths import StudyPaths, short
from autotune.trial.script import THREAD_VARIABLES

COMPILE_WORKER_BYTES = int(1.5 * 2**30)
MAX_COMPILE_WORKERS = 8
EMPTY: Mapping[str, str] = MappingProxyType({})


def trial_environment(
    base: Mapping[str, str], paths: StudyPaths, *, threads: int, memory: int, tuned: Mapping[str, str] = EMPTY
) -> dict[str, str]:
    """``base`` (already free of other launchers' variables) with what trials need on top.

    Args:
        base: the user's environment.
        paths: the study's scratch folder.
        threads: CPU budget; bounds TorchInductor's compile pool.
        memory: memory limit in bytes; likewise.
        tuned: variables of the settings that a process must start with.
    """
    compile_workers = max(1, min(threads, memory // COMPILE_WORKER_BYTES, MAX_COMPILE_WORKERS))
    environment = dict(base) | {
        # One thread each until a trial sets its own number: pools that exist before a fork hang after it.
        **dict.fromkeys(THREAD_VARIABLES, "1"),
        # One machine: never a wrong interface, never a host name that does not resolve.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # Counting GPUs must not create a context, which forbids forking.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TORCHINDUCTOR_CACHE_DIR": str(paths.compile_cache),
        "TORCHINDUCTOR_COMPILE_THREADS": str(compile_workers),
        "TMPDIR": str(short(paths.root)),
        "WANDB_MODE": "disabled",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
        "AUTOTUNE_TRIAL": "1",
    }
    preload = " ".join(filter(None, (tuned.get("LD_PRELOAD"), base.get("LD_PRELOAD"))))
    return environment | dict(tuned) | ({"LD_PRELOAD": preload} if preload else {})
