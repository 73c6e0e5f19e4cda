"""``torch.distributed`` over MPI: starts MPI and registers it as backend `NAME`.

PyTorch's wheels hold no MPI, so mpi4py carries the collectives. MPI waits busily: quick where each process has a core
of its own, and a waste of the others' time where not.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from autotune.runtime.mpi.group import NAME, MpiGroup

STARTED_BY = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE")
"""Variables in which MPI's launchers tell a process how many there are."""
_SEGMENT = re.compile(r"/dev/shm/mpich_shm_\w+$")


def why_not(environment: Mapping[str, str], size: int) -> str | None:
    """Why ``size`` processes with this environment cannot exchange through MPI; None where they can."""
    told = [environment[name] for name in STARTED_BY if name in environment]
    if str(size) in told:
        return None
    return "the processes were not started by mpiexec; start them with: autotune run --profile P train.py"


def start() -> Any:
    """mpi4py's ``MPI`` module, with MPI running. The first call takes a tenth of a second, and all ranks must make it.

    Raises:
        RuntimeError: mpi4py or its MPI library cannot be loaded.
    """
    running = "mpi4py.MPI" in sys.modules
    try:
        from mpi4py import MPI  # here: importing it starts MPI
    except Exception as error:  # a missing library raises anything from ImportError to RuntimeError
        raise RuntimeError(
            f"MPI cannot be loaded: {error}. Install it with: pip install torch-autotune[mpi]"
        ) from error
    if not running:
        MPI.COMM_WORLD.Barrier()
        _forget_segments()
    return MPI


def abort(code: int) -> None:
    """End all processes with exit ``code``, where MPI runs; mpiexec gives this one then."""
    if "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)


def _forget_segments() -> None:
    """Unlink this job's shared memory now that every process has it mapped: a killed job then leaves nothing behind."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        for name in {found[0] for line in lines if (found := _SEGMENT.search(line))}:
            with contextlib.suppress(OSError):
                os.unlink(name)


def register() -> None:
    """Make `NAME` a backend of ``init_process_group``."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def _create(options: Any, _backend_options: Any) -> MpiGroup:
    """The group that ``init_process_group`` and ``new_group`` ask for, over the same ranks as PyTorch counts them."""
    mpi = start()
    world, ranks = mpi.COMM_WORLD, list(options.global_ranks_in_group)
    if not ranks and (world.rank, world.size) != (options.group_rank, options.group_size):
        raise RuntimeError(
            f"MPI started this process as {world.rank} of {world.size}, RANK and WORLD_SIZE say"
            f" {options.group_rank} of {options.group_size}. Start the processes with one mpiexec."
        )
    if ranks:
        tag = zlib.crc32(str(options.group_id).encode()) % 2**15
        return MpiGroup(mpi, world.Create_group(world.group.Incl(ranks), tag))
    return MpiGroup(mpi, world.Dup())
