"""Unmodified scripts: is what `autotune tune` claims what the run gains, and is `autotune run` ever slower?

    python -m benchmarks.unmodified [--only NAME ...] [--pairs 3] [--budget 60s] [--idle-thread] [--rehearse]

Each script of `benchmarks/scripts` is tuned from the shell; then two whole processes, as its user starts it and under
``autotune run``, run in turns of a second (`in_turns`). Ratios are plain over tuned, so above 1 is a gain: geometric
mean and Student's 95 % interval over the pairs. The script itself says when its steps begin and end. Their mean is
compared, since a median hides stalls of the loader; the first five steps do not count. Only the time of a process's own
turns counts. What ``run`` added at the start is the difference of the medians from the launch to the end of the fifth
step.

With ``--idle-thread`` each script starts a thread that does nothing, before it trains: settings then change inside a
running training, and claims of that are compared with whole runs.

A run that is known to be too short to gain starts as it is: its claim is then of a longer one.

Prints a table, and writes it with every process's times to ``benchmarks/results/unmodified.json`` after each script.
Takes about five minutes a script: quiet the machine first. ``--rehearse`` lets each process end after a few steps, to
see that everything works; nothing is written then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.profiles.file import read
from autotune.profiles.format import Profile
from benchmarks import stamp
from benchmarks.in_turns import AUTOTUNE, Finished, in_turns, plain_command
from benchmarks.ratios import Ratio, ratio_of

FOLDER = Path(__file__).parent / "scripts"
SLOWER = 1.03
"""A whole run that takes more than this many times as long as the plain one is slower."""
LUCK = 0.01
"""Two processes of the same settings differ by this much: intervals that are no further apart overlap."""
NEAR = 1.10
"""A forecast may be off by this factor."""
START_STEPS = 5
"""The first steps count as the start."""
PATIENCE_SECONDS = 900.0


@dataclass(frozen=True)
class Script:
    """One script.

    Attributes:
        name: of its file, without the suffix.
        short: arguments with which it ends soon; it then has its data files and bytecode.
        launch: what stands before the script on its user's command line, such as torchrun's words.
    """

    name: str
    short: tuple[str, ...]
    launch: tuple[str, ...] = ()

    @property
    def line(self) -> list[str]:
        """Return what follows ``autotune tune`` and ``autotune run``."""
        return [*self.launch, str(FOLDER / f"{self.name}.py")]

    @property
    def plain(self) -> list[str]:
        """Return the command without autotune."""
        return plain_command(self.line)


ONE_EPOCH, FEW_STEPS = ("--epochs", "1"), ("--steps", "10")
SCRIPTS = (
    Script("wgan_gp", FEW_STEPS),
    Script("cnn_digits", ONE_EPOCH),
    Script("char_gpt", FEW_STEPS),
    Script("ppo_cartpole", FEW_STEPS),
    Script("hf_trainer", FEW_STEPS),
    Script("lightning_mlp", FEW_STEPS),
    Script("accelerate_text", FEW_STEPS),
    Script("vae", ONE_EPOCH),
    Script("text_lstm", ONE_EPOCH),
    Script("recommender", FEW_STEPS),
    Script("jpeg_folder", ONE_EPOCH),
    Script("graph_gcn", ("--epochs", "10")),
    Script("unet", ONE_EPOCH),
    Script("ddp", ONE_EPOCH, ("torchrun", "--standalone", "--nproc-per-node=2")),
)


class Failed(Exception):
    """A process failed; the message is the end of what it wrote."""


@dataclass(frozen=True)
class Run:
    """One whole process, in seconds: its wall time, the script's own mean step, launch to fifth step."""

    wall: float
    mean: float
    start: float
    stderr: str = ""
    """What it wrote to stderr: `autotune run` says there what it has applied."""


@dataclass(frozen=True)
class Row:
    """What is known of one script.

    Attributes:
        name: of the script.
        seconds: from the shell to the answer.
        level: the recommended one; empty if there is no profile.
        claim: its speedup, as the profile states it.
        step: plain over tuned, mean steps by the script's own clock.
        run: plain over tuned, whole processes.
        added: seconds that ``autotune run`` added until the fifth step was over.
        forecast: of ``run``, by the profile; None if the length of the run was not known.
        profile: the whole profile.
        failure: why figures are missing.
    """

    name: str
    seconds: float = 0.0
    level: str = ""
    claim: Ratio | None = None
    step: Ratio | None = None
    run: Ratio | None = None
    added: float | None = None
    forecast: float | None = None
    profile: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""

    @property
    def overlap(self) -> bool | None:
        """Return whether the claim holds for the script's own steps; None without figures."""
        return overlapping(self.claim, self.step) if self.claim and self.step else None

    @property
    def foreseen(self) -> bool | None:
        """Return whether the forecast of the whole run is within 10 %; None without figures."""
        if self.run is None or self.forecast is None:
            return None
        return 1 / NEAR <= self.forecast / self.run.value <= NEAR

    @property
    def slower(self) -> bool | None:
        """Return whether the whole run took more than 3 % longer; None without figures."""
        return self.run.value < 1 / SLOWER if self.run else None


def overlapping(one: Ratio, other: Ratio) -> bool:
    """Return whether two intervals share a ratio, or are apart by no more than `LUCK`."""
    return max(one.low, other.low) <= min(one.high, other.high) * (1 + LUCK)


def compared(pairs: Sequence[tuple[Run, Run]]) -> tuple[Ratio, Ratio, float]:
    """Return the ratios of steps and of whole runs, and the seconds added at the start, from (plain, tuned) pairs."""
    steps = ratio_of([math.log(plain.mean / tuned.mean) for plain, tuned in pairs])
    runs = ratio_of([math.log(plain.wall / tuned.wall) for plain, tuned in pairs])
    starts = [statistics.median(run.start for run in runs) for runs in zip(*pairs, strict=True)]
    return steps, runs, starts[1] - starts[0]


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with one line a script, and what holds for all of them."""
    titles = ("script", "claim", "step", "whole run", "forecast", "overlap", "slower than 3 %", "start", "answer")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        forecast = "" if row.forecast is None else f"{row.forecast:.2f}x"
        cells = [row.name, _claim(row), row.step or "", row.run or "", forecast]
        cells += [_yes_no(row.overlap), _yes_no(row.slower)]
        added = "" if row.added is None else f"{row.added:+.1f} s"
        lines.append("| " + " | ".join(map(str, [*cells, added, f"{row.seconds:.0f} s"])) + " |")
    overlaps = [row.overlap for row in rows if row.overlap is not None]
    slower = [row.slower for row in rows if row.slower is not None]
    ends = f"{sum(overlaps)} of {len(overlaps)} claims overlap the script's own steps; {sum(slower)} of {len(slower)}"
    foreseen = [row.foreseen for row in rows if row.foreseen is not None]
    ends += f" runs are slower by more than 3 %; {sum(foreseen)} of {len(foreseen)} forecasts are within 10 %."
    return "\n".join([*lines, "", ends])


def _claim(row: Row) -> str:
    return f"`{row.level}` {row.claim}" if row.claim else row.failure


def _yes_no(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def run_of(done: Finished) -> Run:
    """Return what a process took: by its turns, and by the summary that its script printed last.

    Raises:
        Failed: it failed, or printed no summary.
    """
    if done.failure:
        raise Failed(done.failure)
    summary = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), None)
    if summary is None:
        raise Failed("the script printed no summary")
    steps = [(done.until(begin), done.until(end)) for begin, end in json.loads(summary)["steps"]]
    if len(steps) <= START_STEPS:
        raise Failed(f"the script made {len(steps)} steps; the first {START_STEPS} do not count")
    seconds = [end - begin for begin, end in steps[START_STEPS:]]
    start = steps[START_STEPS - 1][1]
    return Run(done.seconds, statistics.fmean(seconds), start, done.stderr)


def forecast(profile: Profile) -> float | None:
    """Return how many times as fast ``profile`` says the whole run is under ``autotune run``; None if it does not."""
    result, run = profile.level(), profile.evidence.run
    applied = result.settings != profile.baseline and profile.saves_time(profile.default_level)
    return run.speedup(result.speedup.value if applied else 1.0) if run is not None and run.steps else None


def tune(script: Script, budget: str | None, folder: Path) -> dict[str, Any]:
    """Tune ``script`` from the shell; return its profile with its path.

    Raises:
        Failed: there is no profile.
    """
    options = ["--json", "--profile", str(folder / "found.yaml"), *(["--budget", budget] if budget else [])]
    done = _started([*AUTOTUNE, "tune", *options, *script.line], folder)
    profile: dict[str, Any] = json.loads(done.stdout)
    return profile


def _started(line: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"not over after {PATIENCE_SECONDS:.0f} s") from error
    if failure := Finished(done.returncode, (), "", done.stderr).failure:
        raise Failed(failure)
    return done


def measure(script: Script, pairs: int, budget: str | None, *, rehearse: bool) -> tuple[Row, list[tuple[Run, Run]]]:
    """Tune one script and run it ``pairs`` times each way, in turns; for a few steps only to ``rehearse``."""
    row, runs, arguments = Row(script.name), [], script.short if rehearse else ()
    with tempfile.TemporaryDirectory(prefix="unmodified-") as place:
        folder = Path(place)
        try:
            _started([*script.plain, *script.short], folder)
            begun = time.perf_counter()
            profile = tune(script, budget, folder)
            seconds, found = time.perf_counter() - begun, read(Path(profile["path"]))
            level, speedup, expected = found.recommended, found.level().speedup, forecast(found)
            claim = Ratio(speedup.value, speedup.low, speedup.high)
            row = Row(script.name, seconds, level, claim, forecast=expected, profile=profile)
            tuned = [*AUTOTUNE, "run", "--profile", str(profile["path"]), *script.line, *arguments]
            for number in range(pairs):
                plain, ours = map(run_of, in_turns([[*script.plain, *arguments], tuned], folder))
                runs.append((plain, ours))
                print(f"  {script.name}: pair {number + 1} of {pairs}", file=sys.stderr, flush=True)
            step, run, added = compared(runs)
            return replace(row, step=step, run=run, added=added), runs
        except Failed as error:
            return replace(row, failure=str(error)), runs


def record(rows: Sequence[Row], runs: dict[str, list[tuple[Run, Run]]], options: dict[str, Any], name: str) -> Path:
    """Write all that is known so far."""
    found = [_data(row) | {"overlap": row.overlap, "slower": row.slower, "foreseen": row.foreseen} for row in rows]
    processes = {script: [[asdict(run) for run in pair] for pair in pairs] for script, pairs in runs.items()}
    return stamp.write(name, {"options": options, "rows": found, "plain_and_tuned": processes})


def _data(row: Row) -> dict[str, Any]:
    """Return ``row`` as plain data."""
    return {name: value.as_dict() if isinstance(value, Ratio) else value for name, value in vars(row).items()}


def main() -> None:
    """Measure the scripts one after the other."""
    names = [script.name for script in SCRIPTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--budget", help="of each tuning run, such as 60s; by default what the tuner gives itself")
    parser.add_argument("--idle-thread", action="store_true")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    if arguments.idle_thread:
        os.environ["IDLE_THREAD"] = "1"
    chosen = [script for script in SCRIPTS if script.name in arguments.only]
    name = "unmodified" if len(chosen) == len(SCRIPTS) else f"unmodified-{'-'.join(each.name for each in chosen)}"
    name += "-idle-thread" * arguments.idle_thread
    rows: list[Row] = []
    runs: dict[str, list[tuple[Run, Run]]] = {}
    for script in chosen:
        row, runs[script.name] = measure(script, arguments.pairs, arguments.budget, rehearse=arguments.rehearse)
        rows.append(row)
        print(f"{script.name}: {row.failure or row.claim}", file=sys.stderr, flush=True)
        if not arguments.rehearse:
            record(rows, runs, {"pairs": arguments.pairs, "budget": arguments.budget}, name)
    print(table(rows))


if __name__ == "__main__":
    main()
