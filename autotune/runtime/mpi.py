"""``torch.distributed`` over MPI, through mpi4py: starts MPI and registers it as backend `NAME`.

PyTorch's wheels hold no MPI. With this process group for CPU tensors, `DistributedDataParallel` and the usual calls of
``torch.distributed`` run on it. MPI waits busily: quick if each process has a core of its own, and slow for
all if not.
"""

# PyTorch's stubs of a process group's methods differ from one version to the next; tests call every one.
# mypy: disable-error-code="override,assignment,no-untyped-call"

from __future__ import annotations

import contextlib
import os
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

NAME = "mpi4py"
"""What ``torch.distributed`` calls this backend; ``mpi`` is the one that only PyTorch built with MPI has."""
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}
"""Types that MPI cannot add (MPICH 5.0 has no bfloat16) are added as another, which rounds once and not per hop."""
STARTED_BY = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE")
"""Variables in which MPI's launchers count a job's processes."""
_SEGMENT = re.compile(r"/dev/shm/mpich_shm_\w+$")


def why_not(environment: Mapping[str, str], size: int) -> str | None:
    """Return why ``size`` processes with this environment cannot use MPI; None if they can."""
    if str(size) in [environment.get(name) for name in STARTED_BY]:
        return None
    return "the processes were not started by mpiexec; start them with: autotune run --profile P train.py"


def start() -> Any:
    """Return mpi4py's ``MPI`` module, with MPI running. The first call takes 0.1 s, and all ranks must make it.

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
        _unlink_segments()
    return MPI


def abort(code: int) -> None:
    """End all processes with exit ``code``, if MPI runs; mpiexec gives this one then."""
    if "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(code)


def _unlink_segments() -> None:
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
    """Make the group that ``init_process_group`` and ``new_group`` ask for, over the ranks as PyTorch counts them."""
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


class MpiGroup(dist.ProcessGroup):
    """Collectives of one communicator, each done when it returns: those of `DistributedDataParallel` and of metrics.

    Messages between two ranks, all-to-all and reduce-scatter are left out: PyTorch raises an error for them.
    """

    def __init__(self, mpi: Any, communicator: Any) -> None:
        super().__init__(communicator.rank, communicator.size)  # type: ignore[call-arg]  # the stub has one overload
        self.mpi, self.comm = mpi, communicator
        operations = dist.ReduceOp
        self._operations = {
            operations.SUM: mpi.SUM,
            operations.AVG: mpi.SUM,
            operations.PRODUCT: mpi.PROD,
            operations.MIN: mpi.MIN,
            operations.MAX: mpi.MAX,
            operations.BAND: mpi.BAND,
            operations.BOR: mpi.BOR,
            operations.BXOR: mpi.BXOR,
        }
        self._name = ""

    # Names: PyTorch's own methods need a backend, which a group in Python does not have.

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name for logs."""
        return NAME

    def getGroupName(self) -> str:  # noqa: N802
        """Return what `setGroupName` was given."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Take PyTorch's name of this group."""
        self._name = name

    @property
    def group_name(self) -> str:
        """Return PyTorch's name of this group."""
        return self._name

    # Collectives that calculate

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Reduce each of ``tensors`` in place over all ranks."""
        for tensor in tensors:
            self._reduce(tensor, opts)
        return _done(list(tensors))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        """Reduce onto ``opts.rootRank``; other ranks keep theirs."""
        self._reduce(tensors[0] if self.comm.rank == opts.rootRank else tensors[0].clone(), opts)
        return _done(list(tensors))

    def _reduce(self, tensor: Tensor, options: Any) -> None:
        operation = getattr(options, "reduceOp", dist.ReduceOp.SUM)
        operation = getattr(operation, "op", operation)
        if operation not in self._operations:
            raise ValueError(f"{operation} cannot be done through MPI; use gloo: --fix backend=gloo")
        plain = tensor.detach()
        wide = plain.to(WIDER.get(plain.dtype, plain.dtype)).contiguous()
        self.comm.Allreduce(self.mpi.IN_PLACE, wide.view(-1).numpy(), self._operations[operation])
        if operation == dist.ReduceOp.AVG:
            wide /= self.comm.size
        _put(wide, plain)

    # Collectives that move bytes: any type will do

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        """Bring rank ``opts.rootRank``'s tensors to every rank."""
        for tensor in tensors:
            dense = tensor.detach().contiguous()
            self.comm.Bcast(_content(dense), opts.rootRank)
            _put(dense, tensor)
        return _done(list(tensors))

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Any:
        """Bring every rank's tensor to every rank."""
        for places, tensor in zip(outputs, inputs, strict=True):
            gathered = tensor.new_empty((self.comm.size, *tensor.shape))
            self.comm.Allgather(_content(tensor), _content(gathered))
            for place, found in zip(places, gathered, strict=True):
                place.copy_(found)
        return _done([list(places) for places in outputs])

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """Do the same, one after the other in ``output``."""
        dense = output.detach().contiguous()
        self.comm.Allgather(_content(tensor), _content(dense))
        _put(dense, output)
        return _done([output])

    _allgather_base = all_gather_single
    """Older PyTorch's name of it."""

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Any:
        """Bring every rank's tensor to rank ``opts.rootRank``."""
        tensor, root = inputs[0], self.comm.rank == opts.rootRank
        gathered = tensor.new_empty((self.comm.size if root else 0, *tensor.shape))
        self.comm.Gather(_content(tensor), _content(gathered) if root else None, opts.rootRank)
        for place, found in zip(outputs[0] if root else (), gathered, strict=True):
            place.copy_(found)
        return _done([list(places) for places in outputs])

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any) -> Any:
        """Bring one of rank ``opts.rootRank``'s tensors to each rank."""
        parts = torch.stack([part.detach() for part in inputs[0]]) if self.comm.rank == opts.rootRank else None
        own = outputs[0].detach().contiguous()
        self.comm.Scatter(None if parts is None else _content(parts), _content(own), opts.rootRank)
        _put(own, outputs[0])
        return _done(list(outputs))

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        self.comm.Barrier()
        return _done([])


def _content(tensor: Tensor) -> Any:
    """Return the bytes of a tensor as MPI takes them; shared if it is contiguous."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()


def _put(dense: Tensor, tensor: Tensor) -> None:
    """Copy ``dense`` into ``tensor``, unless they share memory."""
    if dense.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(dense)


def _done(result: Any) -> Any:
    """Return the handle of a collective that is over."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    c10d: Any = torch._C._distributed_c10d
    return c10d._create_work_from_future(future)
