"""The package that people install: a wheel built from the source archive, in an environment that has nothing else."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def output_of(folder: Path, *line: str | Path) -> str:
    done = subprocess.run([str(word) for word in line], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a new environment."""
    folder = tmp_path_factory.mktemp("installed")
    output_of(folder, sys.executable, "-m", "build", "--outdir", folder, ROOT)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    output_of(folder, programs / "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    return programs


def test_the_machine_is_probed(installed: Path, tmp_path: Path) -> None:
    assert json.loads(output_of(tmp_path, installed / "autotune", "probe", "--json"))["key"]


def test_a_script_trains_and_a_task_file_is_written(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import autotune\nprint('trained with', autotune.load().level)\n")
    assert output_of(tmp_path, installed / "autotune", "run", "train.py") == "trained with None\n"
    output_of(tmp_path, installed / "autotune", "init", "model.py")
    assert "def build_model" in (tmp_path / "model.py").read_text()


def test_its_types_are_seen(installed: Path, tmp_path: Path) -> None:
    found = output_of(tmp_path, installed / "python", "-c", "import autotune; print(autotune.__file__)")
    assert (Path(found.strip()).parent / "py.typed").exists()
