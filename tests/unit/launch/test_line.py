"""Launch lines: what stands before the script is understood, or refused with a sentence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.launch.line import is_launcher, parse, script, target
from autotune.trial.target import Script, TaskFile

ACCELERATE = {"ACCELERATE_USE_CPU": "False", "ACCELERATE_MIXED_PRECISION": "no"}
ON_CPU = {"ACCELERATE_USE_CPU": "True", "ACCELERATE_MIXED_PRECISION": "bf16"}


def started(
    name: str,
    arguments: tuple[str, ...] = (),
    module: bool = False,
    launcher: str | None = None,
    processes: int = 1,
    threads: int | None = None,
    variables: Mapping[str, str] = {},
    **more: Any,
) -> Script:
    """The script of a line, as it was written."""
    own = {"launcher": launcher, "processes": processes, "threads": threads, "variables": variables}
    return Script(Path(name), arguments, name, name if module else None, **own, **more)


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("python train.py", started("train.py")),
        ("/usr/bin/python3.11 -u train.py --epochs 3", started("train.py", ("--epochs", "3"))),
        ("python -m package.module -m x", started("package.module", ("-m", "x"), True)),
        ("uv run train.py", started("train.py")),
        ("env A=b OMP_NUM_THREADS=1 uv run python -u train.py --lr=3", started("train.py", ("--lr=3",))),
        ("A=b torchrun train.py", started("train.py", launcher="torchrun")),
        ("torchrun train.py", started("train.py", launcher="torchrun")),
        (
            "torchrun --standalone --nproc-per-node=2 train.py --nnodes 3",
            started("train.py", ("--nnodes", "3"), False, "torchrun", 2, 1, options=("--standalone",)),
        ),
        (
            "torchrun --nnodes 2 --rdzv-endpoint=h:1 train.py",
            started(
                "train.py", launcher="torchrun", machines=2, options=tuple("--nnodes 2 --rdzv-endpoint h:1".split())
            ),
        ),
        (
            "torchrun --rdzv_backend c10d --max-restarts=1 -t 3 train.py --tee 3",
            started(
                "train.py",
                ("--tee", "3"),
                launcher="torchrun",
                options=tuple("--rdzv-backend c10d --max-restarts 1 -t 3".split()),
            ),
        ),
        (
            "python -m torch.distributed.run --nproc_per_node 4 -m package.train",
            started("package.train", (), True, "torchrun", 4, 1),
        ),
        ("mpiexec -n 2 python train.py -n 5", started("train.py", ("-n", "5"), False, "mpiexec", 2)),
        ("mpirun --oversubscribe -np 3 python -m p", started("p", (), True, "mpiexec", 3)),
        ("accelerate launch train.py", started("train.py", (), False, "accelerate", 1, 1, ACCELERATE)),
        (
            "accelerate launch --cpu --num_processes 2 --mixed_precision=bf16 train.py",
            started("train.py", (), False, "accelerate", 1, None, ON_CPU),
        ),
        (
            "accelerate launch --multi_gpu --num_processes 2 --num_cpu_threads_per_process 3 -m p.train",
            started("p.train", (), True, "accelerate", 2, 3, ACCELERATE),
        ),
    ],
)
def test_lines_that_users_write(line: str, found: Script) -> None:
    assert parse(line.split()) == found


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torchrun --nproc-per-nod=2 train.py", "does not know this option.*--nproc-per-node"),
        ("torchrun --no-python train.sh", "--no-python: autotune does not know this option"),
        ("torchrun --nproc-per-node=auto train.py", "--nproc-per-node auto: give a number"),
        ("torchrun --nproc-per-node=0 train.py", "give a number"),
        ("torchrun --nnodes=1:4 train.py", "--nnodes 1:4: give a number"),
        ("torchrun --standalone=1 train.py", "takes no value"),
        ("torchrun --standalone", "no script follows"),
        ("env A=b", "env A=b: starts no script"),
        ("env -i python train.py", "env ... -i: what prepares the environment comes before autotune"),
        ("uv run --with x python train.py", "uv ... --with: what prepares the environment comes before"),
        ("torchrun --nproc-per-node", "a value must follow"),
        ("accelerate config", "only accelerate launch"),
        ("accelerate launch --use_fsdp train.py", "does not know this option"),
        ("accelerate launch --num_machines 2 train.py", "one machine"),
        ("mpiexec -n 2 ./train", "give a line that starts Python"),
        ("mpiexec python train.py", "say how many processes"),
        ("mpiexec -x A=1 -n 2 python train.py", "does not know this option"),
        ("nohup python train.py", "put it in front of autotune"),
        ("python", "no script follows"),
        ("python -c pass", "does not know this option"),
        ("python -m torch.distributed.launch train.py", "former launcher"),
    ],
)
def test_others_are_refused_with_a_sentence(line: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(line.split())


WORDS = st.lists(st.text("abc-=.123", min_size=1, max_size=6), max_size=4)


@given(words=WORDS, name=st.sampled_from(("train.py", "python.py", "my/torchrun.py", "-m")))
def test_a_script_is_no_launcher(words: list[str], name: str) -> None:
    assert not is_launcher(name)
    assert parse([name, *words]) is None


@pytest.mark.parametrize(
    ("text", "processes", "precision"),
    [
        ("distributed_type: 'NO'\nmixed_precision: bf16\nnum_processes: 1\nuse_cpu: true\n", 1, "bf16"),
        ("distributed_type: MULTI_GPU\nnum_processes: 4\nuse_cpu: false\n", 4, "no"),
        ("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n", 0, ""),
        ("distributed_type: TPU\n", 0, ""),
    ],
)
def test_accelerates_configuration_counts_or_is_refused(text, processes, precision, tmp_path: Path) -> None:
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "default_config.yaml").write_text(text)
    if processes:
        found = parse(["accelerate", "launch", "train.py"])
        assert (found.processes, found.variables["ACCELERATE_MIXED_PRECISION"]) == (processes, precision)
    else:
        with pytest.raises(UsageError, match="does not know how to start"):
            parse(["accelerate", "launch", "--config_file", f"{tmp_path}/accelerate/default_config.yaml", "train.py"])


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('trains')\n")
    return "train.py"


def test_the_script_of_a_line(train: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "0")
    assert isinstance(target("accelerate", ("launch", "--cpu", train)), Script)
    words = ("torchrun", "--nproc-per-node=2", train, "-x")
    found = target(words[0], words[1:])
    assert isinstance(found, Script)
    assert found == script(words[0], words[1:])
    assert (found.written, found.arguments, found.line) == (train, ("-x",), words)
    assert (found.ranked, found.processes, found.threads) == (True, 2, 1)
    assert target("python", [train, "-x"]) == target(train, ["-x"])
    assert script("torchrun", ["--nnodes=2", train]).machines == 2
    assert script("env", ["OWN=1", "python", train]).variables == {"OWN": "1"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["torchrun", "--nnodes=2", "train.py"], "on one machine"),
        (["torchrun", "model.py"], r"model\.py is a task file"),
        (["python train.py"], "'python train.py' is one word, and no file"),
        (["train.py -x"], "'train.py -x' is one word, and no file"),
        (["/nonexistent/python", "train.py"], "what starts is autotune's own Python"),
    ],
)
@pytest.mark.usefixtures("train")
def test_a_line_that_is_not_tuned(line: list[str], words: str) -> None:
    Path("model.py").write_text("def build_model(): ...\ndef build_dataset(): ...\ndef compute_loss(m, b): ...\n")
    with pytest.raises(UsageError, match=words):
        target(line[0], line[1:])
    assert isinstance(target("python", ["model.py"]), TaskFile)
