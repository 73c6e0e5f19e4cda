"""A trial runs as the user's own training will: same session, niceness, CPUs, limits and the like.

Read by a plain child of the shell, by the ranks of a trial and by what `autotune run` starts, all from one session
whose circumstances nobody has by chance.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from autotune.trial.process_tree import TRIAL_OOM_SCORE
from tests.slow import circumstances, harness
from tests.unit.records import profile

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
FILE = Path(circumstances.__file__)
UNUSUAL = (sys.executable, str(FILE), "unusual")
ONE = Settings(threads=1, batch_size=8)
TWO = Settings(threads=1, processes=2, batch_size=4, backend="gloo")
SEVERAL = [TWO, pytest.param(TWO.but(backend="mpi"), marks=pytest.mark.mpi)]
IMPORT = f"import sys; sys.path.insert(0, {str(FILE.parent)!r}); import circumstances\n"

TASK = IMPORT + harness.MLP.replace(
    "    inputs, targets = batch", "    circumstances.write()\n    inputs, targets = batch"
)
TRIAL = """
import json, sys
from pathlib import Path
from autotune.knobs.settings import Settings
from autotune.tuning.runner import open_runner
from autotune.probes.inventory import probe
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise

settings = Settings(**json.loads(sys.argv[1]))
with open_runner(recognise(Path("model.py")), probe(), 0, 60.0) as runner:
    outcome = TrialBench(runner, settings).measure(settings, 0.0, float("inf"))
assert outcome.measured, outcome
"""
SCRIPT = IMPORT + "import autotune\ntuned = autotune.load()\ncircumstances.write()\ntuned.close()\n"


def seen_by(folder: Path, cpus: int, *command: str) -> list[dict[str, object]]:
    """Circumstances of the training processes that ``command`` starts, by rank."""
    folder.mkdir()
    own = {"TMPDIR": str(harness.temporary_folder()), circumstances.FOLDER: str(folder)}
    line = [*UNUSUAL, str(cpus), *command]
    done = subprocess.run(line, cwd=folder.parent, env=os.environ | own, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(file.read_text()) for file in sorted(folder.iterdir())]


def plain_child(folder: Path, settings: Settings) -> dict[str, object]:
    return seen_by(folder / "plain", settings.processes, sys.executable, str(FILE))[0]


def trial(folder: Path, settings: Settings) -> list[dict[str, object]]:
    (folder / "model.py").write_text(TASK)
    line = (sys.executable, "-c", TRIAL, json.dumps(settings.as_dict()))
    return seen_by(folder / "trial", settings.processes, *line)


def run(folder: Path, settings: Settings) -> list[dict[str, object]]:
    saved = profiles.write(folder / "tuned.yaml", profile(settings))
    (folder / "train.py").write_text(SCRIPT)
    return seen_by(folder / "run", settings.processes, *harness.command("run", "--profile", str(saved), "train.py"))


def as_a_trial(found: dict[str, object]) -> dict[str, object]:
    """With the one difference that is meant: where memory runs out, the kernel shall take the trial, not the tuner."""
    return found | {"oom_score_adj": TRIAL_OOM_SCORE}


def test_one_process_runs_as_a_plain_child_of_the_shell(tmp_path: Path) -> None:
    plain = plain_child(tmp_path, ONE)
    assert plain["session"] == os.getsid(0)
    assert plain["niceness"] == os.getpriority(os.PRIO_PROCESS, 0) + 3
    assert run(tmp_path, ONE) == [plain]
    assert trial(tmp_path, ONE) == [as_a_trial(plain)]


@pytest.mark.parametrize("settings", SEVERAL)
def test_several_processes_run_as_torchrun_and_mpiexec_start_them(tmp_path: Path, settings: Settings) -> None:
    """Both give every process a session of its own."""
    plain = plain_child(tmp_path, settings) | {"session": "own", "autogroup": "own"}
    assert run(tmp_path, settings) == [plain] * 2
    assert trial(tmp_path, settings) == [as_a_trial(plain)] * 2
