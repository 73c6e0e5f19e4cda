"""Frameworks are kept still by what the tables say."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotune.scripts import adapters
from autotune.scripts.adapters import CHANGES, AfterImport


@pytest.fixture(autouse=True)
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Imports are as before afterwards."""
    before, finders = dict(sys.modules), list(sys.meta_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - set(before):
        del sys.modules[name]
    sys.modules.update(before)


def change(module: Any) -> None:
    module.changed = module.value + 1


def test_a_module_is_changed_once_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "later_one").mkdir()
    (tmp_path / "later_one" / "__init__.py").write_text("value = 1\n")
    (tmp_path / "later_one" / "part.py").write_text("import later_one\nseen = later_one.changed\n")
    finders = list(sys.meta_path)
    AfterImport({"later_one": change}).install()
    assert importlib.util.find_spec("later_one") is not None, "to look it up is not to import it"
    assert importlib.util.find_spec("another_one") is None
    assert "later_one" not in sys.modules
    assert importlib.import_module("later_one.part").seen == 2
    module = sys.modules["later_one"]
    assert (module.changed, "exec_module" in vars(module.__loader__), sys.meta_path) == (2, False, finders)
    module.changed = 0
    assert importlib.reload(module).changed == 0, "it is changed once"


def test_a_module_that_is_there_already_is_changed_at_once() -> None:
    module: Any = ModuleType("already_there")
    module.value = 1
    sys.modules["already_there"] = module
    AfterImport({"already_there": change}).install()
    assert module.changed == 2


class Watcher:
    """Another tool's finder: it asks all finders anew, as wrapt does, and wraps what they find."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "watched":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        original = spec.loader.exec_module
        spec.loader.exec_module = lambda module: original(module)
        return spec


def test_a_module_that_another_tool_watches_too_is_changed_once(tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text("value = 1\n")
    changes: list[Any] = []
    sys.meta_path.insert(0, Watcher())
    AfterImport({"watched": changes.append}).install()
    assert changes == [importlib.import_module("watched")]


def test_a_module_that_is_missing_stays_missing() -> None:
    AfterImport({"not_installed_at_all": change}).install()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("not_installed_at_all")


@pytest.mark.parametrize(("text", "hidden"), [("import lightning", True), ("from mpi4py import MPI", False)])
def test_mpi_is_hidden_unless_the_script_names_it(text: str, hidden: bool) -> None:
    sys.modules.pop("mpi4py", None)
    adapters.silence(text)
    assert ("mpi4py" in sys.modules) == hidden


def test_trackers_are_off_and_libraries_offline(tmp_path: Path) -> None:
    found = adapters.variables(tmp_path, network=False)
    assert (found["WANDB_MODE"], found["HF_HUB_OFFLINE"]) == ("disabled", "1")
    assert found["WANDB_DIR"] == str(tmp_path / "wandb_dir")
    assert found["MLFLOW_TRACKING_URI"] == (tmp_path / "mlflow").as_uri()
    assert "HF_HUB_OFFLINE" not in adapters.variables(tmp_path, network=True)


def test_tensorboards_writer_is_silent() -> None:
    module: Any = ModuleType("tensorboardX.event_file_writer")
    CHANGES["tensorboardX.event_file_writer"](module)
    writer = module.EventFileWriter("runs", 10, flush_secs=1)
    writer.add_event(object())
    writer.flush()
    writer.close()
    assert writer.get_logdir() == "runs"


def test_a_framework_that_starts_processes_itself_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning", "accelerate"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert adapters.several_processes() == ""
    monkeypatch.setitem(sys.modules, "accelerate", ModuleType("accelerate"))
    assert "ACCELERATE_USE_CPU" in adapters.several_processes()
