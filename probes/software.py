"""The PyTorch installation of this machine, and memory allocators that can be preloaded.

A child process imports torch and reads its facts; the result is cached. A preloaded library runs inside the user's
training: it is listed only if it lies in a system folder and nobody but root can change or replace it.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from autotune.probes.facts import Allocator, Backend, Gpu, Software
from autotune.probes.system import ROOT, Facts, System

_PREFIXES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_")
_ALSO_KEYED = (
    "ATEN_CPU_CAPABILITY",
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CXX",
    "TMPDIR",
    "CONDA_PREFIX",
    "VIRTUAL_ENV",
)
"""Other variables that change the child's result."""
MPI_SHM = 8 * 2**20
"""Bytes of shared memory for MPI: two processes take 2 MiB."""
NO_CCL = "oneccl_bindings_for_pytorch is not installed; its last release is for torch 2.8"
_LAUNCHERS = ("mpiexec", "mpirun")
_TWO_RANKS = (
    "import json; from mpi4py import MPI; world = MPI.COMM_WORLD; world.Barrier(); name, parts = MPI.get_vendor();"
    " world.rank or print(json.dumps(dict(size=world.size, vendor=name, version='.'.join(map(str, parts)))))"
)
_FOLDERS = (
    *(f"{top}/{arch}-linux-gnu" for arch in ("x86_64", "aarch64") for top in ("/usr/lib", "/lib")),
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
)
_STEMS = {"jemalloc": ("libjemalloc",), "tcmalloc": ("libtcmalloc", "libtcmalloc_minimal")}


class ProbeError(RuntimeError):
    """The child that reads PyTorch's facts printed no result."""


def probe(system: System, gpus: Sequence[Gpu] = ()) -> Software:
    """Read PyTorch's facts with the user's interpreter and environment; ``torch`` is None if it cannot be imported."""
    try:
        facts = system.remember("software", _key(system), lambda: _run_child(system))
    except ProbeError as error:
        facts = {"error": without_paths(str(error))}
    return Software(
        python=facts.get("python", "unknown"),
        platform=system.platform,
        torch=facts.get("torch"),
        cuda=facts.get("cuda"),
        compiler=facts.get("compiler"),
        compiler_reason=facts.get("compiler_reason") or (None if facts.get("compiler") else facts.get("error")),
        default_threads=facts.get("default_threads"),
        default_interop_threads=facts.get("default_interop_threads"),
        start_method=facts.get("start_method", "unknown"),
        backends=backends(facts, gpus),
        allocators=allocators(system),
        environment=environment(system.env.items()),
        vectors=facts.get("vectors"),
    )


def matrix_rates(system: System) -> dict[str, float]:
    """Return the rate of large matrix products by precision, in 1e9 floating-point operations per second, measured once
    per boot, mask and software; empty if that failed."""
    variables = {name: system.env.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND")}
    machine = [system.boot_id(), sorted(system.affinity() or ()), variables, system.env.get("LD_PRELOAD")]
    key = [1, system.package_version("torch"), system.python, *machine]
    try:
        found = system.remember("rates", key, lambda: _child(system, "rates"))
    except ProbeError:
        return {}
    return {name: rate for name, rate in found.items() if rate is not None}


def backends(facts: Facts, gpus: Sequence[Gpu]) -> tuple[Backend, ...]:
    """Judge gloo, nccl, mpi and ccl by the child's result: usable or not, and why."""
    if facts.get("torch") is None:
        reason = f"PyTorch cannot be imported: {facts.get('error', 'unknown error')}"
        return tuple(Backend(name, False, reason) for name in ("gloo", "nccl", "mpi", "ccl"))
    built: dict[str, bool] = facts.get("distributed", {})
    gloo, ccl, count = facts.get("gloo_error"), facts.get("ccl_error", NO_CCL), len(gpus)
    if not built.get("gloo", False):
        gloo = "this PyTorch was built without it"
    nccl = f"{count} CUDA devices" if count else "no CUDA device is visible"
    if not built.get("nccl", False):
        nccl, count = "this PyTorch was built without CUDA", 0
    return (
        Backend("gloo", not gloo, gloo or "a process group started"),
        Backend("nccl", count > 0, nccl),
        _mpi(built.get("mpi", False), facts),
        Backend("ccl", not ccl, ccl or "oneccl_bindings_for_pytorch loads"),
    )


def environment(variables: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the user's variables that change performance, but values with paths or blanks, which may name people."""
    plain = re.compile(r"[\w.,:;+=\[\]{}-]{0,200}")
    chosen = [(name, value) for name, value in variables if name.startswith(_PREFIXES) and plain.fullmatch(value)]
    return tuple(sorted(pair for pair in chosen if not re.search("TOKEN|SECRET|PASSWORD|KEY|ADDR|HOST", pair[0])))


def allocators(system: System) -> tuple[Allocator, ...]:
    """Return one library of each allocator that is installed."""
    found = ((name, _library(system, stems)) for name, stems in _STEMS.items())
    return tuple(Allocator(name, path) for name, path in found if path)


def only_root_can_change(system: System, path: str) -> bool:
    """Return True if only root can write the file and every folder above it; for a link also those of its target."""
    real = PurePosixPath(system.resolve(path))
    link = PurePosixPath(path)
    stats = [system.stat(str(each)) for each in dict.fromkeys((real, *real.parents, link, *link.parents))]
    return all(found is not None and found.st_uid == 0 and not found.st_mode & 0o022 for found in stats)


def _mpi(built: bool, facts: Facts) -> Backend:
    """Judge MPI. PyTorch's wheels hold none; on CPUs mpi4py carries the collectives instead."""
    how = "install both parts: pip install 'torch-autotune[mpi]'"
    if not facts.get("found", {}).get("mpi4py"):
        own = "PyTorch was built with MPI, but it is used through mpi4py, which" if built else "mpi4py"
        return Backend("mpi", False, f"{own} is not installed; {how}")
    if not facts.get("mpiexec"):
        return Backend("mpi", False, f"no mpiexec beside the interpreter or on the PATH; {how}")
    found = facts.get("mpi") or {}
    if not found:
        return Backend("mpi", False, f"mpi4py under mpiexec does not work: {facts.get('mpi_error', 'no answer')}")
    library = f"{found.get('vendor')} {found.get('version')}"
    if found.get("size") != 2:
        return Backend("mpi", False, f"mpiexec starts processes that do not find each other: mpi4py uses {library}")
    if found.get("vendor") != "MPICH":
        return Backend("mpi", False, f"mpi4py uses {library}; trials start ranks the way of MPICH only: {how}")
    return Backend("mpi", True, f"mpi4py with {library}")


def _key(system: System) -> list[object]:
    """Return everything that the child's result depends on."""
    variables = sorted(item for item in system.env.items() if item[0].startswith(_PREFIXES) or item[0] in _ALSO_KEYED)
    packages = [system.package_version(name) for name in ("torch", "mpi4py", "mpich", "oneccl_bind_pt")]
    affinity, room = sorted(system.affinity() or ()), _has_room_for_mpi(system)
    return [4, packages, system.python, system.boot_id(), affinity, variables, mpiexec(system), room]


def _run_child(system: System) -> Facts:
    """Run the child. ProbeError, which is not cached, if it prints no JSON object or cannot import PyTorch."""
    facts = _child(system)
    if facts.get("torch") is None:
        raise ProbeError(facts.get("error", "no answer"))
    found, launcher = facts.get("found", {}), mpiexec(system)
    facts["mpiexec"] = launcher is not None
    # Optional bindings are imported in separate processes: those built for another version may crash.
    if found.get("mpi4py") and launcher:
        facts |= _two_ranks(system, launcher)
    if found.get("oneccl_bindings_for_pytorch"):
        facts["ccl_error"] = _import_error(system, "import torch, oneccl_bindings_for_pytorch")
    return facts


def _child(system: System, *arguments: str) -> Facts:
    """Return the JSON object that the child prints; ProbeError if it prints none."""
    done = system.run([system.python, "-m", "autotune.probes.torch_facts", *arguments], timeout=120, cwd=ROOT)
    try:
        facts = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        facts = None
    if not isinstance(facts, dict):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ProbeError(f"python ended with {done.returncode}: {last}")
    return facts


def _two_ranks(system: System, launcher: str) -> Facts:
    """Start two MPI processes: the launcher and the library may come from different MPI implementations."""
    if not _has_room_for_mpi(system):
        return {"mpi_error": f"/dev/shm, which it exchanges through, has less than {MPI_SHM // 2**20} MiB left"}
    done = system.run([launcher, "-n", "2", system.python, "-c", _TWO_RANKS], timeout=60)
    try:
        return {"mpi": json.loads(done.stdout.splitlines()[-1])}
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return {"mpi_error": without_paths(last)}


def _has_room_for_mpi(system: System) -> bool:
    """Return False if /dev/shm is full: starting MPI kills its processes then, and they leave their file there."""
    space = system.space("/dev/shm")
    return space is None or space[1] >= MPI_SHM


def _import_error(system: System, code: str) -> str | None:
    done = system.run([system.python, "-c", code], timeout=60)
    if done.returncode == 0:
        return None
    return without_paths((done.stderr.strip().splitlines() or [f"the import ended with {done.returncode}"])[-1])


def without_paths(text: str) -> str:
    """Cut every absolute path down to its last part: reasons are shown and stored, and paths name users."""
    return re.sub(r"(?<![\w.])(?:/[^/\s:'\"]+)+/", "", text)


def mpiexec(system: System) -> str | None:
    """Return the path of MPI's launcher: beside the interpreter, where pip puts it, or on the PATH."""
    folder = posixpath.dirname(system.python)
    beside = [f"{folder}/{name}" for name in _LAUNCHERS if folder and system.stat(f"{folder}/{name}")]
    return next(filter(None, (*beside, *(system.which(name) for name in _LAUNCHERS))), None)


def _library(system: System, stems: Iterable[str]) -> str | None:
    """Return the path of the first library that is safe to preload; in a folder the last name comes first."""
    for stem in stems:
        for folder in _FOLDERS:
            near = (name for name in system.list(folder) if name.startswith(stem))  # a pattern takes ten times as long
            names = [name for name in near if re.fullmatch(rf"{stem}\.so(\.\d+)*", name)]
            safe = (f"{folder}/{n}" for n in reversed(names) if only_root_can_change(system, f"{folder}/{n}"))
            if path := next(safe, None):
                return path
    return None
