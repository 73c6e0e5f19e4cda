"""The PyTorch installation of this machine, and memory allocators that can be preloaded.

A child process imports torch and reads its facts; the result is cached. A preloaded library runs inside the user's
training: it is listed only if it lies in a system folder and only root can change or replace it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import posixpath
import re
import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from autotune.probes.facts import Allocator, Backend, Gpu, Software
from autotune.probes.system import Facts, System

_PREFIXES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_")
_ALSO_KEYED = frozenset(
    "ATEN_CPU_CAPABILITY PATH PYTHONPATH LD_LIBRARY_PATH LD_PRELOAD CXX TMPDIR CONDA_PREFIX VIRTUAL_ENV".split()
)
"""Other variables that change the child's result."""
MPI_SHM = 8 * 2**20
"""Bytes of shared memory for MPI: two processes take 2 MiB."""
_LAUNCHERS = ("mpiexec", "mpirun")
_TWO_RANKS = (
    "import json; from mpi4py import MPI; world = MPI.COMM_WORLD; world.Barrier(); name, parts = MPI.get_vendor();"
    " world.rank or print(json.dumps(dict(size=world.size, vendor=name, version='.'.join(map(str, parts)))))"
)
_CCL = "oneccl_bindings_for_pytorch"
_FOLDERS = (
    *(f"{top}/{arch}-linux-gnu" for arch in ("x86_64", "aarch64") for top in ("/usr/lib", "/lib")),
    *("/usr/lib64", "/usr/lib", "/lib64", "/lib", "/usr/local/lib64", "/usr/local/lib"),
)
_STEMS = {"jemalloc": ("libjemalloc",), "tcmalloc": ("libtcmalloc", "libtcmalloc_minimal")}


class ProbeError(RuntimeError):
    """A child process printed no facts."""


def probe(system: System, gpus: Sequence[Gpu] = (), *, quick: bool = False) -> Software:
    """Read PyTorch's facts with the user's interpreter and environment; ``torch`` is None if it cannot be imported.

    With ``quick``, no process imports it if its version and device can be known without: backends are not looked at.
    """
    try:
        facts = (quick and _version(system, gpus)) or system.remember("software", _key(system), lambda: _facts(system))
    except ProbeError as error:
        none = dict.fromkeys(("gloo", "nccl", "mpi", "ccl"), (False, str(error)))
        facts = {"software": {"python": "unknown", "compiler_reason": str(error)}, "backends": none}
    return Software(
        platform=system.platform,
        backends=tuple(_backend(gpus, name, *verdict) for name, verdict in facts["backends"].items()),
        allocators=allocators(system),
        environment=environment(system.env.items()),
        **facts["software"],
    )


def _backend(gpus: Sequence[Gpu], name: str, usable: bool, reason: str) -> Backend:
    """Return what the child found; NCCL also needs a device."""
    if name == "nccl" and usable:
        return Backend(name, bool(gpus), f"{len(gpus)} CUDA devices" if gpus else "no CUDA device is visible")
    return Backend(name, usable, reason)


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


def _key(system: System) -> list[object]:
    """Return everything that the child's result depends on."""
    variables = sorted(item for item in system.env.items() if item[0].startswith(_PREFIXES) or item[0] in _ALSO_KEYED)
    modules = [system.installed(name) for name in ("torch", "mpi4py", _CCL)]
    launcher = mpiexec(system)
    program = system.stat(launcher) if launcher else None
    mpi = [launcher, program and program.st_mtime, _has_room_for_mpi(system)]
    return [6, modules, system.python, system.boot_id(), sorted(system.affinity()), variables, mpi]


def _facts(system: System) -> Facts:
    """Return what the child prints, and whether MPI and oneCCL work. ProbeError if it cannot import PyTorch.

    Optional bindings are imported in separate processes: those built for another version may crash.
    """
    facts = _answer(system, [system.python, "-m", "autotune.probes.torch_facts"], timeout=120)
    if "error" in facts:
        raise ProbeError(without_paths(facts["error"]))
    facts["backends"] |= {"mpi": _mpi(system), "ccl": _ccl(system)}
    return facts


def _version(system: System, gpus: Sequence[Gpu]) -> Facts | None:
    """Return what PyTorch's own file of versions says; None if it may train on an accelerator that only it knows."""
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec is not None and spec.origin else None
    if system.platform != "linux" or file is None or not file.is_file():
        return None
    found = runpy.run_path(str(file))
    if not gpus and (found.get("hip") or found.get("xpu") or importlib.metadata.entry_points(group="torch.backends")):
        return None
    torch = {"torch": found["__version__"], "cuda": found["cuda"]}
    return {"software": {"python": platform.python_version(), **torch}, "backends": {}}


def _answer(system: System, command: Sequence[str], timeout: float) -> Facts:
    """Return the JSON object that a command prints last; ProbeError, which is not cached, if it prints none."""
    done = system.run(command, timeout)
    try:
        facts = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        facts = None
    if not isinstance(facts, dict):
        said = [line for line in done.stderr.splitlines() if any(map(str.isalpha, line))]  # not a frame around it
        last = (said or ["no output"])[-1].strip()
        name = posixpath.basename(command[0])
        raise ProbeError(without_paths(f"{name} ended with {done.returncode}: {last}"))
    return facts


def _mpi(system: System) -> tuple[bool, str]:
    """Check MPI. PyTorch's wheels hold none; on CPUs mpi4py carries the collectives instead.

    Two processes are started: the launcher and the library may come from different MPI implementations.
    """
    launcher, how = mpiexec(system), "install both parts: pip install 'torch-autotune[mpi]'"
    if not system.installed("mpi4py"):
        return False, f"mpi4py is not installed; {how}"
    if launcher is None:
        return False, f"no mpiexec beside the interpreter or on the PATH; {how}"
    if not _has_room_for_mpi(system):
        return False, f"/dev/shm, which MPI uses, has less than {MPI_SHM // 2**20} MiB left"
    try:
        found = _answer(system, [launcher, "-n", "2", system.python, "-c", _TWO_RANKS], timeout=60)
    except ProbeError as error:
        return False, f"mpi4py under mpiexec does not work: {error}"
    library = f"{found['vendor']} {found['version']}"
    if found["size"] != 2:
        return False, f"mpiexec starts processes that do not find each other: mpi4py uses {library}"
    if found["vendor"] != "MPICH":
        return False, f"mpi4py uses {library}; trials start ranks the way of MPICH only: {how}"
    return True, f"mpi4py with {library}"


def _ccl(system: System) -> tuple[bool, str]:
    """Check oneCCL by importing it."""
    if not system.installed(_CCL):
        return False, f"{_CCL} is not installed; its last release is for torch 2.8"
    try:
        _answer(system, [system.python, "-c", f"import torch, {_CCL}; print({{}})"], timeout=60)
    except ProbeError as error:
        return False, str(error)
    return True, f"{_CCL} loads"


def _has_room_for_mpi(system: System) -> bool:
    """Return False if /dev/shm is full: starting MPI kills its processes then, and they leave their file there."""
    space = system.space("/dev/shm")
    return space is None or space[1] >= MPI_SHM


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
