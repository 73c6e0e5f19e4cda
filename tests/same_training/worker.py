"""Each rank: runs a list of cases one after the other and writes a record of each.

    python -m tests.same_training.worker FOLDER FIRST STEP     every STEP-th case of FOLDER/cases.txt from FIRST on

With torchrun's variables for several processes, which share one process group. A case that hangs ends the process with
the stack on stderr, one in which a rank fails with its error; the parent then starts all again after that case.
"""

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
COLLECTIVE = timedelta(seconds=40)
"""A rank waits so long for another, which may judge a case in plain PyTorch meanwhile."""


def main(folder: Path, first: int, step: int) -> None:
    """Run the cases."""
    warnings.simplefilter("ignore")
    compiling.BACKEND = "eager"  # the compiler's own arithmetic is PyTorch's affair, and slow
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:  # under mpiexec this is MPI, see `autotune.scripts.entry`
        dist.init_process_group("gloo", timeout=COLLECTIVE)
    cases = read(folder)
    with (folder / f"rank{rank}-{first}-{step}.pickle").open("ab") as file:
        for number in range(first, len(cases), step):
            faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
            line = run(number, cases[number], rank == number // step % size)
            if size > 1 and isinstance(line.tested, str):
                sys.exit(line.tested)  # the group may be out of step
            pickle.dump(line, file)
            file.flush()
            if size > 1:
                dist.barrier()  # a rank that fails in the next case ends all under MPI
    faulthandler.cancel_dump_traceback_later()
    if size > 1:
        dist.destroy_process_group()


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
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]))
