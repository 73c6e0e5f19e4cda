"""A real notebook in a real kernel: its cells are tuned, `load` finds the profile, errors show the cell's text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install -e '.[frameworks]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install -e '.[frameworks]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install -e '.[frameworks]'")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

CELLS = (
    "import torch, autotune\nWIDTH = 64\ndata = torch.randn(512, 32)",
    """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, WIDTH)

    def forward(self, inputs):
        return self.layer(inputs)
""",
    "def loss(model, batch):\n    return model(batch[0]).square().mean()",
    """
task = dict(build_model=Net, build_dataset=lambda: torch.utils.data.TensorDataset(data), current={"batch_size": 64})
profile = autotune.tune(**task, compute_loss=loss, name="cells", budget=60.0, only=("threads",))
print(autotune.load(target="cells").origin)
""",
    """
def wrong(model, batch):
    raise ValueError("a mistake of mine")


autotune.tune(**task, compute_loss=wrong, name="wrong", budget=60.0)
""",
)


def run(folder: Path) -> list[str]:
    """What each cell shows."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class Here(AsyncKernelManager):
        """A kernel of this Python, where none is installed too."""

        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])

    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(notebook, timeout=240, allow_errors=True, kernel_manager_class=Here)
    client.execute(cwd=str(folder))
    return ["".join(map(_shown, cell.outputs)) for cell in notebook.cells]


def _shown(output: Any) -> str:
    return str(output.get("text", "")) + "\n".join(output.get("traceback", []))


def test_a_notebook_is_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    shown = run(tmp_path)
    [profile] = tmp_path.glob("profiles/*/cells.yaml")
    assert f"found: {profile.relative_to(tmp_path)}" in shown[3]
    assert 'in wrong\n    raise ValueError("a mistake of mine")' in shown[4]
    assert list((tmp_path / "TMPDIR").glob("autotune-*")) == []
