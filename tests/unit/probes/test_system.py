"""The door to the operating system, and that it is the only one; facts that are computed once."""

from __future__ import annotations

import ast
import importlib.metadata
from pathlib import Path

import pytest

import autotune.probes
from autotune.probes.system import System
from tests.doubles.machines import laptop

FORBIDDEN_CALLS = {"open", "sched_getaffinity", "cpu_count", "read_text", "read_bytes", "listdir", "getenv", "Popen"}
FORBIDDEN_IMPORTS = {"os", "subprocess", "resource", "torch", "multiprocessing", "tempfile", "shutil"}
PACKAGE = Path(autotune.probes.__file__).parent
DOOR = {"system.py", "torch_facts.py"}
"""The second one is a program of its own, which a child process runs."""
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("*.py"))


def imports(tree: ast.AST) -> set[str]:
    """First names of every imported module, wherever the import stands."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("module", sorted(set(MODULES) - DOOR))
def test_only_the_door_touches_the_operating_system(module: str) -> None:
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {f.id if isinstance(f, ast.Name) else f.attr for f in functions if isinstance(f, ast.Name | ast.Attribute)}
    on_system = {"cpu_count"} if module in ("cpu.py", "inventory.py") else set()  # System.cpu_count
    assert not called & (FORBIDDEN_CALLS - on_system)
    assert not imports(tree) & FORBIDDEN_IMPORTS


def test_missing_things_read_as_nothing(tmp_path: Path) -> None:
    system = System()
    assert system.read(str(tmp_path / "no")) is None
    assert system.read(str(tmp_path)) is None
    assert system.list(str(tmp_path / "no")) == ()
    assert system.stat(str(tmp_path / "no")) is None
    assert system.space(str(tmp_path / "no")) is None
    assert system.rlimit("RLIMIT_NO_SUCH") is None
    assert system.package_version("no-such-package-anywhere") is None
    assert system.package_version("pytest") == importlib.metadata.version("pytest")
    assert system.read("a\0b") is None


def test_remember_computes_once_per_key(tmp_path: Path) -> None:
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    answers = iter([{"n": 1}, {"n": 2}])
    assert [system.remember("x", key, lambda: next(answers))["n"] for key in (["a"], ["a"], ["b"])] == [1, 1, 2]


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_damaged_cache_is_computed_again(tmp_path: Path, text: str) -> None:
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    system.remember("x", 1, lambda: {"n": 1})
    (entry,) = tmp_path.glob("x-*.json")
    entry.write_text(text, encoding="utf-8")
    assert system.remember("x", 1, lambda: {"n": 2}) == {"n": 2}


def test_old_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.probes.system.CACHE_ENTRIES", 3)
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    for key in range(6):
        system.remember("x", key, lambda: {"n": 1})
    assert len(list(tmp_path.glob("x-*.json"))) == 3


def test_the_cache_falls_back_to_a_private_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # a home that holds no folders
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    folder = System().cache_folder()
    assert folder.parent == tmp_path / "tmp"
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)  # somebody else's to fill: not trusted
    assert System().cache_folder() is None
