"""What is printed works: shells run it, launchers start it, trainers are built from it. No network is used."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.export import text
from autotune.knobs.knob import Plan
from tests.doubles.plans import ONE, TWO

SHOW = """
import os
import torch
from accelerate import Accelerator

accelerator = Accelerator()
state = accelerator.state
with open(f"rank{state.process_index}", "w") as file:
    print(state.num_processes, state.mixed_precision, state.device.type, torch.get_num_threads(), file=file)
accelerator.end_training()
"""
PLAIN = """
import os

with open(f"rank{os.environ['RANK']}", "w") as file:
    print(os.environ["WORLD_SIZE"], os.environ["OMP_NUM_THREADS"], os.environ["MALLOC_TOP_PAD_"], file=file)
"""


def printed(target: str, plan: Plan) -> str:
    return text(target, plan, ["a profile"])


def run(command: list[str], folder: Path) -> str:
    """Standard output of ``command`` in ``folder``, with this Python's programs first."""
    bins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": bins, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def started_here(line: str) -> str:
    """``line`` with this Python's torchrun, which need not be installed as a program."""
    return line.replace("torchrun ", f"{sys.executable} -m torch.distributed.run ")


def needs(module: str) -> Any:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"needs {module}: pip install -e '.[frameworks]'")


def test_variables_are_exported(tmp_path: Path) -> None:
    shown = run(["sh", "-euc", f"{printed('env', TWO)}\nenv"], tmp_path).splitlines()
    assert {"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "MALLOC_TOP_PAD_=67108864"} <= set(shown)


def test_libraries_that_are_preloaded_stay(tmp_path: Path) -> None:
    plan = Plan(ONE.settings, environment={"LD_PRELOAD": "/usr/lib/lib my.so"})
    for before, after in (("", "/usr/lib/lib my.so"), ("/own.so", "/own.so:/usr/lib/lib my.so")):
        lines = f"LD_PRELOAD={before}\n{printed('env', plan)}\nunset GCONV_PATH; echo $LD_PRELOAD"
        assert run(["bash", "-euc", lines], tmp_path).strip() == after


@pytest.mark.torch
def test_torchrun_starts_the_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    run(["sh", "-euc", started_here(printed("torchrun", TWO))], tmp_path)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2 1 67108864\n"] * 2


@pytest.mark.torch
@needs("accelerate")
def test_accelerate_takes_part_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHOW)
    run(["sh", "-euc", started_here(printed("accelerate", TWO))], tmp_path)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["2 bf16 cpu 1\n"] * 2


@pytest.mark.torch
@needs("accelerate")
def test_accelerate_takes_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHOW)
    (tmp_path / "accelerate.yaml").write_text(found := printed("accelerate", ONE))
    start = next(line.lstrip("# ") for line in found.splitlines() if "accelerate launch" in line)
    start = start.replace("accelerate launch", f"{sys.executable} -m accelerate.commands.launch")
    run(["sh", "-euc", start], tmp_path)
    assert (tmp_path / "rank0").read_text() == "1 no cpu 2\n"


@pytest.mark.torch
@needs("lightning")
def test_lightning_builds_its_trainer(tmp_path: Path) -> None:
    show = """
from torch.utils.data import DataLoader
loader = DataLoader([1], **loader_arguments)
print(trainer.num_devices, trainer.precision, torch.get_num_threads(), loader.batch_size, loader.prefetch_factor)
"""
    shown = run([sys.executable, "-c", f"{printed('lightning', TWO)}\n{show}"], tmp_path).splitlines()[-1]
    assert shown == "2 bf16-mixed 1 32 4"


@pytest.mark.torch
@needs("transformers")
@needs("accelerate")
def test_transformers_builds_its_arguments(tmp_path: Path) -> None:
    show = """
with open(f"rank{arguments.process_index}", "w") as file:
    print(arguments.world_size, arguments.train_batch_size, arguments.bf16, file=file)
    print(arguments.dataloader_prefetch_factor, arguments.device.type, torch.get_num_threads(), file=file)
"""
    (tmp_path / "train.py").write_text(printed("transformers", TWO) + show)
    run(["sh", "-euc", started_here(TWO.command)], tmp_path)
    for rank in (0, 1):
        assert (tmp_path / f"rank{rank}").read_text() == "2 32 True\n4 cpu 1\n"
