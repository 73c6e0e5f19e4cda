"""A script started through the entry sees and shows what ``python script.py`` shows; real processes."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.environment import SCRIPT_VARIABLE
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.launch.command import ENTRY
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.scripts.apply import Order
from tests.processes.scripts.entry.endings import ORDERLY, UNDER_MPI

ROOT = Path(__file__).resolve().parents[4]
PROBE = Path(__file__).with_name("probe_script.py")
SHOW = "import sys, os\nprint(__file__, __doc__, __spec__, sys.argv, sys.path, os.getenv('PYTHONPATH'), sys.flags)\n"


@dataclass(frozen=True)
class Ended:
    """How a process ended. The order of the two streams counts where they are one."""

    code: int
    out: str
    err: str


def python(
    *words: str | Path, entry: str | None = None, folder: Path | None = None, mpi: bool = False, **env: str
) -> Ended:
    """Run ``python FLAGS script ARGS``, or the same through the entry for backend ``entry``; ``mpi``: under mpiexec."""
    line = [str(word) for word in words]
    flags = next(place for place, word in enumerate(line) if word == "-m" or not word.startswith("-"))
    line[flags:flags] = ["-m", ENTRY, entry] if entry else []
    start = [mpiexec(System()) or "mpiexec", "-launcher", "fork", "-n", "1"] if mpi else []
    done = subprocess.run(
        [*start, sys.executable, *line],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if mpi else subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    out, err = (re.sub("0x[0-9a-f]{4,}|PID [0-9]+", "", text or "") for text in (done.stdout, done.stderr))
    return Ended(done.returncode, out, err)


def seen(ended: Ended) -> dict[str, object]:
    """The probe's answer, one row for each thing."""
    assert ended.code == 0, ended
    groups: dict[str, dict[str, object]] = json.loads(ended.out)
    return {f"{group}: {name}": value for group, rows in groups.items() for name, value in rows.items()}


def compare(ours: Mapping[str, object], plain: Mapping[str, object], but: tuple[str, ...] = ()) -> None:
    assert list(ours) == list(plain)
    differing = {name: (ours[name], plain[name]) for name in plain if ours[name] != plain[name]}
    assert sorted(differing) == sorted(but), differing


def test_a_script_sees_what_plain_python_shows() -> None:
    words = (PROBE, "workers", "a b", "--lr=1")
    compare(seen(python(*words, entry="gloo")), seen(python(*words)), ("stack: files",))


@pytest.mark.mpi
@pytest.mark.torch
def test_under_mpi_a_script_sees_the_same_but_for_what_mpi_brings() -> None:
    """Lines must come at once; mpi4py finds its library by a finder; our frames stand below."""
    words = (PROBE, "torch", "workers")
    ours, plain = seen(python(*words, entry="mpi", mpi=True)), seen(python(*words, mpi=True))
    compare(ours, plain, ("buffering: stdout", "interpreter: finders", "stack: files"))


def test_a_module_sees_what_plain_python_shows(tmp_path: Path) -> None:
    written(tmp_path / "package" / "__init__.py", "")
    written(tmp_path / "package" / "train.py", PROBE.read_bytes())
    words = ("-m", "package.train", "a b")
    ours, plain = seen(python(*words, entry="gloo", folder=tmp_path)), seen(python(*words, folder=tmp_path))
    compare(ours, plain, ("stack: files",))


@pytest.mark.parametrize("name", ORDERLY)
def test_a_script_ends_like_under_plain_python(tmp_path: Path, name: str) -> None:
    script = written(tmp_path / "script.py", ORDERLY[name])
    assert python(script, entry="gloo") == python(script)


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("name", UNDER_MPI)
def test_under_mpi_a_script_ends_the_same(tmp_path: Path, name: str) -> None:
    """A failure ends the job at once: what plain Python does after the script is left out then."""
    script = written(tmp_path / "script.py", ORDERLY[name])
    ours, plain = python(script, entry="mpi", mpi=True), python(script, mpi=True)
    assert (ours.code, ours.err) == (plain.code, plain.err)
    assert ours.out == plain.out


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "script", ["s.py", "./s.py", "a b/é.py", "a b/../s.py", "link.py", "folder", "./folder/", "s.zip"]
)
def test_any_way_to_name_a_script(tmp_path: Path, script: str) -> None:
    written(tmp_path / "s.py", SHOW)
    written(tmp_path / "a b" / "é.py", SHOW)
    (tmp_path / "link.py").symlink_to("a b/é.py")
    written(tmp_path / "folder" / "__main__.py", SHOW + "sys.exit(4)\n")
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW + "sys.exit(3)\n")
    ours = python(script, "x", entry="gloo", folder=tmp_path)
    assert ours == python(script, "x", folder=tmp_path)


@pytest.mark.parametrize("flags", ["-O -W error -X utf8", "-OO -u -s", "-X dev -B", "-b -v"])
def test_flags_of_the_interpreter_reach_the_script(tmp_path: Path, flags: str) -> None:
    script = written(tmp_path / "script.py", f"{SHOW}print(sys._xoptions, sys.warnoptions, __debug__, sys.orig_argv)\n")
    safe = ["-P"] * (sys.version_info >= (3, 11) and "dev" in flags)
    words = (*flags.replace("-W ", "-W").replace("-X ", "-X").replace(" -v", "").split(), *safe, script)
    assert python(*words, entry="gloo") == python(*words)


VARIABLES = {
    "PYTHONPATH": f"{ROOT}{os.pathsep}relative{os.pathsep}",
    "PYTHONOPTIMIZE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONWARNINGS": "error::UserWarning,ignore",
}


@pytest.mark.parametrize("variables", [VARIABLES, {"PYTHONSAFEPATH": "1"}], ids=["many", "safe path"])
def test_variables_of_the_interpreter_reach_the_script(tmp_path: Path, variables: dict[str, str]) -> None:
    script = written(tmp_path / "script.py", f"{SHOW}print(sys.warnoptions, __debug__, sorted(os.environ))\n")
    found = python(script, entry="gloo", folder=tmp_path, **variables)
    assert found == python(script, folder=tmp_path, **variables)


# What is prepared, and when ------------------------------------------------------------------------------------------


def test_a_script_may_ask_for_load_before_it_imports_torch(tmp_path: Path) -> None:
    script = written(tmp_path / "script.py", "import autotune\nprint(autotune.load.__name__)\n")
    order = Order(Settings(malloc="keep"), Settings(), Fingerprint(), device="cpu")
    assert python(script, entry="gloo", **{SCRIPT_VARIABLE: order.as_text()}).out == "load\n"


@pytest.mark.torch
def test_a_backend_is_in_place_as_soon_as_torch_is_there(tmp_path: Path) -> None:
    """A stand-in for oneCCL's module: what it registers is started, whatever the script names."""
    module = (
        "import torch.distributed as dist\n"
        "def create(*_):\n"
        "    raise SystemExit('ccl was started')\n"
        "dist.Backend.register_backend('ccl', create, devices=['cpu'])\n"
    )
    written(tmp_path / "oneccl_bindings_for_pytorch.py", module)
    text = (
        "from torch.distributed import init_process_group\n"
        "init_process_group('gloo', init_method='tcp://127.0.0.1:0', rank=0, world_size=1)\n"
    )
    done = python(written(tmp_path / "script.py", text), entry="ccl", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.code, done.out.splitlines()[-1]) == (1, "ccl was started"), done
