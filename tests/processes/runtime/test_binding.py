"""Masks for real, each in a process of its own; skipped, with the reason, where not permitted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from torch.utils.data import DataLoader

from autotune.knobs import binding
from autotune.knobs.affinity import VARIABLE, AffinityPlan, cpu_list
from autotune.knobs.knob import Affinity
from autotune.runtime.session import Session
from tests.slow.harness import cgroup, inside
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


IN_CPUSET = """
import json, os
from autotune.knobs.affinity import own_affinity
from autotune.knobs.binding import why_not
from autotune.probes import budget, cpu
from autotune.probes.system import System
found = budget.probe(System(), cpu.probe(System()))
print(json.dumps({"cpus": found.cpus, "refused": why_not("cores", own_affinity(os.environ))}))
"""


@linux
@several
@pytest.mark.root
def test_a_cpuset_that_shrinks_under_the_plan_is_noticed(tmp_path: Path) -> None:
    """The kernel narrows the mask without a word: only reading back tells."""
    last = str(CPUS[-1])
    try:
        group = cgroup("cpuset", cpuset__cpus=last, cpuset__mems="0")
    except OSError as error:
        pytest.skip(f"cannot make a cpuset: {error}")
    try:
        plan = AffinityPlan(tuple(CPUS), (Affinity(tuple(CPUS), tuple(CPUS)),))
        start = [*inside(group), sys.executable, "-m", "autotune.knobs.binding", sys.executable, "-c", IN_CPUSET]
        found = run(*start, cwd=tmp_path, **{VARIABLE: plan.text})
    finally:
        group.rmdir()
    assert found["cpus"] == [CPUS[-1]]
    assert found["refused"] == f"asked CPUs {cpu_list(CPUS)}, threads run on {last}"


@linux
def test_what_is_not_in_force_is_said() -> None:
    here = Affinity(tuple(CPUS), tuple(CPUS))
    elsewhere = Affinity((*CPUS, 4000), tuple(CPUS))
    assert binding.why_not("none", None) is None
    assert "only autotune run" in (binding.why_not("cores", None) or "")
    assert binding.why_not("cores", here) is None
    assert binding.why_not("cores", elsewhere) == (
        f"asked CPUs {cpu_list(elsewhere.cpus)}, threads run on {cpu_list(CPUS)}"
    )
    with mock.patch.dict(os.environ, OMP_PROC_BIND="true"):
        assert binding.why_not("cores", elsewhere) is None


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


def test_the_users_own_worker_init_runs_after_the_move() -> None:
    calls = mock.Mock()
    workers = binding.WorkerAffinity((4000,), calls.own)
    with mock.patch.object(os, "sched_setaffinity", calls.move, create=True):
        workers(3)
    assert calls.mock_calls == [mock.call.move(0, (4000,)), mock.call.own(3)]
    assert workers.why_not == "loader workers did not get CPUs 4000"
