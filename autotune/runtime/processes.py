"""Several training processes: join the group, and leave it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from autotune import devices
from autotune.knobs.backend import BACKENDS, LOOPBACK, MPIEXEC
from autotune.knobs.change import Method, replace
from autotune.knobs.settings import Settings
from autotune.runtime import mpi, random_state
from autotune.runtime.notes import Notes

GLOO_THREAD = "pt_gloo_runloop"
"""What PyTorch calls the threads that execute gloo's collectives."""
INTERFACE = "GLOO_SOCKET_IFNAME"


@dataclass(frozen=True)
class World:
    """This process's place among the training processes."""

    rank: int = 0
    size: int = 1


def world_size(environment: Mapping[str, str]) -> int:
    """Return as how many processes the launcher started this training."""
    try:
        return max(1, int(environment.get("WORLD_SIZE", "1"))) if int(environment.get("RANK", "-1")) >= 0 else 1
    except ValueError:
        return 1


def started_as(environment: Mapping[str, str]) -> World:
    """Return this process's place as the launcher sets it; the script makes the group itself."""
    size = world_size(environment)
    return World(int(environment["RANK"]), size) if size > 1 else World()


def single_node(environment: Mapping[str, str]) -> bool:
    """Return True if all processes are on this machine."""
    local = environment.get("LOCAL_WORLD_SIZE")
    if local is not None:
        return local == environment.get("WORLD_SIZE")
    return environment.get("MASTER_ADDR", "127.0.0.1") in ("localhost", "127.0.0.1", "::1")


def own_device(kind: str | None, environment: Mapping[str, str]) -> torch.device:
    """Return this process's device: ``kind``, or an accelerator if there is any; one GPU per local rank."""
    device = devices.of(kind) if kind else devices.found()
    if not device.on_host and world_size(environment) > 1:
        seen = max(1, device.count())  # a launcher may show each rank its own GPU only
        return torch.device(device.type, int(environment.get("LOCAL_RANK", "0")) % seen)
    return torch.device(str(device))


def registered(backend: str) -> str:
    """Return what ``init_process_group`` calls ``backend``, once the module that it comes from is imported.

    Raises:
        ImportError: that module is not installed.
    """
    row = BACKENDS[backend]
    if row.launcher == MPIEXEC:
        mpi.register()
        return mpi.NAME
    if row.module is not None:
        importlib.import_module(row.module)
    return backend


def unreachable(backend: str | None, environment: Mapping[str, str]) -> str | None:
    """Return why processes started like this one cannot use ``backend``; None if they can."""
    if backend is None:
        return None
    if BACKENDS[backend].launcher == MPIEXEC:
        return mpi.why_not(environment, world_size(environment))
    try:
        registered(backend)
    except ImportError as error:
        return f"{error}; gradients go over another backend"
    return None


def join_for(
    settings: Settings | None,
    device: torch.device,
    init_method: str | None,
    notes: Notes,
    leaving: contextlib.ExitStack,
) -> World:
    """Join the group of a training with ``settings``; one process alone if no launcher has started several.

    Random numbers of all processes are rank 0's afterwards, if the group is made here; ``leaving`` leaves it then.
    """
    launched = world_size(os.environ)
    if settings is not None and settings.processes != launched:
        reason = "started as one process" if launched == 1 else f"started as {launched} processes"
        notes.not_applied("processes", reason)
    if launched == 1 or (settings is not None and settings.processes == 1):
        return World()
    backend = settings.backend if settings else None
    why_not = unreachable(backend, os.environ)
    notes.not_applied("backend", why_not)
    if dist.is_available() and dist.is_initialized():  # by the script, with random numbers of its own
        return World(dist.get_rank(), dist.get_world_size())
    join(None if why_not else backend, device, init_method, leaving)
    random_state.write(of_rank_zero(random_state.read(), device))
    leaving.callback(replace_init(functools.partial(_only_once, notes)))
    return started_as(os.environ)


def why_not_of_script(settings: Settings) -> dict[str, str]:
    """Return why the group that an unmodified script has made itself is not that of ``settings``, by knob."""
    made = dist.is_available() and dist.is_initialized()
    size = dist.get_world_size() if made else 1
    if settings.processes != size:
        return {"processes": f"the script trains as {size} process(es)"}
    if size > 1 and str(settings.backend) not in (own := str(dist.get_backend_config())):
        return {"backend": f"the script makes its process group itself, with {own}"}
    return {}


def _only_once(notes: Notes, original: Method) -> Method:
    """Let a script's own ``init_process_group``, which comes too late, find the group made."""

    def init_process_group(*arguments: Any, **options: Any) -> None:
        if not dist.is_initialized():
            original(*arguments, **options)
        else:
            notes.add("autotune.load has made the process group already: init_process_group after it does nothing")

    return init_process_group


def replace_init(make: Callable[[Method], Method]) -> Callable[[], None]:
    """Put what ``make`` makes of it in the place of ``init_process_group``. Returns how to undo it."""
    undo = contextlib.ExitStack()
    for module in (dist, distributed_c10d):
        undo.callback(replace(module, "init_process_group", make))
    return undo.close


def join(backend: str | None, device: torch.device, init_method: str | None, leaving: contextlib.ExitStack) -> None:
    """Join the process group that ``WORLD_SIZE`` and ``RANK`` describe, until ``leaving`` is closed.

    The backend is the device's usual one if None. The processes meet at ``init_method``, or at ``MASTER_ADDR``
    and ``MASTER_PORT``.
    """
    if single_node(os.environ) and INTERFACE not in os.environ:
        os.environ[INTERFACE] = LOOPBACK  # keeps gloo from names and interfaces that it cannot reach
        leaving.callback(os.environ.pop, INTERFACE, None)
    own = devices.of(device)
    own.select()
    leaving.callback(_leave)
    dist.init_process_group(
        registered(backend or own.backend),
        init_method=init_method,
        rank=int(os.environ["RANK"]),
        world_size=world_size(os.environ),
    )


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def settle(seconds: float = 2.0, tasks: Path = Path("/proc/self/task")) -> None:
    """Wait until gloo's threads are idle, up to ``seconds``. Call it before the interpreter ends.

    Such a thread drops Python objects of the last backward after that backward has returned. If that happens
    while the interpreter ends, the process aborts ("terminate called without an active exception"), though training
    was complete. Without Linux's ``tasks`` it does not wait.
    """
    until, resting = time.monotonic() + seconds, 0
    while resting < 2 and time.monotonic() < until:
        time.sleep(0.002)  # lets go of the interpreter's lock: a thread that waited for it is runnable after this
        resting = 0 if _gloo_runs(tasks) else resting + 1


def _gloo_runs(tasks: Path) -> bool:
    """Return True if a thread that executes gloo's collectives has something left to do."""
    for stat in tasks.glob("*/stat"):
        with contextlib.suppress(OSError):  # threads come and go
            name, _, state = stat.read_text(encoding="utf-8", errors="replace").rpartition(") ")
            if name.endswith(f"({GLOO_THREAD}") and state.startswith("R"):
                return True
    return False


def of_rank_zero(value: Any, device: torch.device) -> Any:
    """Return rank 0's ``value``, which can be pickled, on every rank."""
    values = [value]
    dist.broadcast_object_list(values, 0, device=device)
    return values[0]


def agreed(value: bool, device: torch.device) -> bool:
    """Return True if ``value`` is true on every rank."""
    against = torch.tensor([int(not value)], device=device)
    dist.all_reduce(against)
    return against.item() == 0
