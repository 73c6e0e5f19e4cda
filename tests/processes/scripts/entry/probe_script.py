"""A script that prints, as JSON, all it can see of how it was started. Run by `test_like_plain`, never imported."""

import sys

BEGINNING = dict(globals())

# ruff: noqa: E402
import dataclasses
import inspect
import json
import linecache
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from multiprocessing.connection import Connection

MARKS = ("PYTHON", "AUTOTUNE", "PATH", "LD_")
"""How variables begin that the entry could leave changed."""


@dataclasses.dataclass
class Point:
    """Its field's type is a string where this file is compiled with another file's future imports."""

    x: int = 0


def worker(kind: str) -> dict[str, object]:
    """What a process of this script finds that was started by method ``kind``."""
    context = multiprocessing.get_context(kind)
    ours, theirs = context.Pipe()
    child = context.Process(target=answer, args=(Point(3), theirs))
    child.start()
    found = ours.recv()
    child.join()
    return found


def answer(point: Point, to: Connection) -> None:
    main = sys.modules["__main__"]
    found = {
        "point": point.x,
        "name": __name__,
        "main": [main.__name__, getattr(main, "__file__", None), str(main.__spec__)],
        "argv": sys.argv,
        "path": sys.path,
        "flags": str(sys.flags),
    }
    to.send(found)


def module() -> dict[str, object]:
    loader = BEGINNING["__loader__"]
    return {
        "order": list(BEGINNING),
        "plain": {name: value for name, value in BEGINNING.items() if isinstance(value, (str, type(None)))},
        "loader": [type(loader).__name__, getattr(loader, "name", None), getattr(loader, "path", None)],
        "annotations": str(BEGINNING.get("__annotations__")),
        "builtins": str(BEGINNING["__builtins__"]),
        "is main": vars(sys.modules["__main__"]) is globals(),
    }


def source() -> dict[str, object]:
    code = sys._getframe(1).f_code
    return {
        "future flags": code.co_flags & ~0xFFFF,
        "file": code.co_filename,
        "field": str(dataclasses.fields(Point)[0].type),
        "text": inspect.getsource(Point),
        "doc": __doc__,
        "line": linecache.getline(__file__, 3),
        "pickled": pickle.loads(pickle.dumps(Point(2))).x,
        "found in": [Point.__module__, Point.__qualname__],
    }


def interpreter() -> dict[str, object]:
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "flags": str(sys.flags),
        "xoptions": str(sys._xoptions),
        "warnoptions": sys.warnoptions,
        "executable": sys.executable,
        "filters": [str(row) for row in warnings.filters],
        "finders": [str(getattr(finder, "__module__", finder)) for finder in sys.meta_path],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "handled": str(sys.exc_info()),
        "last": hasattr(sys, "last_value"),
        "recursion": sys.getrecursionlimit(),
        "tracing": [sys.gettrace(), sys.getprofile()],
    }


def process() -> dict[str, object]:
    return {
        "stdout": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through],
        "stderr": [sys.stderr.encoding, sys.stderr.errors, sys.stderr.line_buffering, sys.stderr.write_through],
        "stdin": [sys.stdin.encoding, sys.stdin.errors],
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(MARKS)},
        "threads": [thread.name for thread in threading.enumerate()],
        "folder": os.getcwd(),
    }


if __name__ == "__main__":
    if "torch" in sys.argv:
        import torch  # noqa: F401  # it adds warning filters
    found = {"module": module(), "source": source(), "interpreter": interpreter(), "process": process()}
    found["buffering"] = {"stdout": sys.stdout.line_buffering}
    found["stack"] = {"files": [frame.filename for frame in inspect.stack()]}
    if "workers" in sys.argv:
        found["workers"] = {kind: worker(kind) for kind in ("fork", "spawn", "forkserver")}
    print(json.dumps(found))
