"""Each rank: runs a list of cases one after the other and writes a record of each.

    python -m tests.same_training.worker FOLDER PORT FIRST STEP     every STEP-th case of FOLDER/cases.txt from FIRST on

With ``RANK`` and ``WORLD_SIZE`` for several processes, which share one process group. A case that hangs ends the
process with the stack on stderr; the parent then starts it again after that case.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from autotune.knobs import compile as compiling
from tests.same_training import outcome
from tests.same_training.case import Case, parsed
from tests.same_training.outcome import Line
from tests.same_training.record import Record

HANGS_AFTER = 60.0
"""Seconds for one case; the slowest compiles and takes some five."""
COLLECTIVE = timedelta(seconds=8)
"""A rank that fails leaves the others waiting in a collective: for so long."""
MEET_WITHIN = timedelta(seconds=40)
"""Then all ranks are through with the case: each may have waited for the next one's failure."""


def main(folder: Path, port: int, first: int, step: int) -> None:
    """Run the cases."""
    warnings.simplefilter("ignore")
    compiling.BACKEND = "eager"  # the compiler's own arithmetic is PyTorch's affair, and slow
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0) if size > 1 else None
    if store is not None:
        join(store, rank, size, first)
    cases = read(folder)
    with (folder / f"rank{rank}-{first}-{step}.pickle").open("ab") as file:
        for number in range(first, len(cases), step):
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
            line = run(number, cases[number], rank == number // step % size)
            pickle.dump(line, file)
            file.flush()
            if store is not None and not meet(store, line, rank, size):
                dist.destroy_process_group()
                join(store, rank, size, number + step)
    faulthandler.cancel_dump_traceback_later()
    if size > 1:
        dist.destroy_process_group()


def join(store: dist.Store, rank: int, size: int, number: int) -> None:
    """One group from case ``number`` on: of MPI under mpiexec (see `autotune.scripts.entry`), else of gloo."""
    if "PMI_SIZE" in os.environ:
        dist.init_process_group("mpi")
    else:
        own = dist.PrefixStore(f"group {number}", store)
        dist.init_process_group("gloo", store=own, rank=rank, world_size=size, timeout=COLLECTIVE)


def meet(store: dist.Store, line: Line, rank: int, size: int) -> bool:
    """Wait until all ranks are through with a case. False where one failed: the group may be out of step then."""
    store.set(f"{line.number} {rank}", "failed" if isinstance(line.tested, str) else "done")
    keys = [f"{line.number} {other}" for other in range(size)]
    store.wait(keys, MEET_WITHIN)
    return all(store.get(key) == b"done" for key in keys)


def run(number: int, case: Case, judges: bool) -> Line:
    """One case on this rank; ``judges``: also in plain PyTorch."""
    started = time.perf_counter()
    tested = outcome.attempt(case)
    plain = outcome.reference(case, tested) if judges and isinstance(tested, Record) else None
    return Line(number, tested, plain, time.perf_counter() - started)


def read(folder: Path) -> list[Case]:
    """The cases, one expression a line."""
    return [parsed(line) for line in (folder / "cases.txt").read_text("utf-8").splitlines()]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))
