"""The parts of the run. Each is started as a process, and writes what it knows to its file as soon as it knows it.

python -m benchmarks.gpu.parts KIND FOLDER [--subject NAME] [--rehearse]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.probes.inventory import probe
from benchmarks import stamp
from benchmarks.gpu.plan import REHEARSAL_SECONDS, SUBJECTS, TUNE_SECONDS, Subject
from benchmarks.plain.side_by_side import tail

ROOT = Path(__file__).resolve().parents[2]
PAIRS = 2
CLOCK = re.compile(r" in ([\d.]+) s$", re.M)
"""What the scripts say of each epoch, or of each 100 steps."""
TESTS = "tests/processes/test_gpu.py"


@dataclass(frozen=True)
class Work:
    """One part as it runs.

    Attributes:
        name: of its file.
        folder: of all parts' files.
        subject: the script, where it is about one.
        rehearse: small, on a double of a card.
    """

    name: str
    folder: Path
    subject: Subject | None
    rehearse: bool

    @property
    def profile(self) -> Path:
        """Return the path of what the tuning run writes."""
        assert self.subject is not None
        return self.folder / f"{self.subject.name}.yaml"

    def variables(self) -> dict[str, str]:
        """Return the environment of what is started."""
        found = dict(os.environ)
        found["PYTHONPATH"] = os.pathsep.join(filter(None, (found.get("PYTHONPATH"), str(ROOT))))
        return found | ({"AUTOTUNE_REHEARSAL": "1"} if self.rehearse else {})

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
    budget = REHEARSAL_SECONDS if work.rehearse else TUNE_SECONDS
    line = [sys.executable, "-m", "autotune", "tune", "--budget", f"{budget:g}s", "--profile", str(work.profile)]
    ended, seconds = work.run([*line, str(work.subject.path)])
    found: dict[str, Any] = {"code": ended.returncode, "seconds": seconds, "tail": tail(ended.stderr, 40)}
    if work.profile.exists():
        profile = yaml.safe_load(work.profile.read_text("utf-8"))
        found["levels"] = {name: claim(level, profile) for name, level in profile["levels"].items()}
        found["recommended"], found["baseline"] = profile["recommended"], profile["baseline"]
        found["evidence"] = {name: profile["evidence"][name] for name in ("trials", "seconds", "warnings")}
    work.write(**found)


def claim(level: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return what one level claims, and by which changes."""
    own, settings = profile["baseline"]["settings"], level["settings"]
    changed = {name: value for name, value in settings.items() if value != own[name]}
    return {"changes": changed, "speedup": level["speedup"], "proven": level["proven"]}


def runs(work: Work) -> None:
    """Start the script plainly and under ``autotune run``, one after the other, and read the script's own clock."""
    assert work.subject is not None
    script = [str(work.subject.path), *work.subject.short]
    tuned = ["-m", "autotune", "run", "--profile", str(work.profile), *script]
    turns: list[dict[str, Any]] = []
    for _ in range(1 if work.rehearse else PAIRS):
        found = {}
        for name, line in (("plain", script), ("tuned", tuned)):
            ended, seconds = work.run([sys.executable, *line])
            steady = [float(each) for each in CLOCK.findall(ended.stdout)][1:]
            found[name] = {"code": ended.returncode, "whole": seconds, "steady": steady, "said": tail(ended.stderr, 4)}
        turns.append(found)
        sums = [{name: sum(found[name]["steady"]) for name in found} for found in turns]
        gains = [each["plain"] / each["tuned"] for each in sums if each["tuned"]]
        work.write(turns=turns, gains=gains)


KINDS: Mapping[str, Callable[[Work], None]] = {
    "facts": facts,
    "tests": tests,
    "tune": tune,
    "runs": runs,
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
