"""The one command for a machine with a GPU: limits of its parts, its result file, and a rehearsal on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.parts import tail
from benchmarks.gpu.plan import SUBJECTS, TOTAL_SECONDS, Part, parts
from benchmarks.rivals import autotune_pytorch, loadtune_search

ROOT = Path(__file__).resolve().parents[2]
HANGS = """
import pathlib, signal, sys
pathlib.Path(sys.argv[1]).write_text('{"known": 1}')
signal.pause()
"""


def test_all_parts_fit_into_nine_minutes() -> None:
    assert sum(part.seconds for part in parts(rehearse=False)) <= 1.1 * TOTAL_SECONDS
    assert TOTAL_SECONDS < 540


def test_each_subject_is_tuned_before_its_claims_are_measured_again() -> None:
    names = [part.name for part in parts(rehearse=False)]
    assert names[:2] == ["facts", "tests"]
    for subject in SUBJECTS:
        places = [names.index(f"{kind} {subject.name}") for kind in ("tune", "rival", "recheck")]
        assert places == sorted(places)


def test_a_part_that_hangs_or_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {
        "hangs": ["-c", HANGS, str(tmp_path / "hangs.json")],
        "fails": ["-c", "raise SystemExit('no such device')"],
        "works": ["-c", f"import pathlib; pathlib.Path({str(tmp_path / 'works.json')!r}).write_text('{{}}')"],
    }
    monkeypatch.setattr(gpu, "command", lambda part, *_: [sys.executable, *lines[part.kind]])
    out = tmp_path / "out.json"
    chosen = [Part("hangs", 1.0), Part("fails", 60.0), Part("works", 60.0)]
    found = gpu.run(chosen, tmp_path, out, 600.0, rehearse=True)
    assert json.loads(out.read_text()) == found
    assert found["parts"]["hangs"]["ended"] == "at its time limit"
    assert found["parts"]["fails"] == {"ended": "exit code 1", "log": ["no such device"]}
    assert found["parts"]["works"] == {}


def test_nothing_begins_once_the_time_is_over(tmp_path: Path) -> None:
    found = gpu.run([Part("facts", 60.0)], tmp_path, tmp_path / "out.json", 1.0, rehearse=True)
    assert found["parts"] == {"facts": {"skipped": "no time left"}}


@pytest.mark.torch
def test_a_rehearsal_on_the_cpu_writes_what_a_gpu_would(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    line = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(out)]
    subprocess.run([*line, "--only", "facts", "tune cnn", "recheck cnn"], cwd=ROOT, check=True, timeout=400)
    found = json.loads(out.read_text())["parts"]
    assert list(found) == ["facts", "tune cnn", "recheck cnn"]
    assert found["facts"]["machine"]
    assert "code" in found["tune cnn"]
    assert found["recheck cnn"].get("gains", {}).get("baseline") or found["recheck cnn"]["ended"]


def test_result_files_name_no_folders() -> None:
    assert tail("first\n/home/me/work/model.py: no\n", 1) == ["model.py: no"]


def test_what_rivals_recommend_becomes_settings() -> None:
    class Config:
        precision, compile, channels_last, fused_opt = "amp_bf16", "reduce-overhead", True, True

    assert autotune_pytorch.changes(Config) == {
        "precision": "bf16",
        "compile": "reduce-overhead",
        "channels_last": True,
        "optimizer_impl": "fused",
        "cudnn_benchmark": True,
    }
    knobs = {"num_workers": 2, "persistent_workers": True, "pin_memory": True, "amp": True, "num_threads": 1}
    assert loadtune_search.changes(knobs, "cuda") == {
        "num_workers": 2,
        "prefetch_factor": 2,
        "persistent_workers": True,
        "pin_memory": True,
        "precision": "fp16",
        "threads": 1,
    }
