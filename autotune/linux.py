"""System calls of Linux that Python does not wrap. This is the only place that makes them."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

LANDLOCK = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")
NUMBERS = {name: 444 + position for position, name in enumerate(LANDLOCK)}
"""Calls without a function in the C library; the numbers are the same on all architectures."""
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Make the system call ``name`` and return its result.

    Args:
        name: as the manual has it.
        arguments: strings and paths go as file names, numbers as ``long``; bytes, arrays and None as pointers.

    Raises:
        OSError: the kernel refuses, and files are named; or this system has no such call.
    """
    number = NUMBERS.get(name)
    function = getattr(_libc, "syscall" if number else name, None)
    if os.uname().sysname != "Linux" or function is None:
        raise OSError(errno.ENOSYS, f"{name}: {os.strerror(errno.ENOSYS)}")
    result = int(function(*map(_as_c, (number, *arguments) if number else arguments)))
    if result < 0:
        code = ctypes.get_errno()
        files = ", ".join(str(argument) for argument in arguments if isinstance(argument, (str, Path)))
        raise OSError(code, f"{name}({files}): {os.strerror(code)}" if files else os.strerror(code))
    return result


def _as_c(argument: object) -> object:
    if isinstance(argument, (str, Path)):
        return os.fsencode(argument)
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
