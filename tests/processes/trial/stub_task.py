"""A task that does what the file ``behaviour`` in its working folder says: one good default, many faults."""

import ctypes
import multiprocessing
import os
import signal
import time
from multiprocessing import shared_memory
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset

CURRENT = {"batch_size": 8, "num_workers": 1}
STEP = {"count": 0}


def behaviour() -> str:
    path = Path("behaviour")
    return path.read_text() if path.exists() else "well"


class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        in_worker = multiprocessing.parent_process() is not None
        how = behaviour()
        if in_worker and how == "worker_raises":
            raise KeyError("label of sample 3")
        if in_worker and how == "worker_segv":
            ctypes.string_at(0)
        if in_worker and how == "worker_hangs":
            time.sleep(3600)
        return torch.full((4,), float(index)), torch.tensor(index % 3)


def build_dataset():
    return Data()


def build_model():
    if behaviour() == "model_raises":
        raise NameError("name 'Resnet' is not defined")
    return nn.Linear(4, 3)


def _sleep_forever():
    while True:
        time.sleep(3600)


def _daemon():
    """Double fork and a session of its own: no longer in the trial's tree."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _sleep_forever()
        os._exit(0)


def _flood():
    for _ in range(4000):
        os.write(1, b"x" * 65536)


def _leave_shared_memory():
    from multiprocessing import resource_tracker

    block = shared_memory.SharedMemory(create=True, size=4096)
    resource_tracker.unregister(block._name, "shared_memory")
    os.kill(os.getpid(), signal.SIGKILL)


def _ignore_signals_and_hang():
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    _sleep_forever()


ONCE = {
    "raises": lambda: (_ for _ in ()).throw(ValueError("expected 3 channels, got 4")),
    "allocates_too_much": lambda: torch.empty(1 << 60),
    "segv": lambda: ctypes.string_at(0),
    "sigbus": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "os_exit_0": lambda: os._exit(0),
    "hangs": _sleep_forever,
    "ignores_signals": _ignore_signals_and_hang,
    "floods": _flood,
    "daemon": _daemon,
    "leaves_shm": _leave_shared_memory,
    "stops_itself": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def compute_loss(model, batch):
    how = behaviour()
    inputs, targets = batch
    STEP["count"] += 1
    rank = int(os.environ.get("RANK", "0"))
    if STEP["count"] == 3:
        if how == "rank_1_raises" and rank == 1:
            raise ZeroDivisionError("only on rank 1")
        if how == "rank_1_killed" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "rank_1_hangs" and rank == 1:
            _sleep_forever()
        if how in ONCE:
            ONCE[how]()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    if how == "nan":
        return loss * float("nan")
    return loss
