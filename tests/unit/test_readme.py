"""The README's two marked commands do all the set-up, and its levels are the code's."""

import importlib.metadata
import itertools
import re
from pathlib import Path

import pytest

from autotune.knobs.level import LEVELS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
OPTIONS = ("-n", "2", "--dist", "loadfile")


def marked(name: str) -> str:
    """Return the command in the block after ``<!-- name -->``."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)\n```", README)
    assert found is not None, f"README.md has no block after <!-- {name} -->"
    return found[1]


@pytest.mark.parametrize(("name", "extras"), [("tune", "examples,mpi"), ("tests", "dev")])
def test_a_command_does_all_the_set_up(name: str, extras: str) -> None:
    steps = [step.split() for step in marked(name).split(" && ")]
    assert steps.pop(0) == ["python3", "-m", "venv", ".venv"]
    activated = steps[0] == [".", ".venv/bin/activate"]
    bin_folder = "" if activated else ".venv/bin/"
    install, *rest = steps[activated:]
    assert install[0] == f"{bin_folder}pip"
    assert install[-1] == f"'.[{extras}]'"
    assert install[install.index("-c") + 1] == "constraints.txt"
    assert {*extras.split(",")} <= {*importlib.metadata.metadata("torch-autotune").get_all("Provides-Extra", [])}
    for step in rest:
        assert step[0] == f"{bin_folder}python"
        assert [
            word for word in step[1:] if word not in ("-m", "pytest", *OPTIONS) and not (ROOT / word).exists()
        ] == []


def test_autotune_is_found_after_the_first_command() -> None:
    assert ". .venv/bin/activate" in marked("tune")
    assert README.index("git clone") < README.index("<!-- tune -->") < README.index("autotune tune")


def test_the_first_screen_has_the_levels_and_what_gpus_have_run() -> None:
    screen = README.split("## ")[0]
    table = [line for line in screen.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in table] == list(LEVELS)
    assert "One GPU has run this" in screen


def test_every_direct_dependency_is_constrained() -> None:
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    wanted = {re.split(r"[ \[<>=!;]", each)[0].lower() for each in stated} - {"torch-autotune"}
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line and line[0] != "#"]
    assert {line.split("==")[0].lower() for line in lines} == wanted
