"""Every test runs in a home of its own and leaves no variable and no thread behind."""

import functools
import importlib.util
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

OWN_TO_PYTEST = ("PYTEST_CURRENT_TEST", "COLUMNS")
LIBRARIES = ("TORCH", "_TORCHINDUCTOR", "KMP_", "KINETO_", "TRITON_", "PYTORCH_NVML", "CUDA_MODULE_LOADING", "TF2_")
"""Variables that PyTorch and its libraries set by themselves when they are imported or first used."""
LIBRARY_THREADS = ("Thread-autograd", "InductorSubproc", "SubprocPool", "tqdm", "fsspecIO", "asyncio_")
"""Threads that libraries start once per process and keep."""
GRACE_SECONDS = 2.0
"""A thread that has been told to end gets this long; nothing waits where none is left."""


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache folder of the whole test run: what probes remember and examples make is made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders, one after the other. pytest would look through all of its own to number each."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_home(shared_cache: Path, homes: Iterator[Path]) -> Iterator[None]:
    """No test sees or changes the real user's profiles, settings and caches; none leaks a variable or a thread."""
    before = dict(os.environ)
    home = next(homes)
    home.mkdir()
    places = {"HOME": home, "XDG_CACHE_HOME": shared_cache, "XDG_DATA_HOME": home / "data"}
    places |= {"XDG_CONFIG_HOME": home / "config", "XDG_STATE_HOME": home / "state"}
    os.environ.update({name: str(place) for name, place in places.items()})
    inside, threads = dict(os.environ), set(threading.enumerate())
    yield
    leaks = [*_variables(inside, dict(os.environ)), *_threads(threads)]
    for name in set(os.environ) - set(before) - set(_excused(os.environ)):
        del os.environ[name]
    os.environ.update(before)
    assert not leaks, f"the test leaves behind: {'; '.join(leaks)}"


def _variables(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Variables that were set, changed or deleted meanwhile, apart from those of pytest and of libraries."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    excused = _excused(names)
    return [f"variable {name}={after.get(name, '(deleted)')}" for name in names if name not in excused]


def _excused(names: Iterable[str]) -> list[str]:
    return [name for name in names if name in OWN_TO_PYTEST or name.startswith(LIBRARIES)]


def _threads(before: set[threading.Thread]) -> list[str]:
    """Threads started meanwhile that do not end."""
    started = [thread for thread in threading.enumerate() if thread not in before]
    own = [thread for thread in started if not thread.name.startswith(LIBRARY_THREADS)]
    for thread in own:
        thread.join(GRACE_SECONDS)
    return [f"thread {thread.name}" for thread in own if thread.is_alive()]


def pytest_configure(config: pytest.Config) -> None:
    """Hand files out in the order of `pytest_collection_modifyitems`, not those with the most tests first."""
    config.option.loadscopereorder = False


SLOWEST = ("tests/same_training", "tests/processes/trial/test_live.py", "tests/processes", "tests/torch", "tests/unit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot do, and say why. Of several processes none is left alone with a long file."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((k for k, name in enumerate(SLOWEST) if item.nodeid.startswith(name)), 0))
    for item in items:
        for marker, reason_of in (("gpu", no_gpu), ("root", no_root), ("mpi", no_mpi)):
            if item.get_closest_marker(marker) and (reason := reason_of()):
                item.add_marker(pytest.mark.skip(reason=reason))


@functools.cache
def no_mpi() -> str:
    """Why tests marked ``mpi`` cannot run here; empty where they can."""
    from autotune.probes.software import mpiexec
    from autotune.probes.system import System

    if importlib.util.find_spec("mpi4py") is None:
        return "needs mpi4py: pip install -e '.[mpi]'"
    return "" if mpiexec(System()) else "needs mpiexec: pip install -e '.[mpi]'"


@functools.cache
def no_gpu() -> str:
    """Why tests marked ``gpu`` cannot run here; empty where they can. Asked only where there is such a test."""
    import torch

    return "" if torch.cuda.device_count() else "needs a CUDA device: none is visible"


@functools.cache
def no_root() -> str:
    """Why tests marked ``root`` cannot run here; empty where they may try (and skip what is then not permitted)."""
    if not hasattr(os, "geteuid"):
        return "needs root on Linux"
    return "" if os.geteuid() == 0 else f"needs root (cgroups, namespaces, mounts): this is user {os.geteuid()}"
