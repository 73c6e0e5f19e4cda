"""Which versions of Python and PyTorch work: the tests and a tuned task and script, in an environment for each pair.

    python -m benchmarks.versions [--only torch==2.8.0,python3.12 ...] [--folder FOLDER] [--keep]

uv makes the environments, and finds or fetches each Python. PyTorch comes from PyPI, with CUDA's packages: up to 8 GB
on disk for each environment, which is removed after its row. Everything else has the versions of constraints.txt. Each
command's output stays in the folder, as ``ENVIRONMENT.STEP.log``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
TASK = ROOT / "examples" / "jpeg_folder.py"
SCRIPT = (str(ROOT / "benchmarks" / "scripts" / "cnn_digits.py"), "--epochs", "3")
BUDGET = ("--budget", "60s")
THREADS = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import torch
print(torch.get_num_threads(), torch.get_num_interop_threads())
"""
HEADER = ("Python", "PyTorch", "tests/unit", "tests/torch", "threads, one CPU", "task", "script", "minutes")
PAIRS = (("3.10", "2.6.0"), ("3.12", "2.8.0"), ("3.10", "2.14.1"), ("3.12", "2.15.0"), ("3.14", "2.15.0"))
"""Python and PyTorch: the oldest promised, one between, the newest for the oldest Python, the newest."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run each pair and print its row as soon as it is known."""
    names = [f"torch=={torch},python{python}" for python, torch in PAIRS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PAIR")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "versions", help="for environments and logs")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    print(row(HEADER), row("---" for _ in HEADER), sep="\n", flush=True)
    for name, (python, torch) in zip(names, PAIRS, strict=True):
        if name in given.only:
            environment = Environment(python, torch, given.folder.resolve() / f"python{python}-torch{torch}")
            print(row(environment.cells()), flush=True)
            if not given.keep:
                shutil.rmtree(environment.folder)


def row(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def counts(output: str) -> str:
    """Return how many tests passed, failed and were skipped, from the last line of pytest's ``output``."""
    last = output.strip().rpartition("\n")[2]
    found: Counter[str] = Counter()
    for number, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last):
        found["failed" if word.startswith("error") else word] += int(number)
    if not found:
        return "did not run"
    return f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"


@dataclass(frozen=True)
class Environment:
    """A virtual environment of one version of Python with one of PyTorch, in a folder of its own."""

    python: str
    torch: str
    folder: Path

    def cells(self) -> Iterator[str]:
        """Make the environment, run everything in it and return the cells of its row."""
        start = time.monotonic()
        yield from (self.python, self.torch)
        self.make()
        yield counts(self.run("unit", "-m", "pytest", "tests/unit")[1])
        yield counts(self.run("torch", "-m", "pytest", "tests/torch")[1])
        yield self.run("threads", "-c", THREADS)[1].strip()
        task, script = (self.folder.with_name(f"{self.folder.name}.{name}.yaml") for name in ("task", "script"))
        yield self.tuned(task, ("task", "tune.py", *BUDGET, "--profile", str(task), str(TASK)))
        yield self.tuned(
            script,
            ("script", "-m", "autotune", "tune", *BUDGET, "--profile", str(script), *SCRIPT),
            ("run", "-m", "autotune", "run", "--profile", str(script), *SCRIPT),
        )
        yield f"{(time.monotonic() - start) / 60:.0f}"

    def make(self) -> None:
        """Make the environment and install the project with the extras of its tests.

        Raises:
            CalledProcessError: uv failed, after it printed why.
        """
        subprocess.run(["uv", "venv", "-q", "--clear", "--python", self.python, str(self.folder)], check=True)
        pinned = self.folder / "constraints.txt"
        constraints = (ROOT / "constraints.txt").read_text()
        pinned.write_text(re.sub(r"(?m)^torch==.*", f"torch=={self.torch}", constraints))
        install = "uv pip install -q --compile-bytecode -e .[dev]".split()
        subprocess.run([*install, "--python", str(self.folder), "-c", str(pinned)], cwd=ROOT, check=True)

    def tuned(self, profile: Path, *steps: Sequence[str]) -> str:
        """Run the commands, each with its step's name first; return what each level of ``profile`` came to, or how the
        first command that failed ended."""
        for step, *command in steps:
            code, _ = self.run(step, *command)
            if code:
                return f"{step}: exit code {code}"
        levels = yaml.safe_load(profile.read_text("utf-8"))["levels"]
        return "ok: " + ", ".join(f"{name} {level['verdict']}" for name, level in levels.items())

    def run(self, step: str, *arguments: str) -> tuple[int, str]:
        """Run the environment's Python; return its exit code and all that it printed."""
        programs = self.folder / "bin"
        command = [str(programs / "python"), *arguments]
        variables = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}")
        done = subprocess.run(
            command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        self.folder.with_name(f"{self.folder.name}.{step}.log").write_text(done.stdout)
        return done.returncode, done.stdout


if __name__ == "__main__":
    main()
