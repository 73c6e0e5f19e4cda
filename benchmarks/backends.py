"""Gradient exchange between two processes on this machine: MPI against gloo.

    python -m benchmarks.backends [--rounds 5]

Three parts, each paired and in turn. Allreduce and DistributedDataParallel steps run in one pair of ranks that holds
every group at once, so that memory layout and neighbours hit all alike: gloo, the registered backend as PyTorch uses
it, and the communication hook that the runtime puts on top (blocking for each bucket, or early buckets from a thread).
The example's training rate comes from the tuner's own trials. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.knobs.settings import Settings
from autotune.launch.command import command
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.judge import judge
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import Timeouts
from autotune.trial.paths import StudyPaths

ROOT = Path(__file__).resolve().parents[1]
FLOATS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
BLOCK_SECONDS = 0.15
SHARED = Settings(processes=2, batch_size=64, optimizer_impl="fused")


def main() -> None:
    """Parent: start the ranks, run the trials, print. Rank: measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip-training", action="store_true")
    options = parser.parse_args()
    if options.rank:
        rank(options.rounds)
        return
    arguments = ["--rank", "--rounds", str(options.rounds)]
    launcher = mpiexec(System())
    if launcher is None:
        sys.exit("no mpiexec here: pip install -e '.[mpi]'")
    line = command(
        SHARED.but(backend="mpi"), str(Path(__file__).resolve()), arguments, sys.executable, mpiexec=launcher
    )
    own = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    result = json.loads(subprocess.run(line, env=own, stdout=subprocess.PIPE, text=True, check=True).stdout)
    if not options.skip_training:
        result["tabular_mlp"] = training(options.rounds)
    print(json.dumps(result, indent=2))


def rank(rounds: int) -> None:
    """One of two processes; rank 0 prints."""
    import torch.distributed as dist

    dist.init_process_group()
    mpi_group, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    result = {
        "allreduce_us": allreduce({"gloo": gloo, "mpi": mpi_group}, rounds),
        "ddp_step_us": {
            "tabular_mlp, 26 thousand parameters": steps(mpi_group, gloo, 65, 128, rounds),
            "wide MLP, 9.4 million parameters": steps(mpi_group, gloo, 512, 2048, rounds),
        },
    }
    if dist.get_rank() == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


def allreduce(groups: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Microseconds by number of floats."""
    import torch
    import torch.distributed as dist

    found = {}
    for floats in FLOATS:
        tensor = torch.ones(floats)
        work = {
            name: (lambda group=group, tensor=tensor: dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group))
            for name, group in groups.items()
        }
        found[str(floats)] = compare(work, rounds)
    return found


def steps(mpi_group: Any, gloo: Any, inputs: int, width: int, rounds: int) -> dict[str, Any]:
    """Microseconds of a whole training step of an MLP, and the largest difference of losses."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    def model(group: Any, hook: Callable[..., Any] | None = None) -> Any:
        torch.manual_seed(0)
        hidden = [layer for _ in range(1 if width < 1000 else 2) for layer in (nn.Linear(width, width), nn.ReLU())]
        layers = [nn.Linear(inputs, width), nn.ReLU(), *hidden, nn.Linear(width, 2)]
        shared = DistributedDataParallel(nn.Sequential(*layers), process_group=group)
        if hook is not None:
            shared.register_comm_hook(mpi_group, lambda state, bucket: hook(state, bucket))
        return shared

    def in_place(group: Any, bucket: Any) -> Any:
        group.allreduce([bucket.buffer().div_(group.size())])
        promise: Any = torch.futures.Future()
        promise.set_result(bucket.buffer())
        return promise

    models = {
        "gloo": model(gloo),
        "mpi": model(mpi_group),
        "mpi, blocking hook": model(mpi_group, in_place),
        "mpi, hook of the runtime": model(mpi_group, lambda group, bucket: group.exchange(bucket)),
    }
    features, labels = torch.randn(64, inputs), torch.randint(2, (64,))
    losses: dict[str, list[float]] = {name: [] for name in models}

    def stepper(name: str) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(models[name].parameters(), lr=1e-3, fused=True)

        def step() -> None:
            loss = nn.functional.cross_entropy(models[name](features), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if len(losses[name]) < 5:
                losses[name].append(float(loss.detach()))

        return step

    found = compare({name: stepper(name) for name in models}, rounds)
    found["losses differ by at most"] = max(
        abs(ours - theirs) for own in losses.values() for ours, theirs in zip(own, losses["gloo"], strict=True)
    )
    return found


def compare(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, Any]:
    """Median microseconds of each, and of how many times gloo's they are quicker, over blocks in turn."""
    import torch
    import torch.distributed as dist

    counts: dict[str, int] = {}
    for name, call in work.items():
        call()
        call()
        dist.barrier()
        started = time.perf_counter()
        call()
        call()
        count = torch.tensor([max(2, int(2 * BLOCK_SECONDS / (time.perf_counter() - started)))])
        dist.broadcast(count, 0)
        counts[name] = int(count)
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(rounds):
        names = list(work)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            dist.barrier()
            started = time.perf_counter()
            for _ in range(counts[name]):
                work[name]()
            dist.barrier()
            times[name].append((time.perf_counter() - started) / counts[name] * 1e6)
    return {
        name: {
            "us": round(statistics.median(own), 1),
            "times_gloo": [round(g / t, 2) for g, t in zip(times["gloo"], own, strict=True)],
        }
        for name, own in times.items()
    }


def training(rounds: int) -> dict[str, Any]:
    """Rows per second of examples/tabular_mlp.py in the tuner's own trials, and the losses that they check."""
    paths = StudyPaths.create()

    def environment(_: Settings) -> dict[str, str]:
        return trial_environment(os.environ, paths, threads=2, memory=2**33)

    rates: dict[str, list[float]] = {"gloo": [], "mpi": []}
    losses: dict[str, tuple[float, ...]] = {}
    starts: dict[str, list[float]] = {"gloo": [], "mpi": []}
    with Runner(TrialSetup(ROOT / "examples" / "tabular_mlp.py", paths, environment, ROOT)) as runner:
        runner.warm()
        for turn in range(rounds):
            for backend in ("gloo", "mpi") if turn % 2 == 0 else ("mpi", "gloo"):
                settings = SHARED.but(backend=backend)
                end = runner.run(TrialSpec(settings=settings), Timeouts())
                outcome = judge(settings, end)
                measurement = getattr(outcome, "measurement", None)
                if measurement is None:
                    sys.exit(f"{backend}: {outcome.reason}\n{outcome.detail}")
                rates[backend].append(round(measurement.rate))
                starts[backend].append(round(end.start_seconds, 3))
                losses[backend] = outcome.losses
    return {
        "rows_per_second": rates,
        "ratio": round(statistics.median(m / g for m, g in zip(rates["mpi"], rates["gloo"], strict=True)), 2),
        "start_seconds": {name: statistics.median(own) for name, own in starts.items()},
        "losses": losses,
    }


if __name__ == "__main__":
    main()
