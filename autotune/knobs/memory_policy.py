"""The NUMA memory policy of this thread and of what it starts, by system call: no C library wraps these two.

Containers often forbid them (Docker does without CAP_SYS_NICE), so every caller must live with `OSError`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

DEFAULT, PREFERRED, BIND = 0, 1, 2
"""Modes of Linux's ``linux/mempolicy.h``."""
SYSTEM_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236), "ppc64le": (261, 260)}
"""Numbers of set_mempolicy and get_mempolicy by architecture."""
MOST_NODES = 1024
_WORD = 8 * ctypes.sizeof(ctypes.c_ulong)


def take_from(nodes: Sequence[int]) -> None:
    """Take memory from ``nodes`` only, or at least from the first of them as long as it lasts.

    Raises:
        OSError: neither is permitted here.
    """
    try:
        set_policy(BIND, nodes)
    except OSError:
        set_policy(PREFERRED, nodes[:1])


def set_policy(mode: int, nodes: Sequence[int]) -> None:
    """Where pages touched for the first time from now on come from.

    Raises:
        OSError: not permitted, or ``nodes`` are not this process's to use.
    """
    mask = (ctypes.c_ulong * (MOST_NODES // _WORD))()
    for node in nodes:
        mask[node // _WORD] |= 1 << node % _WORD
    _call(0, ctypes.c_int(mode), mask if nodes else None, ctypes.c_ulong(MOST_NODES + 1 if nodes else 0))


def policy() -> tuple[int, tuple[int, ...]]:
    """Mode and nodes in force.

    Raises:
        OSError: not permitted.
    """
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * (MOST_NODES // _WORD))()
    _call(1, ctypes.byref(mode), mask, ctypes.c_ulong(MOST_NODES + 1), None, ctypes.c_ulong(0))
    return mode.value, tuple(node for node in range(MOST_NODES) if mask[node // _WORD] >> node % _WORD & 1)


def _call(which: int, *arguments: object) -> None:
    numbers = SYSTEM_CALLS.get(os.uname().machine)
    if numbers is None or os.uname().sysname != "Linux":
        raise OSError(f"memory policies are not known for {os.uname().sysname} on {os.uname().machine}")
    system = ctypes.CDLL(None, use_errno=True).syscall
    if system(ctypes.c_long(numbers[which]), *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
