"""The parent's end of fork servers: waiting, the environment of trials, and where a script is."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.trial.parent import fork_servers as event_loop
from autotune.trial.parent.fork_servers import EventLoop, last_place, trial_environment
from autotune.trial.paths import StudyPaths


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


def test_a_callback_may_remove_another_that_can_be_read(loop, pair) -> None:
    calls: list[int] = []
    for own, other in (pair, pair[::-1]):
        own.send(b"x")
        loop.add(own.fileno(), lambda other=other: (calls.append(1), loop.remove(other.fileno())))  # type: ignore[misc]
    loop.wait(5.0)
    assert len(calls) == 1


def test_a_wait_goes_on_where_all_stood_still(loop, pair, monkeypatch) -> None:
    """Who was to answer within so many seconds slept too."""
    received: list[bytes] = []
    loop.add(pair[0].fileno(), lambda: received.append(pair[0].recv(1)))
    now, late = [10.0], [3600.0, 0.0]
    monkeypatch.setattr(event_loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    select = loop._selector.select

    def sleep(seconds: float) -> object:
        now[0] += seconds + (jump := late.pop(0))
        if not jump:
            pair[1].send(b"x")
        return select(0.0)

    monkeypatch.setattr(
        loop, "_selector", SimpleNamespace(select=sleep, get_map=loop._selector.get_map, close=loop.close)
    )
    loop.wait_until(lambda: bool(received), 30.0)
    monkeypatch.undo()
    assert received == [b"x"]


PATHS = StudyPaths(Path("/tmp/autotune-test"))
GIB = 2**30


def made(base: dict[str, str] | None = None, threads: int = 8, memory: int = 64 * GIB) -> dict[str, str]:
    return trial_environment(base or {}, PATHS, threads=threads, memory=memory)


@pytest.mark.parametrize(
    ("name", "users", "found"),
    [
        *((f"{pool}_NUM_THREADS", "64", "01") for pool in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")),
        ("GLOO_SOCKET_IFNAME", "eth0", "lo"),
        ("NCCL_SOCKET_IFNAME", "eth0", "lo"),
        ("CUDA_DEVICE_ORDER", "FASTEST_FIRST", "FASTEST_FIRST"),
        ("PYTORCH_NVML_BASED_CUDA_CHECK", "0", "1"),
        ("CUDA_VISIBLE_DEVICES", "1", "1"),
        ("https_proxy", "http://proxy", "http://proxy"),
    ],
)
def test_what_trials_need_replaces_the_users_and_the_rest_stays(name: str, users: str, found: str) -> None:
    assert made({name: users})[name] == found


def test_trials_leave_no_traces_outside_the_scratch_folder() -> None:
    found = made({"TMPDIR": "/home/somebody", "WANDB_MODE": "online", "TORCHINDUCTOR_CACHE_DIR": "/home/cache"})
    assert found["TMPDIR"] == str(PATHS.root)
    assert found["TORCHINDUCTOR_CACHE_DIR"].startswith(str(PATHS.root))
    assert found["WANDB_MODE"] == "disabled"
    assert found["PYTHONDONTWRITEBYTECODE"] == "1"


@pytest.mark.parametrize(
    ("threads", "gib", "workers"),
    [(2, 4, 2), (1, 64, 1), (64, 64, 8), (64, 6, 4), (4, 1, 1), (8, 0, 1)],
    ids=["B08", "one CPU", "many", "little memory", "less than one worker's", "unknown memory"],
)
def test_compile_workers_fit_processors_and_memory(threads: int, gib: int, workers: int) -> None:
    assert made(threads=threads, memory=gib * GIB)["TORCHINDUCTOR_COMPILE_THREADS"] == str(workers)


STACK = """Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3/socket.py", line 10 in read
  File "/home/me/project/data.py", line 33 in prepare_data
  File "/home/me/project/train.py", line 7 in <module>
"""


@pytest.mark.parametrize(
    ("stacks", "where"),
    [(STACK, "; it is in prepare_data (data.py:33)"), ("", ""), ('File "/usr/x.py", line 1 in read', "")],
)
def test_is_the_innermost_frame_of_the_users_own(stacks: str, where: str) -> None:
    assert last_place(stacks, Path("/home/me/project")) == where
