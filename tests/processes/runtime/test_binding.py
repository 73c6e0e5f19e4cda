"""Masks for real, each in a process of its own; skipped, with the reason, where not permitted."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from autotune.knobs.binding import VARIABLE, AffinityPlan
from autotune.knobs.change import Affinity
from autotune.launch.command import system_tools
from autotune.runtime.session import Session
from tests.torch.records import quiet

ROOT = Path(__file__).resolve().parents[3]
CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

linux = pytest.mark.skipif(not CPUS, reason="needs CPU masks, which only Linux has")
several = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs: this process may use one")

SAY = """
import json, os, sys
print(json.dumps({"cpus": sorted(os.sched_getaffinity(0)), "arguments": sys.argv, "torch": "torch" in sys.modules,
                  "folder": sys.path[0], "name": __name__}))
"""
IN_TRAINING = """
import json, os
import torch
from torch.utils.data import DataLoader, Dataset
from autotune.knobs.settings import Settings
from autotune.runtime.session import Session

class Masks(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(sorted(os.sched_getaffinity(0)) + [-1] * 4)[:4]

def init(worker): os.environ["OWN"] = str(worker)

tuned = Session(Settings(interop_threads=torch.get_num_interop_threads(), num_workers=1, binding="cores"), device="cpu")
loader = tuned.prepare(DataLoader(Masks(), batch_size=2, num_workers=1, worker_init_fn=init))
workers = next(iter(loader))[0].tolist()
torch.ones(512, 512) @ torch.ones(512, 512)
tasks = {cpu for task in os.listdir("/proc/self/task") for cpu in os.sched_getaffinity(int(task))}
print(json.dumps({"workers": workers, "tasks": sorted(tasks), "not_applied": tuned.not_applied, "notes": tuned.notes}))
"""


def run(*command: str, cwd: Path, **variables: str) -> dict[str, Any]:
    """What a command prints, as JSON."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(command, env=own, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "err": done.stderr}


@linux
@several
@pytest.mark.parametrize("rank", [0, 1])
def test_a_script_that_knows_nothing_of_us_is_bound_and_otherwise_untouched(rank: int, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SAY)
    plan = AffinityPlan((*CPUS[:2],), (Affinity((CPUS[0],), (CPUS[1],)), Affinity((CPUS[1],), (CPUS[1],))))
    start = [sys.executable, "-m", "autotune.knobs.binding", sys.executable, "-u", str(script), "--lr", "a b"]
    found = run(*start, cwd=tmp_path, LOCAL_RANK=str(rank), **{VARIABLE: plan.text})
    assert found["cpus"] == [CPUS[rank]]
    assert found["arguments"] == [str(script), "--lr", "a b"]
    assert (found["torch"], found["folder"], found["name"]) == (False, str(tmp_path), "__main__")


@linux
def test_training_starts_even_where_its_cpus_are_gone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAY)
    start = [sys.executable, "-m", "autotune.knobs.binding", sys.executable, "train.py"]
    found = run(*start, cwd=tmp_path, **{VARIABLE: AffinityPlan((4000,), (Affinity((4000,), (4000,)),)).text})
    assert found["cpus"] == CPUS
    assert "autotune: binding not applied: " in found["err"]


@linux
@several
@pytest.mark.torch
@pytest.mark.parametrize("variables", [{}, {"OMP_PROC_BIND": "close"}], ids=["plain", "OMP_PROC_BIND"])
def test_threads_and_workers_are_where_the_plan_wants_them(variables: dict[str, str], tmp_path: Path) -> None:
    """Workers inherit one core from a library's own binding, and are moved to the planned ones."""
    (tmp_path / "train.py").write_text(IN_TRAINING)
    plan = AffinityPlan((*CPUS[:2],), (Affinity((CPUS[0],), (*CPUS[:2],)),))
    start = [sys.executable, "-m", "autotune.knobs.binding", sys.executable, "train.py"]
    own = {VARIABLE: plan.text, "OMP_NUM_THREADS": "1", **variables}
    found = run(*start, cwd=tmp_path, **own)
    assert [cpu for cpu in found["workers"] if cpu >= 0] == CPUS[:2]
    assert found["tasks"] == [CPUS[0]]
    assert [knob for knob, _ in found["not_applied"]] == []


@linux
def test_a_session_lists_what_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(quiet(binding="cores"), device="cpu") as session:
        assert [knob for knob, _ in session.not_applied] == ["binding"]
    monkeypatch.setenv(VARIABLE, AffinityPlan(tuple(CPUS), (Affinity(tuple(CPUS), tuple(CPUS)),)).text)
    with Session(quiet(binding="cores", num_workers=1, batch_size=2), device="cpu") as session:
        assert session.not_applied == ()
        loader = session.prepare(DataLoader(list(range(4)), batch_size=2))
        assert next(iter(loader)).tolist() == [0, 1]
        assert session.not_applied == ()
    with Session(quiet(), device="cpu") as session:  # the plan is somebody else's: nothing is asked here
        assert session.not_applied == ()


@linux
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_do_not_get_their_cpus_are_noticed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, AffinityPlan(tuple(CPUS), (Affinity(tuple(CPUS), (4000,)),)).text)
    with Session(quiet(binding="cores", num_workers=1, batch_size=2), device="cpu") as session:
        own = DataLoader(list(range(4)), batch_size=2, num_workers=1, multiprocessing_context=method)
        list(session.prepare(own))
        assert session.not_applied == (("binding", "loader workers did not get CPUs 4000"),)


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (util-linux)")
@several
@pytest.mark.parametrize("rank", [0, 1])
def test_the_printed_form_binds_by_local_rank(rank: int) -> None:
    plan = AffinityPlan((*CPUS[:2],), tuple(Affinity((cpu,), (cpu,)) for cpu in CPUS[:2]))
    line = [*system_tools(plan), "grep", "Cpus_allowed_list", "/proc/self/status"]
    done = subprocess.run(line, env={**os.environ, "LOCAL_RANK": str(rank)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Cpus_allowed_list:", str(CPUS[rank])]
