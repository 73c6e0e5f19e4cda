"""Runs scripts in forks of one process that has imported torch, and prints how many threads each has at its frontier.

Started with `python -m tests.processes.scripts.forks`. It reads one JSON object a line: ``line`` (what would follow
``python``), ``folder`` (where), ``environment``, ``output`` (a file for stdout and stderr) and ``known_by`` (to apply
settings from outside, else None), and answers with the exit code.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the constructor of an optimizer would import it
from autotune.script.tuned import Tuned
from autotune.script.watch import Watch
from torch.utils.data import DataLoader

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session


def main() -> None:
    """Fork once for each line; what a child raises ends it as it would end a script."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return run(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def run(line: list[str], folder: str, environment: dict[str, str], output: str, known_by: str | None) -> None:
    """Become the script: with its own folder, variables, streams and arguments."""
    os.chdir(folder)
    os.environ.update(environment)
    tempfile.tempdir = None
    _redirect(os.devnull, os.O_RDONLY, 0)
    _redirect(output, os.O_WRONLY | os.O_CREAT, 1)
    os.dup2(1, 2)
    if known_by is None:
        watch(Frontier())
    else:
        tune(known_by)
    if line[0] == "-m":
        sys.argv, sys.path[0] = line[1:], folder
        runpy.run_module(line[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = line, folder
        runpy.run_path(str(Path(folder) / line[0]), run_name="__main__")


def _redirect(path: str, flags: int, stream: int) -> None:
    opened = os.open(path, flags)
    os.dup2(opened, stream)
    os.close(opened)


def tune(known_by: str) -> None:
    """Apply settings that leave training as it is, and say at the end what of them took effect."""
    settings = Settings(
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        num_workers=1,
        optimizer_impl="fused",
        malloc="keep",
        channels_last=True,
    )
    seen = Watch()
    tuned = Tuned(seen, lambda: Session(settings, device="cpu", moves=False), known_by=known_by)
    seen.watcher = tuned
    seen.install()
    atexit.register(lambda: print("applied", tuned.session is not None, flush=True))


class Frontier:
    """Says once how many threads are alive."""

    def __init__(self) -> None:
        self.seen = False

    def reach(self, training: bool = True) -> None:
        """Print the threads at the first call in training with gradients enabled."""
        if training and torch.is_grad_enabled() and not self.seen:
            self.seen = True
            print("threads", len(os.listdir("/proc/self/task")), flush=True)


def watch(frontier: Frontier) -> None:
    """See the first iteration of a loader, the first forward and the first backward."""

    def first(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            frontier.reach()
            return function(*args, **kwargs)

        return call

    DataLoader.__iter__ = first(DataLoader.__iter__)  # type: ignore[method-assign]
    torch.Tensor.backward = first(torch.Tensor.backward)  # type: ignore[method-assign]
    torch.nn.modules.module.register_module_forward_pre_hook(lambda module, args: frontier.reach(module.training))


if __name__ == "__main__":
    main()
