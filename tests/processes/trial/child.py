"""What the tests run as a process of its own: isolate, run the part of a script before the fork, then trials.

Its argument is a JSON object: uid, without, scratch, network, room, imports, before, trials.
Prints one JSON object with the way taken, and one per trial: the error that ended it, and what it put into ``said``.
"""

import ctypes  # noqa: F401  # what trials import: another user may not be able to read it
import encodings.idna  # noqa: F401
import errno
import importlib
import json
import mmap  # noqa: F401
import os
import shutil  # noqa: F401
import socket  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import traceback
from pathlib import Path
from typing import Any

from autotune import linux
from autotune.trial.isolation import isolate as isolating

SET_DUMPABLE = 4


def main() -> None:
    task = json.loads(sys.argv[1])
    for name in task["imports"]:
        importlib.import_module(name)
    become(task["uid"])
    refuse(task["without"])
    scratch = Path(task["scratch"])
    isolating.default_bytes = lambda: task["room"]
    found = isolating.isolate(scratch, network=task["network"])
    print(json.dumps({"way": found.way}))
    names: dict[str, Any] = {"isolation": found, "scratch": scratch, "said": []}
    exec(task["before"], names)
    for number, code in enumerate(task["trials"]):
        sys.stdout.flush()
        if not (pid := os.fork()):
            print(json.dumps(trial(code, names, names["scratch"] / f"t{number}")), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


def become(uid: int) -> None:
    """Go on as another user, without privileges."""
    if uid != os.getuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        linux.call("prctl", SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc are still root's


def refuse(prefix: str) -> None:
    """Be a kernel without the system calls that begin with ``prefix``."""
    real = linux.call

    def call(name: str, *arguments: object) -> int:
        if prefix and name.startswith(prefix):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        return real(name, *arguments)

    linux.call = call


def trial(code: str, names: dict[str, Any], folder: Path) -> dict[str, Any]:
    error = None
    try:
        names["isolation"].nest(folder)
        exec(code, names)
    except BaseException as failure:
        error = [type(failure).__name__, str(failure), traceback.format_exc()]
    return {"error": error, "said": names["said"]}


main()
