"""An unmodified script written for torchrun is run with a profile of several processes as torchrun would run it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.profiles import file as profiles
from autotune.profiles.format import Profile
from tests.processes.scripts.corpus import STEPPED, TORCHRUN, added, changed

from .harness import autotune

DIGEST = "hashlib.sha256(b''.join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()"
LEAVE = "    os._exit(0)\n"
"""A gloo thread may abort a process whose interpreter ends, in 1 of 8 runs here (pytorch/pytorch#190489)."""
SCRIPT = changed(
    TORCHRUN,
    added("import sys\n", "import hashlib"),
    ("torch.randn(1024, 20)", "torch.randn(600, 20)"),
    ("batch_size=32", "batch_size=int(sys.argv[2])"),
    added("    step, epoch", "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)"),
    added(
        STEPPED,
        """
        schedule.step()
        if rank == 0:
            print("step", step, len(loader), len(inputs), repr(loss.item()))
        """,
    ),
    ("\nif __name__", f"    if rank == 0:\n        print('weights', {DIGEST}, flush=True)\n{LEAVE}\nif __name__"),
)
STEPS = 50
"""Over two epochs of 19 batches, with a ragged last one."""


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the script was tuned with a batch of 32."""
    folder = tmp_path_factory.mktemp("several")
    (folder / "train.py").write_text(SCRIPT)
    done = autotune(folder, "tune", "--budget", "60s", "--only", "malloc", "train.py", "10000000", "32")
    assert done.code == 0, done.err
    return folder


def profile_of(folder: Path) -> Profile:
    return profiles.read(next(folder.glob("profiles/*/train.yaml")))


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("step ", "weights "))]


@pytest.mark.parametrize("changes", [{}, {"num_workers": 1, "malloc": "keep"}], ids=["plain", "workers"])
def test_run_trains_as_torchrun_does_with_half_the_batch(tuned: Path, changes: dict[str, object]) -> None:
    found = profile_of(tuned)
    two = found.baseline.but(processes=2, threads=1, interop_threads=1, batch_size=16, **changes)
    levels = {name: replace(level, settings=two) for name, level in found.levels.items()}
    profiles.write(tuned / "two.yaml", replace(found, levels=levels))
    done = autotune(tuned, "run", "--profile", "two.yaml", "--level", found.default_level, "train.py", str(STEPS), "32")
    assert done.code == 0, done.err
    assert lines(done.out)[0].startswith("step 0 19 16 ")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    plain = subprocess.run(
        [*torchrun, "--nproc-per-node=2", "train.py", str(STEPS), "16"],
        cwd=tuned,
        capture_output=True,
        text=True,
        check=True,
    )
    assert lines(done.out) == lines(plain.stdout)
    assert len(lines(done.out)) == STEPS + 1
