"""A process of the command line: streams that are closed, full, or read by nobody; what it imports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file
from tests.doubles.proven_profile import profile

FULL = "the output cannot be written (No space left on device)"
ROOT = Path(file.__file__).parents[2]
AUTOTUNE = (sys.executable, "-m", "autotune")
WATCHED = """
import os, sys
from autotune.report import live

live.LINE_SECONDS = 0.0
with live.live_view(60.0, 0.0) as observe:
    for stage in ("one", "two", "three"):
        observe(stage=stage)
print("the answer")
"""
PROBES = """
import contextlib, sys
import autotune.cli, autotune.knobs.space, autotune.profiles.registry
with contextlib.suppress(SystemExit):
    autotune.cli.main(["probe", "--json"])
sys.exit(str(sorted({"torch", "optuna", "numpy"} & set(sys.modules)) or ""))
"""


@pytest.mark.parametrize(
    ("line", "code", "out", "err"),
    [
        ("--version", 0, "torch-autotune ", ""),
        ("validate gone.yaml 2>&-", 2, "", ""),
        ("validate gone.yaml <&- >&- 2>&-", 2, "", ""),
        ("validate gone.yaml >&-", 2, "", "gone.yaml: no such file"),
        ("validate gone.yaml 2>/dev/full", 2, "", ""),
        ("run --dry-run p.py 2>/dev/full", 0, "p.py", ""),
        ("run p.py", 0, "", "starts as it is"),
        ("show p.yaml >/dev/full", 2, "", FULL),
        ("-h >/dev/full", 2, "", FULL),
        ("show gone.yaml --json >/dev/full", 2, "", "gone.yaml: no such file"),
        ("show p.yaml | true", 0, "", ""),
        ("profiles match x | true", 4, "", ""),
    ],
)
def test_a_stream_that_takes_nothing_ends_nothing(tmp_path: Path, line: str, code: int, out: str, err: str) -> None:
    """An answer that does not fit on the disk is an error. Words for a closed stream go nowhere."""
    file.write(tmp_path / "p.yaml", profile(Settings()))
    (tmp_path / "p.py").touch()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    command = ["bash", "-c", f'"$@" {line}; exit ${{PIPESTATUS[0]}}', "bash", *AUTOTUNE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code
    assert (out in done.stdout, err in done.stderr) == (True, True), done
    assert ("Traceback" in done.stderr, bool(err) or not done.stderr) == (False, True), done.stderr


def test_an_early_interrupt_is_an_object_too(tmp_path: Path) -> None:
    """Ctrl-C while the command line is imported."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([*AUTOTUNE, "show", "--json"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert json.loads(done.stdout)["error"] in done.stderr
    assert "Traceback" not in done.stderr


def test_help_breaks_no_word_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    help_text = subprocess.run([*AUTOTUNE, "tune", "-h"], capture_output=True, text=True, timeout=120).stdout
    assert max(map(len, help_text.splitlines())) <= 40
    assert ("--max-gpu-memory" in help_text, "…" in help_text) == (True, False)


@pytest.mark.parametrize("log", ["reader that went away", "full disk"])
def test_a_log_that_takes_no_more_lines_ends_nothing(log: str) -> None:
    """Before, a run under ``2>&1 | head -1`` ended at its second line, without a profile."""
    with open("/dev/full", "w") as full:
        stderr = full if log == "full disk" else subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", WATCHED], stdout=subprocess.PIPE, stderr=stderr, text=True)
        if process.stderr is not None:
            process.stderr.close()
        assert process.stdout.read() == "the answer\n"
        assert process.wait(60) == 0


@pytest.mark.torch
def test_probe_asks_torch_in_a_child_only() -> None:
    """B07: the parent of trials imports neither torch nor Optuna by chance."""
    done = subprocess.run([sys.executable, "-c", PROBES], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr.strip() == ""
    data = json.loads(done.stdout)
    assert data["key"]
    assert data["software"]["torch"]
