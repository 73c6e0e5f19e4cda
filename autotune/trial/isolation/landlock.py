"""Landlock: the kernel itself forbids this process and its children to write outside some folders. Linux 5.19."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_ONLY, PATH_BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS = 38
WRITE_FILE, TRUNCATE, REFER = 1 << 1, 1 << 14, 1 << 13
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
LEAST_VERSION = 2
"""The first that lets a file be moved between folders."""
_libc = ctypes.CDLL(None, use_errno=True)


def forbid_writes(outside: Iterable[Path]) -> None:
    """From now on, this process and its children change files inside ``outside`` only, and gain no privileges.

    Raises:
        OSError: this kernel cannot.
    """
    if sys.platform != "linux":
        raise OSError("Landlock is Linux")
    version = _call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_ONLY))
    if version < LEAST_VERSION:
        raise OSError(f"Landlock version {version}, {LEAST_VERSION} is needed")
    writes = WRITE_FILE | REMOVE_AND_MAKE | REFER | (TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("Q", writes)
    ruleset = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for folder in outside:
            with contextlib.suppress(FileNotFoundError):
                _allow(ruleset, folder, writes)
        if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
        _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, folder: Path, writes: int) -> None:
    fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", writes, fd)
        _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result
