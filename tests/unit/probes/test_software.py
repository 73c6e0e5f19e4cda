"""What PyTorch is, backends with reasons, environment; allocators that only root can change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.probes import gpu, software, torch_facts
from autotune.probes.facts import Software
from autotune.probes.system import System
from tests.doubles.machines import TORCH_CHILD, TORCH_FACTS, Machine, host, mig_slice

MPI_CHILD = f"/usr/bin/mpiexec -n 2 python -c {software._TWO_RANKS}"
MPI4PY = {"found": {"mpi4py": True}}
CCL_CHILD = "python -c import torch, oneccl_bindings_for_pytorch"


def plain(facts: dict[str, Any] | None = None, **recording: Any) -> Machine:
    commands = {TORCH_CHILD: (0, json.dumps(TORCH_FACTS | (facts or {}))), **recording.pop("commands", {})}
    return host([(0,), (1,)], cpuinfo="", commands=commands, **recording)


def usable(found: Software) -> dict[str, bool]:
    return {backend.name: backend.usable for backend in found.backends}


def reason(found: Software, name: str) -> str:
    return next(backend.reason for backend in found.backends if backend.name == name)


def test_facts_of_the_child(tmp_path: Path) -> None:
    found = software.probe(plain().at(tmp_path))
    assert (found.python, found.torch, found.cuda) == ("3.12.4", "2.7.1+cu126", "12.6")
    assert (found.default_threads, found.vectors, found.compiler, found.compiler_reason) == (4, "AVX2", "g++", None)


def test_a_plain_machine_has_gloo_and_a_reason_for_each_other(tmp_path: Path) -> None:
    found = software.probe(plain().at(tmp_path))
    assert usable(found) == {"gloo": True, "nccl": False, "mpi": False, "ccl": False}
    assert "no CUDA device" in reason(found, "nccl")
    assert "mpi4py is not installed" in reason(found, "mpi")
    assert "not installed" in reason(found, "ccl")


def test_nccl_needs_a_gpu(tmp_path: Path) -> None:
    machine = mig_slice()
    system = machine.at(tmp_path)
    assert usable(software.probe(system, gpu.probe(system, machine.nvml)))["nccl"]


@pytest.mark.parametrize(
    ("facts", "program", "says", "expected", "words"),
    [
        (MPI4PY, "mpiexec", '{"size": 2, "vendor": "MPICH", "version": "5.0.2"}', True, "mpi4py with MPICH 5.0.2"),
        (MPI4PY, "mpirun", '{"size": 2, "vendor": "MPICH", "version": "5.0.2"}', True, "mpi4py with MPICH 5.0.2"),
        (
            MPI4PY,
            "mpiexec",
            '{"size": 2, "vendor": "Open MPI", "version": "5.0.1"}',
            False,
            "pip install 'torch-autotune[mpi]'",
        ),
        (MPI4PY, "mpiexec", '{"size": 1, "vendor": "MPICH", "version": "5.0.2"}', False, "do not find each other"),
        (MPI4PY, "mpiexec", None, False, "does not work"),
        (MPI4PY, None, None, False, "no mpiexec"),
        ({"distributed": {"mpi": True}}, "mpiexec", None, False, "built with MPI, but"),
        ({}, "mpiexec", None, False, "mpi4py is not installed"),
    ],
)
def test_mpi(tmp_path: Path, facts: Any, program: str | None, says: str | None, expected: bool, words: str) -> None:
    programs = {program: "/usr/bin/mpiexec"} if program else {}
    commands = {MPI_CHILD: (0, says)} if says else {}
    found = software.probe(plain(facts, programs=programs, commands=commands).at(tmp_path))
    assert usable(found)["mpi"] == expected
    assert words in reason(found, "mpi")


@pytest.mark.parametrize(("free", "expected"), [(2**16, False), (2**30, True)], ids=["full", "free"])
def test_mpi_is_not_started_where_shared_memory_is_full(tmp_path: Path, free: int, expected: bool) -> None:
    """It kills its processes there, and they leave a file behind."""
    commands = {MPI_CHILD: (0, '{"size": 2, "vendor": "MPICH", "version": "5.0.2"}')}
    programs, spaces = {"mpiexec": "/usr/bin/mpiexec"}, {"/dev/shm": (2**30, free)}
    found = software.probe(plain(MPI4PY, programs=programs, commands=commands, spaces=spaces).at(tmp_path))
    assert usable(found)["mpi"] == expected
    assert ("less than 8 MiB left" in reason(found, "mpi")) == (not expected)


@pytest.mark.parametrize(("returncode", "expected"), [(0, True), (-11, False)])
def test_ccl_is_loaded_in_a_child_of_its_own(tmp_path: Path, returncode: int, expected: bool) -> None:
    facts = {"found": {"oneccl_bindings_for_pytorch": True}}
    found = software.probe(plain(facts, commands={CCL_CHILD: (returncode, "")}).at(tmp_path))
    assert usable(found)["ccl"] == expected


def test_gloo_that_does_not_start_says_why(tmp_path: Path) -> None:
    found = software.probe(plain({"gloo_error": "RuntimeError: no interface lo"}).at(tmp_path))
    assert not usable(found)["gloo"]
    assert reason(found, "gloo") == "RuntimeError: no interface lo"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((0, json.dumps({"torch": None, "error": "ModuleNotFoundError: No module named 'torch'"})), "No module named"),
        ((-11, ""), "ended with -11"),
        ((0, "[]"), "ended with 0"),
        ((1, "not json"), "ended with 1"),
    ],
)
def test_without_torch_every_backend_says_so(tmp_path: Path, answer: tuple[int, str], words: str) -> None:
    found = software.probe(plain(commands={TORCH_CHILD: answer}).at(tmp_path))
    assert found.torch is None
    assert not any(usable(found).values())
    assert words in reason(found, "gloo")
    assert words in (found.compiler_reason or "")


def test_the_answer_is_remembered_until_something_changes(tmp_path: Path) -> None:
    system = plain().at(tmp_path)
    system.cache = tmp_path
    first = software.probe(system)
    gone = plain(commands={TORCH_CHILD: (1, "")})
    for machine, remembered in [
        (gone, True),
        (gone.having(affinity=(0,)), False),
        (gone.having(env={"OMP_NUM_THREADS": "3"}), False),
        (gone.having(packages={"torch": "9.9"}), False),
        (gone.having({"/proc/sys/kernel/random/boot_id": "other"}), False),
    ]:
        system = machine.at(tmp_path)
        system.cache = tmp_path
        assert (software.probe(system) == first) == remembered


def test_a_missing_torch_is_not_remembered(tmp_path: Path) -> None:
    for commands, torch in [({TORCH_CHILD: (1, "")}, None), ({}, "2.7.1+cu126")]:
        system = plain(commands=commands).at(tmp_path)
        system.cache = tmp_path
        assert software.probe(system).torch == torch


def test_environment_keeps_what_matters_and_no_paths() -> None:
    kept = {"OMP_NUM_THREADS": "4", "KMP_AFFINITY": "granularity=fine,compact", "PYTORCH_ALLOC_CONF": "a:True,b:[1:2]"}
    dropped = {
        "TORCH_HOME": "/home/someone/x",
        "OMP_WEIRD": "a b\n",
        "TORCH_API_TOKEN": "abc",
        "HOME": "x",
        "MKL_HOST": "node7",
    }
    assert dict(software.environment({**kept, **dropped}.items())) == kept


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ImportError: /home/me/env/lib/libmpi.so: undefined symbol", "ImportError: libmpi.so: undefined symbol"),
        ("File '/root/x y.py', line 3", "File 'x y.py', line 3"),
        ("ratio 3/4", "ratio 3/4"),
    ],
)
def test_reasons_lose_their_paths(text: str, expected: str) -> None:
    assert software.without_paths(text) == expected


def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler-here")
    assert torch_facts.compiler() == (None, "no-such-compiler-here is not installed")


LIB = "/usr/lib/x86_64-linux-gnu"


def libraries(*names: str, **recording: Any) -> Machine:
    return host([(0,), (1,)], cpuinfo="", **recording).having({f"{LIB}/{name}": "" for name in names})


def test_allocators_are_found_by_name(tmp_path: Path) -> None:
    names = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libjemalloc_pic.a", "libtcmalloc_debug.so.4")
    found = {a.name: a.library for a in software.allocators(libraries(*names).at(tmp_path))}
    assert found == {"jemalloc": f"{LIB}/libjemalloc.so.2", "tcmalloc": f"{LIB}/libtcmalloc_minimal.so.4"}


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_library_that_others_can_write_is_left_out(tmp_path: Path, mode: int) -> None:
    system = libraries("libjemalloc.so.2").at(tmp_path)
    (tmp_path / "root" / LIB[1:] / "libjemalloc.so.2").chmod(mode)
    assert software.allocators(system) == ()


@pytest.mark.parametrize("folder", [LIB, "/usr/lib", "/usr"])
def test_a_library_below_a_folder_that_others_can_write_is_left_out(tmp_path: Path, folder: str) -> None:
    system = libraries("libjemalloc.so.2").at(tmp_path)
    (tmp_path / "root" / folder[1:]).chmod(0o777)
    assert software.allocators(system) == ()


@pytest.mark.parametrize("path", [f"{LIB}/libjemalloc.so.2", LIB, "/usr"])
def test_a_library_that_root_does_not_own_is_left_out(tmp_path: Path, path: str) -> None:
    assert software.allocators(libraries("libjemalloc.so.2", owners={path: 1000}).at(tmp_path)) == ()


def test_a_link_to_a_users_library_is_left_out(tmp_path: Path) -> None:
    system = libraries("libc.so.6", owners={"/home/me/evil.so": 1000}).having({"/home/me/evil.so": ""}).at(tmp_path)
    (tmp_path / "root" / LIB[1:] / "libjemalloc.so.2").symlink_to(tmp_path / "root/home/me/evil.so")
    assert software.allocators(system) == ()


def test_a_link_to_nothing_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "dangling.so").symlink_to(tmp_path / "missing.so")
    assert not software.only_root_can_change(System(), str(tmp_path / "dangling.so"))


def test_a_system_file_is_trusted() -> None:
    shell = Path("/bin/sh")
    if any(part.stat().st_uid != 0 for part in (shell.resolve(), *shell.resolve().parents)):
        pytest.skip("system files do not belong to root here")
    assert software.only_root_can_change(System(), str(shell))


RATES_CHILD = f"{TORCH_CHILD} rates"


@pytest.mark.parametrize("answer", [(1, ""), (0, ""), (0, "[]"), (-9, "x")])
def test_rates_are_remembered_and_failures_are_not(tmp_path: Path, answer: tuple[int, str]) -> None:
    expected: list[dict[str, float]] = [{}, {"fp32": 5.0}, {"fp32": 5.0}]
    answers = [answer, (0, '{"fp32": 5.0, "bf16": null}'), (0, '{"fp32": 7.0}')]
    for one, rates in zip(answers, expected, strict=True):
        system = plain(commands={RATES_CHILD: one}).at(tmp_path)
        system.cache = tmp_path
        assert software.matrix_rates(system) == rates
