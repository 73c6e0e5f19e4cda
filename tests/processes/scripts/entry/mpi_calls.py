"""Run under mpiexec by `test_entry` as two ranks: the calls of ``torch.distributed`` against its known answer."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotune.runtime.mpi import NAME

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)


def main() -> None:
    """All calls in one group; an assertion that fails ends the job."""
    dist.init_process_group()
    rank = dist.get_rank()
    assert dist.get_backend() == NAME
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("mpich_shm_") and _mapped(name)]
    reductions(rank)
    movements(rank)
    groups(rank)
    print("every call is right")
    dist.destroy_process_group()


def _mapped(name: str) -> bool:
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith(name) for line in maps)


def same(found: Tensor, wanted: Any) -> None:
    """Exactly equal."""
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=found.dtype), rtol=0, atol=0)


def reductions(rank: int) -> None:
    """Sums and the like, of each type, with gaps and without, of no dimension and of no element."""
    for dtype in TYPES:
        tensor = torch.tensor([1, 2, 3], dtype=dtype) + rank
        dist.all_reduce(tensor)
        same(tensor, [3, 5, 7])
    for operation, wanted in (("MIN", 3.0), ("MAX", 4.0), ("PRODUCT", 12.0), ("AVG", 3.5), ("SUM", 7.0)):
        scalar = torch.tensor(3.0 + rank)
        dist.all_reduce(scalar, getattr(dist.ReduceOp, operation))
        same(scalar, wanted)
    flags = torch.tensor([rank == 0, rank == 1, False])
    dist.all_reduce(flags)
    same(flags, [True, True, False])
    gaps = torch.arange(8.0).reshape(2, 4)
    dist.all_reduce(gaps[:, ::2])
    same(gaps, [[0, 1, 4, 3], [8, 5, 12, 7]])
    dist.all_reduce(torch.empty(0))
    kept = torch.tensor([1.0 + rank])
    dist.reduce(kept, 1)
    same(kept, [3.0] if rank == 1 else [1.0])


def movements(rank: int) -> None:
    """Copies from one to all and all to one, bfloat16 and gaps among them."""
    gaps = (torch.arange(8.0).reshape(2, 4) * (1 - rank)).bfloat16()
    dist.broadcast(gaps[:, ::2], 0)
    same(gaps, [[0, 1, 2, 3], [4, 5, 6, 7]] if rank == 0 else [[0, 0, 2, 0], [4, 0, 6, 0]])
    places = [torch.empty(2), torch.empty(2)]
    dist.all_gather(places, torch.full((2,), 1.0 + rank))
    same(torch.stack(places), [[1, 1], [2, 2]])
    whole = torch.empty(4)
    dist.all_gather_into_tensor(whole, torch.full((2,), 1.0 + rank))
    same(whole, [1, 1, 2, 2])
    gathered = [torch.empty(1), torch.empty(1)] if rank else None
    dist.gather(torch.tensor([1.0 + rank]), gathered, 1)
    same(torch.cat(gathered or [torch.tensor([1.0, 2.0])]), [1, 2])
    part = torch.empty(1)
    dist.scatter(part, [torch.tensor([5.0]), torch.tensor([6.0])] if rank == 0 else None, 0)
    same(part, [5.0 + rank])
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    dist.barrier()


def groups(rank: int) -> None:
    """A group of one's own, and a second one of all."""
    alone = [dist.new_group([0]), dist.new_group([1])][rank]
    value = torch.tensor([1.0 + rank])
    dist.all_reduce(value, group=alone)
    same(value, [1.0 + rank])
    dist.all_reduce(value, group=dist.new_group([0, 1]))
    same(value, [3.0])


if __name__ == "__main__":
    main()
