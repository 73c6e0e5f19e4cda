"""``torch.distributed`` over MPI, through mpi4py: starts MPI and registers it as backend `NAME`.

PyTorch's wheels hold no MPI. With this process group for CPU tensors, `DistributedDataParallel` and every
``torch.distributed`` call run on it. MPI waits busily: quick if each process has a core of its own, and a waste of the
others' time if not.
"""

# PyTorch's stubs of a process group's methods differ from one version to the next; tests call every one.
# mypy: disable-error-code="override,assignment,no-untyped-call"

from __future__ import annotations

import contextlib
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

NAME = "mpi4py"
"""What ``torch.distributed`` calls this backend; ``mpi`` is the one that only PyTorch built with MPI has."""
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}
"""What MPI cannot add (MPICH 5.0 knows no bfloat16) is added as what it can, which also rounds once and not per hop."""
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


class _Communicator(dist.ProcessGroup):
    """One communicator and what this group is called."""

    def __init__(self, mpi: Any, communicator: Any) -> None:
        super().__init__(communicator.rank, communicator.size)  # type: ignore[call-arg]  # the stub knows one overload
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

    # Who this is: PyTorch's own answers would come from a backend that a group in Python does not have.

    def getBackendName(self) -> str:  # noqa: N802
        """For logs."""
        return NAME

    def getGroupName(self) -> str:  # noqa: N802
        """As `setGroupName` gave it."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """PyTorch's name of this group."""
        self._name = name

    @property
    def group_name(self) -> str:
        """PyTorch's name of this group."""
        return self._name


class _Reductions(_Communicator):
    """Collectives that calculate."""

    def allreduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Reduce each of ``tensors`` in place over all ranks."""
        operation = _operation(opts)
        for tensor in tensors:
            self._reduce(tensor, operation)
        return _done(list(tensors))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        """Reduce onto ``opts.rootRank``; other ranks keep theirs."""
        kept = tensors[0] if self.comm.rank == opts.rootRank else tensors[0].clone()
        self._reduce(kept, _operation(opts))
        return _done(list(tensors))

    def reduce_scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None) -> Any:
        """Each rank's share of the reduced ``inputs``."""
        for output, parts in zip(outputs, inputs, strict=True):
            whole = [part.clone() for part in parts]
            for part in whole:
                self._reduce(part, _operation(opts))
            output.copy_(whole[self.comm.rank])
        return _done(list(outputs))

    def reduce_scatter_single(self, output: Tensor, whole: Tensor, opts: Any = None) -> Any:
        """The same for one tensor, cut into equal shares along its first dimension."""
        summed = whole.clone()
        self._reduce(summed, _operation(opts))
        output.copy_(summed.chunk(self.comm.size)[self.comm.rank].view_as(output))
        return _done([output])

    def _reduce(self, tensor: Tensor, operation: Any) -> None:
        if operation not in self._operations:
            raise ValueError(f"{operation} cannot be done through MPI; use gloo: --fix backend=gloo")
        plain = tensor.detach()
        wide = plain.to(WIDER.get(plain.dtype, plain.dtype)).contiguous()
        self.comm.Allreduce(self.mpi.IN_PLACE, wide.view(-1).numpy(), self._operations[operation])
        if operation == dist.ReduceOp.AVG:
            wide /= self.comm.size
        if wide.data_ptr() != plain.data_ptr():
            plain.copy_(wide)


class MpiGroup(_Reductions):
    """Collectives of one communicator. Each is done when it returns; only `send` and `recv` go on alone.

    Those below move bytes: any type will do.
    """

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Any:
        """Rank ``opts.rootRank``'s tensors on every rank."""
        for tensor in tensors:
            with _Bytes(tensor) as content:
                self.comm.Bcast(content, opts.rootRank)
        return _done(list(tensors))

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Any:
        """Every rank's tensor on every rank."""
        for places, tensor in zip(outputs, inputs, strict=True):
            gathered = tensor.new_empty((self.comm.size, *tensor.shape))
            self.all_gather_single(gathered, tensor)
            for place, found in zip(places, gathered, strict=True):
                place.copy_(found)
        return _done([list(places) for places in outputs])

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """The same, one after the other in ``output``."""
        with _Bytes(output, read=False) as everything, _Bytes(tensor, write=False) as own:
            self.comm.Allgather(own, everything)
        return _done([output])

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Any:
        """Every rank's tensor on rank ``opts.rootRank``."""
        tensor, root = inputs[0], self.comm.rank == opts.rootRank
        gathered = tensor.new_empty((self.comm.size if root else 0, *tensor.shape))
        with _Bytes(gathered, read=False) as everything, _Bytes(tensor, write=False) as own:
            self.comm.Gather(own, everything if root else None, opts.rootRank)
        for place, found in zip(outputs[0] if root else (), gathered, strict=True):
            place.copy_(found)
        return _done([list(places) for places in outputs])

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any) -> Any:
        """One of rank ``opts.rootRank``'s tensors for each rank."""
        parts = torch.stack([part.detach() for part in inputs[0]]) if self.comm.rank == opts.rootRank else None
        with _Bytes(outputs[0], read=False) as own:
            self.comm.Scatter(None if parts is None else _content(parts), own, opts.rootRank)
        return _done(list(outputs))

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Any:
        """Rank j's i-th tensor becomes rank i's j-th."""
        received = [self._receive(place, source, 0) for source, place in enumerate(outputs)]
        sent = [self._send(part, target, 0) for target, part in enumerate(inputs)]
        for work in (*received, *sent):
            work.wait()
        return _done(list(outputs))

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_sizes: Sequence[int], sizes: Sequence[int], opts: Any = None
    ) -> Any:
        """The same for parts of one tensor; equal parts where no sizes are given."""
        places = output.split(list(output_sizes)) if output_sizes else output.chunk(self.comm.size)
        parts = tensor.split(list(sizes)) if sizes else tensor.chunk(self.comm.size)
        return self.alltoall(places, parts)

    def send(self, tensors: Sequence[Tensor], rank: int, tag: int) -> Any:
        """Send to ``rank``; done when waited for."""
        return self._send(tensors[0], rank, tag)

    def recv(self, tensors: Sequence[Tensor], rank: int, tag: int) -> Any:
        """Receive from ``rank``; done when waited for."""
        return self._receive(tensors[0], rank, tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> Any:
        """Receive from whichever rank sends first."""
        return self._receive(tensors[0], self.mpi.ANY_SOURCE, tag)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        self.comm.Barrier()
        return _done([])

    def _send(self, tensor: Tensor, rank: int, tag: int) -> _Pending:
        content = _content(tensor)
        return _Pending(self.comm.Isend(content, rank, tag), content)

    def _receive(self, tensor: Tensor, rank: int, tag: int) -> _Pending:
        plain = tensor.detach()
        target = plain.contiguous()
        content = _content(target)
        finish = (lambda: plain.copy_(target)) if target.data_ptr() != plain.data_ptr() else None
        return _Pending(self.comm.Irecv(content, rank, tag), content, finish)

    # Older PyTorch's names of the same:
    _allgather_base = all_gather_single
    _reduce_scatter_base = _Reductions.reduce_scatter_single
    alltoall_base = all_to_all_single


class _Pending(dist.Work):
    """A message on its way."""

    def __init__(self, request: Any, content: Any, finish: Callable[[], object] | None = None) -> None:
        super().__init__()
        self._request, self._content, self._finish = request, content, finish
        self._status: Any = None

    def wait(self, timeout: Any = None) -> bool:
        """Until the message has arrived or its memory may be used again."""
        from mpi4py import MPI

        self._status = MPI.Status()
        self._request.Wait(self._status)
        if self._finish is not None:
            self._finish()
        return True

    def is_completed(self) -> bool:
        """True where `wait` would return at once."""
        return bool(self._request.Test())

    def _source_rank(self) -> int:
        return int(self._status.Get_source())

    source_rank = _source_rank


class _Bytes:
    """A tensor's memory for MPI; copied in and out where it has gaps."""

    def __init__(self, tensor: Tensor, *, read: bool = True, write: bool = True) -> None:
        self._tensor = tensor.detach()
        self._dense = self._tensor if self._tensor.is_contiguous() else self._tensor.contiguous()
        self._write = write

    def __enter__(self) -> Any:
        return _content(self._dense)

    def __exit__(self, *_exception: object) -> None:
        if self._write and self._dense is not self._tensor:
            self._tensor.copy_(self._dense)


def _content(tensor: Tensor) -> Any:
    """The bytes of a tensor as MPI takes them; shared where it is contiguous."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()


def _operation(options: Any) -> Any:
    operation = getattr(options, "reduceOp", dist.ReduceOp.SUM)
    return getattr(operation, "op", operation)


def _done(result: Any) -> Any:
    """The handle of a collective that is over."""
    future: Any = torch.futures.Future()
    future.set_result(result)
    c10d: Any = torch._C._distributed_c10d
    return c10d._create_work_from_future(future)
