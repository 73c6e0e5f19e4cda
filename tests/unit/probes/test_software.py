"""What PyTorch is, backends with reasons, environment; allocators that only root can change."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.probes import gpu, software, torch_facts
from autotune.probes.facts import Software
from autotune.probes.system import System
from tests.doubles.machines import TORCH_CHILD, TORCH_FACTS, Machine, host, mig_slice

MPI_CHILD = f"/usr/bin/mpiexec -n 2 python -c {software._TWO_RANKS}"
CCL_CHILD = "python -c import torch, oneccl_bindings_for_pytorch; print({})"
MPICH = '{"size": 2, "vendor": "MPICH", "version": "5.0.2"}'
OPEN_MPI = '{"size": 2, "vendor": "Open MPI", "version": "5.0.1"}'


def plain(**recording: Any) -> Machine:
    commands = {TORCH_CHILD: (0, json.dumps(TORCH_FACTS)), **recording.pop("commands", {})}
    return host([(0,), (1,)], cpuinfo="", commands=commands, **recording)


def backend(found: Software, name: str) -> tuple[bool, str]:
    return next((backend.usable, backend.reason) for backend in found.backends if backend.name == name)


def test_a_plain_machine_has_gloo_and_a_reason_for_each_other(tmp_path: Path) -> None:
    found = software.probe(plain().at(tmp_path))
    assert (found.python, found.torch, found.cuda, found.platform) == ("3.12.4", "2.7.1+cu126", "12.6", "linux")
    assert (found.default_threads, found.compiler, found.compiler_reason) == (4, "g++", None)
    assert [(each.name, each.usable) for each in found.backends] == [
        ("gloo", True),
        ("nccl", False),
        ("mpi", False),
        ("ccl", False),
    ]
    assert "no CUDA device" in backend(found, "nccl")[1]
    assert "not installed" in backend(found, "ccl")[1]


def test_nccl_needs_a_gpu(tmp_path: Path) -> None:
    machine = mig_slice()
    system = machine.at(tmp_path)
    assert backend(software.probe(system, gpu.probe(system, machine.nvml)), "nccl") == (True, "1 CUDA devices")


@pytest.mark.parametrize(
    ("installed", "program", "answer", "free", "usable", "words"),
    [
        (True, "mpiexec", MPICH, 2**30, True, "mpi4py with MPICH 5.0.2"),
        (True, "mpirun", MPICH, 2**30, True, "mpi4py with MPICH 5.0.2"),
        (True, "mpiexec", OPEN_MPI, 2**30, False, "pip install 'torch-autotune[mpi]'"),
        (True, "mpiexec", MPICH.replace("2,", "1,"), 2**30, False, "do not find each other"),
        (True, "mpiexec", "", 2**30, False, "does not work: mpiexec ended with 0"),
        (True, None, "", 2**30, False, "no mpiexec"),
        (False, "mpiexec", "", 2**30, False, "mpi4py is not installed"),
        (True, "mpiexec", MPICH, 2**16, False, "less than 8 MiB left"),  # it would kill its processes
    ],
)
def test_mpi(tmp_path: Path, installed, program, answer, free, usable, words) -> None:
    machine = plain(
        modules={"torch": 1.0} | ({"mpi4py": 1.0} if installed else {}),
        programs={program: "/usr/bin/mpiexec"} if program else {},
        commands={MPI_CHILD: (0, answer)},
        spaces={"/dev/shm": (2**30, free)},
    )
    found, reason = backend(software.probe(machine.at(tmp_path)), "mpi")
    assert found == usable
    assert words in reason


@pytest.mark.parametrize(
    ("answer", "expected"), [((0, "{}"), True), ((0, "a banner\n{}"), True), ((-11, ""), False), ((1, ""), False)]
)
def test_ccl_is_loaded_in_a_child_of_its_own(tmp_path: Path, answer: tuple[int, str], expected: bool) -> None:
    machine = plain(modules={"oneccl_bindings_for_pytorch": 1.0}, commands={CCL_CHILD: answer})
    assert backend(software.probe(machine.at(tmp_path)), "ccl")[0] == expected


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((0, json.dumps({"error": "ModuleNotFoundError: No module named 'torch'"})), "No module named"),
        ((-11, ""), "ended with -11"),
        ((1, "not json"), "ended with 1"),
    ],
)
def test_without_torch_the_reason_is_said(tmp_path: Path, answer: tuple[int, str], words: str) -> None:
    found = software.probe(plain(commands={TORCH_CHILD: answer}).at(tmp_path))
    assert (found.torch, {each.usable for each in found.backends}) == (None, {False})
    assert all(words in each.reason for each in found.backends)
    assert words in (found.compiler_reason or "")


def test_the_answer_is_remembered_until_something_changes(tmp_path: Path) -> None:
    gone = plain(commands={TORCH_CHILD: (1, "")})
    for machine, remembered in [
        (gone, False),  # a failure is not remembered
        (plain(), True),
        (gone, True),
        (gone.having(affinity=(0,)), False),
        (gone.having(env={"OMP_NUM_THREADS": "3"}), False),
        (gone.having(modules={"torch": 2.0}), False),
        (gone.having({"/proc/sys/kernel/random/boot_id": "other"}), False),
    ]:
        system = machine.at(tmp_path)
        system.cache = tmp_path
        assert (software.probe(system).torch == "2.7.1+cu126") == remembered


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


# Allocators -----------------------------------------------------------------------------------------------------------

LIB = "/usr/lib/x86_64-linux-gnu"
JEMALLOC = f"{LIB}/libjemalloc.so.2"


def libraries(*names: str, **recording: Any) -> Machine:
    return host([(0,), (1,)], cpuinfo="", **recording).having({f"{LIB}/{name}": "" for name in names})


def test_allocators_are_found_by_name(tmp_path: Path) -> None:
    names = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libjemalloc_pic.a", "libtcmalloc_debug.so.4")
    found = {a.name: a.library for a in software.allocators(libraries(*names).at(tmp_path))}
    assert found == {"jemalloc": JEMALLOC, "tcmalloc": f"{LIB}/libtcmalloc_minimal.so.4"}


WRITABLE = [(JEMALLOC, 0o666), (JEMALLOC, 0o664), (JEMALLOC, 0o646), (LIB, 0o777), ("/usr/lib", 0o777), ("/usr", 0o777)]


@pytest.mark.parametrize(
    ("path", "mode", "owner"),
    [*((*each, 0) for each in WRITABLE), *((path, 0o755, 1000) for path in (JEMALLOC, LIB, "/usr"))],
)
def test_what_others_can_write_or_own_is_left_out(tmp_path: Path, path: str, mode: int, owner: int) -> None:
    system = libraries("libjemalloc.so.2", owners={path: owner}).at(tmp_path)
    (tmp_path / "root" / path[1:]).chmod(mode)
    assert software.allocators(system) == ()


@pytest.mark.parametrize("target", ["/home/me/evil.so", "/home/me/missing.so"])
def test_a_link_to_a_users_library_is_left_out(tmp_path: Path, target: str) -> None:
    machine = libraries("libc.so.6", owners={"/home/me/evil.so": 1000}).having({"/home/me/evil.so": ""})
    system = machine.at(tmp_path)
    (tmp_path / "root" / JEMALLOC[1:]).symlink_to(tmp_path / "root" / target[1:])
    assert software.allocators(system) == ()


def test_a_system_file_is_trusted() -> None:
    shell = Path("/bin/sh")
    if any(part.stat().st_uid != 0 for part in (shell.resolve(), *shell.resolve().parents)):
        pytest.skip("system files do not belong to root here")
    assert software.only_root_can_change(System(), str(shell))
