"""All that is to be learnt on a machine with a GPU and 16 cores, in under nine minutes, without a network.

    python -m benchmarks.gpu [--out FILE] [--only NAME...] [--rehearse]

Tunes two plain scripts, starts each plainly and tuned, reads the scripts' own clocks, and runs the tests that need a
GPU. Each part is a process with a time limit of its own: one that hangs does not cost the rest. The result file is
written after every part. ``--rehearse`` runs a small script on a double of a card (`tests.doubles.cuda`): that shows
whether the plan works, and its figures are of no machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.gpu.plan import TOTAL_SECONDS, Part, parts
from benchmarks.plain.side_by_side import tail
from tests.doubles import cuda

LEAST_SECONDS = 5.0
"""With less left, a part does not begin."""


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "gpu.json")
    parser.add_argument("--only", nargs="*", default=[], help="names of parts")
    parser.add_argument("--total", type=float, default=TOTAL_SECONDS, help="seconds for everything")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    chosen = [p for p in parts(rehearse=arguments.rehearse) if not arguments.only or p.name in arguments.only]
    with tempfile.TemporaryDirectory() as folder:
        run(chosen, Path(folder), arguments.out, arguments.total, rehearse=arguments.rehearse)


def run(chosen: Iterable[Part], folder: Path, out: Path, total: float, *, rehearse: bool) -> dict[str, Any]:
    """Run ``chosen`` one after the other within ``total`` seconds; returns what ``out`` holds in the end."""
    started = time.monotonic()
    if rehearse:
        os.environ |= cuda.variables(folder) | {"OMP_NUM_THREADS": "1"}
        print("rehearsed on a double of a card: the figures are of no machine", file=sys.stderr, flush=True)
    found: dict[str, Any] = {"format": "autotune.gpu/1", "rehearsal": rehearse, "parts": {}}
    for part in chosen:
        left = total - (time.monotonic() - started)
        print(f"[{total - left:.0f} s] {part.name}, up to {min(part.seconds, left):.0f} s", file=sys.stderr, flush=True)
        found["parts"][part.name] = _part(part, folder, left, rehearse)
        found["seconds"] = round(time.monotonic() - started, 1)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(f"written: {out}", file=sys.stderr)
    return found


def _part(part: Part, folder: Path, left: float, rehearse: bool) -> dict[str, Any]:
    if left < LEAST_SECONDS:
        return {"skipped": "no time left"}
    log = folder / f"{part.name}.log"
    with open(log, "w") as written:
        line = command(part, folder, rehearse)
        process = subprocess.Popen(line, stdout=written, stderr=written, start_new_session=True)
        ended = _ended(process, min(part.seconds, left))
    path = folder / f"{part.name}.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if ended != 0:
        found["ended"] = "at its time limit" if ended is None else f"exit code {ended}"
        found["log"] = tail(log.read_text("utf-8", "replace"), 8)
    return found


def command(part: Part, folder: Path, rehearse: bool) -> list[str]:
    """Return what starts ``part``; its findings land in ``folder``."""
    line = [sys.executable, "-m", "benchmarks.gpu.parts", part.kind, str(folder)]
    line += ["--subject", part.subject.name] if part.subject else []
    return line + (["--rehearse"] if rehearse else [])


def _ended(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Exit code, or None where it had to be ended; what it has started ends with it."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        for signum in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)


if __name__ == "__main__":
    main()
