"""The door to the operating system, and that it is the only one; facts that are computed once."""

import ast
import os
import pwd
import resource
from pathlib import Path

import pytest

import autotune.probes
from autotune.probes.system import System
from tests.doubles.machines import laptop

FORBIDDEN_CALLS = {"open", "sched_getaffinity", "cpu_count", "read_text", "read_bytes", "listdir", "getenv", "Popen"}
FORBIDDEN_IMPORTS = {"os", "subprocess", "resource", "torch", "multiprocessing", "tempfile", "shutil", "socket"}
PACKAGE = Path(autotune.probes.__file__).parent
DOOR = {"system.py", "network.py", "torch_facts.py"}
"""The last one is a program of its own, which a child process runs."""
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("*.py"))


@pytest.mark.parametrize("module", sorted(set(MODULES) - DOOR))
def test_only_the_door_touches_the_operating_system(module: str) -> None:
    nodes = list(ast.walk(ast.parse((PACKAGE / module).read_text(encoding="utf-8"))))
    functions = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {f.id if isinstance(f, ast.Name) else f.attr for f in functions if isinstance(f, ast.Name | ast.Attribute)}
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not called & FORBIDDEN_CALLS
    assert not {name.split(".")[0] for name in imported} & FORBIDDEN_IMPORTS


def test_missing_things_read_as_nothing(tmp_path: Path) -> None:
    system, nothing = System(), str(tmp_path / "no")
    assert [system.read(nothing), system.read(str(tmp_path)), system.read("a\0b")] == [None] * 3
    assert (system.list(nothing), system.stat(nothing), system.space(nothing)) == ((), None, None)
    assert system.installed("no_such_module_anywhere") is None
    assert system.installed("pytest") == Path(pytest.__file__).stat().st_mtime


@pytest.mark.parametrize(
    ("uid", "soft", "expected"), [(1000, 100, 100), (0, 100, None), (1000, resource.RLIM_INFINITY, None)]
)
def test_rlimit_nproc_does_not_bind_root(monkeypatch: pytest.MonkeyPatch, uid, soft, expected) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, soft))
    assert System().process_limit() == expected


def test_remember_computes_once_per_key(tmp_path: Path) -> None:
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    answers = iter([{"n": 1}, {"n": 2}])
    assert [system.remember("x", key, lambda: next(answers))["n"] for key in (["a"], ["a"], ["b"])] == [1, 1, 2]


def test_what_the_deadline_cut_short_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    late = System(deadline=0.0)
    assert late.remember("x", 1, lambda: {"code": late.run(["cat", "/dev/zero"], 9).returncode}) == {"code": 124}
    assert System().remember("x", 1, lambda: {"code": 0}) == {"code": 0}


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


@pytest.mark.parametrize("home", ["no home", "a path without a home", "a home that holds no folders"])
def test_the_cache_falls_back_to_a_private_temporary_folder(tmp_path, monkeypatch, home) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home == "no home":
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    elif home == "a path without a home":
        monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/torch-autotune"))
    else:
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    folder = System().cache_folder()
    assert folder.parent == tmp_path / "tmp"
    assert folder.stat().st_mode & 0o077 == 0
    assert not (tmp_path / "~").exists()
    folder.chmod(0o777)  # somebody else's to fill: not trusted
    assert System().cache_folder() is None


def test_a_bound_process_goes_by_the_cpus_of_the_whole_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {3}, raising=False)
    assert System().affinity() == {3}
    assert System(allowed=(2, 3)).affinity() == {2, 3}
