"""Threads of libraries in loader workers: NumPy's BLAS, MKL, OpenMP in extensions, numexpr, OpenCV.

PyTorch gives its own operators one thread in a worker. Other libraries take as many as there are CPUs, in each worker.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.knobs.change import Refused, Training
from autotune.knobs.knob import Chosen, Context, Knob, Word, unless

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

SEVERAL = 1.5
"""Threads that read samples, on average, from which libraries use more than one: a worker also has one that sends,
which took 0.4 of the reader's time where samples cost little."""
PYTORCHS = re.compile(r"/(site|dist)-packages/torch(\.libs)?/")
"""Libraries that only PyTorch uses: its threads are another knob. An environment may be called torch, too."""
VARIABLES = {
    "openblas": ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"),
    "mkl": ("MKL_NUM_THREADS", "OMP_NUM_THREADS"),
    "numexpr": ("NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS"),
}
"""What sets the threads of a library when it is loaded, the first that is set; ``OMP_NUM_THREADS`` for others."""
GAIN = 0.3
"""Expected. On two CPUs, 4 to 12 times was measured (NumPy's BLAS in two workers)."""


def set_threads(number: Callable[[tuple[str, ...]], int]) -> None:
    """Give each library that is loaded, but PyTorch's own, so many threads. ``number`` gets its `VARIABLES`."""
    controller = _controller()
    for each in () if controller is None else controller().lib_controllers:
        if not PYTORCHS.search(each.filepath or ""):
            each.set_num_threads(number(VARIABLES.get(each.internal_api, ("OMP_NUM_THREADS",))))
    for name, function in (("numexpr", "set_num_threads"), ("cv2", "setNumThreads")):
        if name in sys.modules:
            with contextlib.suppress(Exception):  # more than numexpr may have; or another module of this name
                getattr(sys.modules[name], function)(number(VARIABLES.get(name, ())))


def _controller() -> Any:
    """Return the class that finds what is loaded; None if the script has another module of that name."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController


def _one_thread(_worker: int) -> None:
    """Give libraries one thread; the user's own ``worker_init_fn``, which follows, may choose more."""
    set_threads(lambda _variables: 1)


def _why_not(context: Context) -> str | None:
    return None if context.load_threads >= SEVERAL else "samples are read by one thread"


def _lacks(value: str) -> bool:
    return value == "one" and _controller() is None


def _on_loader(settings: Chosen, _loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    one = settings.num_workers > 0 and settings.worker_threads == "one"
    return {"worker_init_fn": _one_thread} if one else {}


WORKER_THREADS = Knob(
    name="worker_threads",
    words="{} thread for libraries in a worker",
    kind=Word(("default", "one")),
    neutral="default",
    applied="loader",
    choices=lambda context: unless(_why_not(context), "default", "one"),
    applies=lambda settings: bool(settings.num_workers > 0),
    why={"one": "workers' libraries share the CPUs", "default": "samples gain by threads of libraries"},
    spread=0.2,
    gain=lambda settings, _context: GAIN * (settings.worker_threads == "one"),
    start=lambda value, _training: Refused("threadpoolctl cannot be imported") if _lacks(value) else None,
    on_loader=_on_loader,
    plain=lambda _plan: "DataLoader(..., worker_init_fn=lambda _: threadpoolctl.threadpool_limits(1))",
)
