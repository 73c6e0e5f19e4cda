"""The parts of the run. Each is started as a process, and writes what it knows to its file as soon as it knows it.

python -m benchmarks.gpu.parts KIND FOLDER [--subject NAME] [--rehearse]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from benchmarks import stamp
from benchmarks.gpu.plan import REHEARSAL_BUDGET, SUBJECTS, Subject
from benchmarks.plain.side_by_side import Contender, rounds, tail
from benchmarks.plain.training import load
from benchmarks.ratios import paired
from benchmarks.recheck import BASELINE, counted, distinct, profiled

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, BLOCK_SECONDS = 8, 0.8
TESTS = "tests/processes/test_gpu.py"


@dataclass(frozen=True)
class Work:
    """One part as it runs.

    Attributes:
        name: of its file.
        folder: of all parts' files.
        subject: the task, where it is about one.
        rehearse: small, on a double of a card.
    """

    name: str
    folder: Path
    subject: Subject | None
    rehearse: bool

    @property
    def device(self) -> str:
        """Where the subject trains."""
        return "cuda" if self.subject is None else self.subject.device

    @property
    def profile(self) -> Path:
        """Return the path of what the tuning run writes."""
        assert self.subject is not None
        return self.folder / f"{self.subject.name}.yaml"

    def variables(self) -> dict[str, str]:
        """Return the environment of what is started."""
        found = dict(os.environ)
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (found.get("PYTHONPATH"), str(ROOT))))
        found |= {"AUTOTUNE_REHEARSAL": "1"} if self.rehearse else {}
        return found | ({"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {})

    def run(self, line: Sequence[str]) -> tuple[subprocess.CompletedProcess[str], float]:
        """Run ``line`` to its end; return it with the seconds it took."""
        started = time.monotonic()
        ended = subprocess.run(line, cwd=ROOT, env=self.variables(), capture_output=True, text=True)
        return ended, round(time.monotonic() - started, 2)

    def write(self, **found: Any) -> None:
        """Write what is known so far."""
        path = self.folder / f"{self.name}.json"
        path.with_suffix(".new").write_text(json.dumps(found), "utf-8")
        path.with_suffix(".new").rename(path)


def facts(work: Work) -> None:
    """Write machine, versions, and what nvidia-smi reports."""
    inventory = probe()
    work.write(**stamp.stamp(inventory))
    query = ("--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit", "--format=csv,noheader")
    try:
        smi = work.run(["nvidia-smi", *query])[0].stdout.strip()
    except OSError as error:
        smi = str(error)
    work.write(**stamp.stamp(inventory), cuda=inventory.software.cuda, nvidia_smi=smi)


def tests(work: Work) -> None:
    """Run the tests that need a GPU."""
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS]
    ended, seconds = work.run(line)
    work.write(code=ended.returncode, seconds=seconds, tail=tail(ended.stdout))


def tune(work: Work) -> None:
    """Tune the subject as a user does."""
    assert work.subject is not None
    budget = REHEARSAL_BUDGET if work.rehearse else work.subject.budget
    line = [sys.executable, "tune.py", str(work.subject.path), "--budget", f"{budget:g}s", "--profile"]
    ended, seconds = work.run([*line, str(work.profile)])
    found: dict[str, Any] = {"code": ended.returncode, "seconds": seconds, "tail": tail(ended.stderr, 40)}
    if work.profile.exists():
        profile = yaml.safe_load(work.profile.read_text("utf-8"))
        found["levels"] = {name: claim(level, profile) for name, level in profile["levels"].items()}
        found["baseline"] = profile["baseline"]
        found["evidence"] = {name: profile["evidence"][name] for name in ("trials", "seconds", "warnings")}
    work.write(**found)


def claim(level: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one level claims, and by which changes."""
    own, settings = profile["baseline"]["settings"], level["settings"]
    changed = {name: value for name, value in settings.items() if value != own[name]}
    return {"changes": changed, "speedup": level["speedup"], "proven": level["proven"]}


def recheck(work: Work) -> None:
    """Measure every claim again, side by side in plain PyTorch, against the user's settings."""
    assert work.subject is not None
    profile = yaml.safe_load(work.profile.read_text("utf-8")) if work.profile.exists() else {}
    choices, variables = settings_of(work, profile), work.variables()
    contenders = {
        name: Contender(work.subject.path, choices[name], variables=variables, device=work.device)
        for name in dict.fromkeys(distinct(choices).values())
    }
    count, seconds = (2, 0.1) if work.rehearse else (ROUNDS, BLOCK_SECONDS)
    turns: list[dict[str, float]] = []
    for turn in rounds(contenders, count, seconds):
        turns.append(turn)
        rates = counted(turns, choices, profile)
        gains = {name: paired(rates, name, BASELINE) for name in contenders}
        work.write(rounds=turns, gains={name: gain and gain.as_dict() for name, gain in gains.items()})
    if not turns:
        work.write(failed="no trainer came to its first round")


def settings_of(work: Work, profile: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the user's settings and those of each level; PyTorch's own with the task's batch without a profile."""
    assert work.subject is not None
    if profile:
        return profiled(profile)
    threads = len(os.sched_getaffinity(0))
    batch = load(str(work.subject.path)).CURRENT["batch_size"]
    return {BASELINE: Settings(threads=threads, interop_threads=threads, batch_size=batch).as_dict()}


KINDS: Mapping[str, Callable[[Work], None]] = {
    "facts": facts,
    "tests": tests,
    "tune": tune,
    "recheck": recheck,
}


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--subject")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    subject = next((each for each in SUBJECTS if each.name == arguments.subject), None)
    name = f"{arguments.kind} {subject.name}" if subject else arguments.kind
    KINDS[arguments.kind](Work(name, arguments.folder, subject, arguments.rehearse))


if __name__ == "__main__":
    main()
