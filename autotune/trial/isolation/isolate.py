"""Takes the best way that this system permits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from autotune.trial.isolation import guard, kernel, trackers
from autotune.trial.isolation.room import default_bytes
from autotune.trial.isolation.sandbox import Entered, Sandbox
from autotune.trial.isolation.ways import overlay, redirected, user_namespace

WAYS: tuple[ModuleType, ...] = (overlay, user_namespace, redirected)
PROGRAMS_CALL = "programs that the script starts, and libraries in C, can reach the network ({reason})"


@dataclass(frozen=True)
class Isolation:
    """How this process and its children are kept from the user's world.

    Attributes:
        way: name of the way taken.
        why_not: why not each of the better ways.
        limits: what it does not keep inside, or does not allow.
        network: whether other machines may be reached.
        room: bytes that a trial may write.
    """

    way: str
    why_not: tuple[str, ...]
    limits: tuple[str, ...]
    network: bool
    room: int
    _entered: Entered = field(repr=False)
    _own_network: bool = field(repr=False)

    def nest(self, folder: Path) -> None:
        """In a forked child: it sees what was written before the fork, and no other child sees what it writes.

        Args:
            folder: the trial's own inside the study's scratch; it is made where it is missing.

        Raises:
            OSError: what the process itself could do is refused to its child.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if self._own_network:
            kernel.own_network()  # trials that run side by side may use the same port
        self._entered.nest(folder.resolve())


def isolate(
    scratch: Path,
    origin: Path,
    *,
    network: bool = False,
    room: int | None = None,
    ways: Sequence[ModuleType] = WAYS,
) -> Isolation:
    """From now on, what this process and its children write does not land where the user would find it.

    Call it in a process of one thread that is not the tuner's, before the user's code runs. It works in ``origin``
    afterwards, or in a folder that looks like it. Everything but ``scratch`` is gone with the last child.

    Args:
        scratch: the study's folder; it stays the real one, so that the tuner sees what is written there.
        origin: the user's working folder.
        network: whether other machines may be reached.
        room: bytes that a trial may write; a quarter of the free memory, 2 GiB at most, where it is None.
        ways: to try, best first.

    Raises:
        OSError: none of ``ways`` is permitted. The last of `WAYS` always is.
    """
    size = room if room is not None else default_bytes()
    sandbox = Sandbox(scratch.resolve(), origin.resolve(), network, size)
    own_network, holes = _leave_network(network)
    taken, entered, why_not = _enter_one(sandbox, ways)
    if not own_network:
        own_network, holes = _leave_network(network)  # a user namespace may permit it now
    if holes:
        guard.forbid_network()
    os.environ.update(trackers.variables(sandbox.scratch, network=network))
    tempfile.tempdir = None
    return Isolation(taken, why_not, (*entered.limits, *holes), network, size, entered, own_network)


def _leave_network(stay: bool) -> tuple[bool, tuple[str, ...]]:
    """Whether this process has a network of its own now, and what is not kept from the network else."""
    if stay:
        return False, ()
    try:
        kernel.own_network()
    except OSError as error:
        return False, (PROGRAMS_CALL.format(reason=error.strerror),)
    return True, ()


def _enter_one(sandbox: Sandbox, ways: Sequence[ModuleType]) -> tuple[str, Entered, tuple[str, ...]]:
    """Name of the first way that is permitted, what it gave, and why not those before."""
    why_not: list[str] = []
    for way in ways:
        try:
            return way.NAME, way.enter(sandbox), tuple(why_not)
        except OSError as error:
            why_not.append(f"{way.NAME}: {error.strerror or error}")
    raise OSError(f"no way to isolate trials: {'; '.join(why_not)}")
