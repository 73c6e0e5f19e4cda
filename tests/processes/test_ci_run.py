"""`.ci/run` runs the README's test command, and the rest."""

import subprocess
from pathlib import Path

from tests.unit.test_readme import marked

ROOT = Path(__file__).resolve().parents[2]


def test_ci_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    printed = subprocess.run([script, "--print"], capture_output=True, text=True, check=True).stdout
    assert f"+ {marked('tests')}" in printed.splitlines()
    assert "pip install" not in script.read_text("utf-8")
    for tool in ("ruff format --check", "ruff check", "mypy --strict", "tests/slow", "tests.same_training"):
        assert tool in printed
