"""Which settings that are no knob of autotune would bring something on the examples? One factor at a time, in turns.

    python -m benchmarks.knobs [NAME...] [--rounds 12] [--replicates 2] [--seconds 0.6]

Each candidate is compared with the same training without it: plain PyTorch, fresh processes side by side, one block of
each per round in random order, again in new processes for each generation. Printed and written to
``benchmarks/results/knobs.json``: the ratio over all rounds with Student's interval (95 %).
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

from autotune.knobs.allocator import GLIBC_VARIABLES
from autotune.knobs.settings import Settings
from benchmarks import stamp
from benchmarks.neighbour import neighbour
from benchmarks.plain.side_by_side import Contender, rounds
from benchmarks.ratios import Ratio, paired

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
BATCHES = {"tabular_mlp": 128, "jpeg_folder": 64, "lstm_forecast": 32, "recommender": 256, "char_transformer": 16}
TASKS = tuple(BATCHES)
CPUS = len(os.sched_getaffinity(0))
WORKERS = {"num_workers": 2, "prefetch_factor": 2}
TWO = {"processes": 2, "backend": "gloo", "threads": 1}
NOISY = ("tabular_mlp", "char_transformer")


@dataclass(frozen=True)
class Candidate:
    """One factor.

    Attributes:
        what: for people.
        tasks: examples on which it could act.
        settings: of both sides, if they are not PyTorch's own.
        changed: of its side.
        extra: what no knob says.
        variables: of its environment.
        neighbour: if a busy process of equal priority runs beside both.
    """

    what: str
    tasks: tuple[str, ...] = TASKS
    settings: Mapping[str, Any] = field(default_factory=dict)
    changed: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    neighbour: bool = False


def _intel_openmp() -> str:
    """Path of the runtime of PyPI's ``intel-openmp``; empty if it is not installed."""
    with contextlib.suppress(PackageNotFoundError):
        return next(str(file.locate()) for file in files("intel-openmp") or () if file.name == "libiomp5.so")
    return ""


LOADED = ("jpeg_folder", "tabular_mlp")
KEPT = {**GLIBC_VARIABLES, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
PASSIVE = {"OMP_WAIT_POLICY": "passive"}
CANDIDATES = {
    "in_order": Candidate("DataLoader(in_order=False)", LOADED, WORKERS, extra={"in_order": False}),
    "mpi": Candidate("backend mpi, not gloo", ("tabular_mlp",), TWO, changed={"backend": "mpi"}),
    "passive": Candidate("OMP_WAIT_POLICY=passive beside a busy process", NOISY, variables=PASSIVE, neighbour=True),
    "passive_quiet": Candidate("OMP_WAIT_POLICY=passive", NOISY, variables=PASSIVE),
    "passive_workers": Candidate("OMP_WAIT_POLICY=passive beside loader workers", LOADED, WORKERS, variables=PASSIVE),
    "interop_1": Candidate("interop threads 1", NOISY, changed={"interop_threads": 1}),
    "huge_tensors": Candidate("huge pages for tensors", variables={"THP_MEM_ALLOC_ENABLE": "1"}),
    "huge_heap": Candidate("huge pages for glibc's heap", variables={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    "huge_kept": Candidate("huge pages for a heap that is kept", variables=KEPT),
    "intel_openmp": Candidate("Intel's OpenMP", variables={"LD_PRELOAD": _intel_openmp()}),
    "onednn_bf16": Candidate("bfloat16 inside oneDNN", variables={"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}),
    "prefetch_8": Candidate("prefetch factor 8", LOADED, WORKERS, changed={"prefetch_factor": 8}),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CANDIDATES, []], default=list(CANDIDATES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--replicates", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.6, help="of a block")
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for name in arguments.names or CANDIDATES:
        candidate = CANDIDATES[name]
        for task in candidate.tasks:
            result = compare(candidate, task, arguments)
            print(f"{candidate.what}, {task}: {result or 'failed'}", flush=True)
            found.setdefault(name, {})[task] = result and result.as_dict()
            stamp.write("knobs", {"format": "autotune.knobs/1", "options": vars(arguments), "found": found})


def compare(candidate: Candidate, task: str, arguments: argparse.Namespace) -> Ratio | None:
    """Return the rate with ``candidate`` over that of the same training without it."""
    sides = {"without": contender(candidate, task, False), "with": contender(candidate, task, True)}
    turns: list[dict[str, float]] = []
    with neighbour("steady" if candidate.neighbour else "none"):
        for seed in range(arguments.replicates):
            turns += rounds(sides, arguments.rounds, arguments.seconds, seed=seed)
    return paired(turns, "with", "without")


def contender(candidate: Candidate, task: str, changed: bool) -> Contender:
    """Return one side of the comparison."""
    batch = BATCHES[task]
    own = {"threads": CPUS, "interop_threads": CPUS, "batch_size": batch, **candidate.settings}
    settings = Settings(**(own | dict(candidate.changed) if changed else own))
    if settings.processes > 1:
        settings = settings.but(batch_size=batch // settings.processes)
    path = EXAMPLES / f"{task}.py"
    return Contender(
        path, settings.as_dict(), candidate.extra if changed else {}, candidate.variables if changed else {}
    )


if __name__ == "__main__":
    main()
