"""What the benchmarks start as processes of their own: neighbours, the parts of the GPU command, its rehearsal."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.neighbour import ROOT


def test_a_rehearsal_on_a_double_writes_what_a_gpu_would(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    line = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(out)]
    subprocess.run([*line, "--only", "facts", "tune gpt", "runs gpt"], cwd=ROOT, check=True, timeout=400)
    found = json.loads(out.read_text())["parts"]
    assert list(found) == ["facts", "tune gpt", "runs gpt"]
    assert found["facts"]["machine"]
    tuned = found["tune gpt"]
    if tuned["code"] == 0:
        assert set(tuned["levels"]) == {"safe", "amp", "max"}
    else:  # beside a busy machine or another tuning run
        assert (tuned["code"], "levels" in tuned) == (4, False)
        assert "budget" in tuned["tail"][-1] or "Another tuning run" in tuned["tail"][-1]
        return
    turn = found["runs gpt"]["turns"][0]
    assert [turn[name]["code"] for name in ("plain", "tuned")] == [0, 0]
    assert len(turn["plain"]["steady"]) == len(turn["tuned"]["steady"]) == 3
