"""Whether reading a dataset in loader workers, which have copies of it, would give other data than reading it here.

What belongs to this process (open files, threads, locks) is found without reading. Then a process like a loader worker
reads a few samples, and compares what it can reach before and after that.
"""

from __future__ import annotations

import io
import multiprocessing
import sys
import threading
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from autotune.runtime.reach import Reached, codes, module_of, roots_of, walk
from autotune.runtime.worker_dry_run import try_in_worker

LOCKS = (type(threading.Lock()), type(threading.RLock()))
SHARED = {
    ("multiprocessing", "BaseProxy"),
    ("multiprocessing", "BufferWrapper"),
    ("multiprocessing", "Queue"),
    ("multiprocessing", "SharedMemory"),
    ("multiprocessing", "SimpleQueue"),
    ("multiprocessing", "SynchronizedBase"),
    ("sqlite3", "Connection"),
    ("h5py", "HLObject"),
    ("lmdb", "Environment"),
    ("builtins", "Environment"),  # lmdb's, in C
    ("cv2", "VideoCapture"),
    ("netCDF4", "Dataset"),
    ("tables", "File"),
    ("pyarrow", "NativeFile"),
}
"""``(package, class)`` of what processes share: objects of Python's, and files and databases of libraries in C."""


def why_not_in_workers(loader: DataLoader[Any]) -> str | None:
    """Why workers must not be added to ``loader``, which has none, or None. Takes as long as four samples."""
    return _bound_to_process(loader) or try_in_worker(loader)


def asks_for_worker(loader: DataLoader[Any]) -> str | None:
    """Why the data may depend on whether workers read them, or None."""
    functions = (each for each in walk(roots_of(loader)) if isinstance(each.value, FunctionType) and not each.library)
    asking = (
        each for each in functions if any("get_worker_info" in code.co_names for code in codes(each.value.__code__))
    )
    return next((f"{each.path} asks for its worker" for each in asking), None)


def why_no_fork(loader: DataLoader[Any], tuned: str) -> str | None:
    """Why workers cannot be forked, or None. ``tuned``: the start method that the settings ask for, or ``default``."""
    if multiprocessing.current_process().daemon:
        return "a daemonic process cannot start workers"
    context: Any = loader.multiprocessing_context or multiprocessing
    own = context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    method = own if tuned == "default" or loader.multiprocessing_context is not None else tuned
    return None if method == "fork" else f"workers started by {method!r} would run the script's top level again"


def _bound_to_process(loader: DataLoader[Any]) -> str | None:
    for found in walk(roots_of(loader)):
        what = _what_is_bound(found)
        if what is not None:
            return f"{found.path} is {what}"
    return None


def _what_is_bound(found: Reached) -> str | None:
    value = found.value
    if isinstance(value, LOCKS):
        return "a lock that is held" if _is_held(value) else None
    if isinstance(value, threading.Thread):
        return "a running thread, which workers would not have" if _runs(value) else None
    if isinstance(value, Tensor):
        shared = value.device.type == "cpu" and value.is_shared()  # type: ignore[no-untyped-call]
        return "in shared memory, which a read could change" if shared else None
    if _is_open(value):
        return "an open file, a connection or shared memory, which workers would use together"
    iterates = hasattr(type(value), "__next__") and not hasattr(type(value), "__getitem__")
    own = not found.library and not isinstance(value, io.IOBase)
    return "an iterator, which workers would have copies of" if iterates and own else None


def _is_held(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def _runs(thread: threading.Thread) -> bool:
    return thread.is_alive() and thread not in (threading.main_thread(), threading.current_thread())


def _is_open(value: Any) -> bool:
    kind = type(value)
    if any((module_of(owner).partition(".")[0], owner.__name__) in SHARED for owner in kind.__mro__):
        return True
    if not hasattr(kind, "fileno") or any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return False
    try:
        return int(value.fileno()) > 2
    except Exception:  # closed, in memory, or something else with a method of this name
        return False
