from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from autotune.runtime.slowness import UNKNOWN, Look, Slowness, _idle, _look, causes

from autotune.probes.processes import Process

BEFORE = Look(100.0, others=(Process(7, 1, 5.0, "ffmpeg", 0, 50.0),))
BUSY = """
import sys, time
print("ready", flush=True)
while time.process_time() < 60.0: pass
"""


def after(**change: object) -> Look:
    return replace(BEFORE, seconds=110.0, **change)


def test_a_neighbour_is_named_with_the_cpus_that_it_takes() -> None:
    found = list(causes(BEFORE, after(others=(Process(7, 1, 5.0, "ffmpeg", 0, 65.0),))))
    assert found == ["ffmpeg (pid 7) takes 1.5 CPUs"]


def test_processes_of_other_users_are_not_named() -> None:
    found = list(causes(BEFORE, after(others=(Process(7, 1, 5.0, "", 0, 60.0),))))
    assert found == ["another user's process (pid 7) takes 1.0 CPUs"]


@pytest.mark.parametrize("other", [Process(7, 1, 6.0, "x", 0, 90.0), Process(7, 1, 5.0, "x", 0, 50.5)])
def test_another_process_with_that_number_and_an_idle_one_are_no_cause(other: Process) -> None:
    assert list(causes(BEFORE, after(others=(other,)))) == []


def test_swapping_and_quotas_are_causes() -> None:
    assert list(causes(BEFORE, after(swapped=25_600))) == ["memory is short: 10 MiB/s are swapped"]
    assert list(causes(BEFORE, after(held_back=4.0))) == ["the CPU quota holds its threads back (0.4 s of each second)"]
    assert list(causes(BEFORE, after(swapped=100, held_back=0.1))) == []


def test_cpus_without_work_come_before_neighbours() -> None:
    """A neighbour beside CPUs that nobody uses is not what training waits for."""
    beside = after(idle=7.0, others=(Process(7, 1, 5.0, "ffmpeg", 0, 65.0),))
    assert list(causes(BEFORE, beside)) == [
        "0.7 CPUs are idle, so the loop itself waits (for data, evaluation, a pause)",
        "ffmpeg (pid 7) takes 1.5 CPUs",
    ]
    assert list(causes(BEFORE, after(idle=4.0))) == []
    assert list(causes(BEFORE, after(idle=10.0, held_back=4.0))) == [
        "the CPU quota holds its threads back (0.4 s of each second)"
    ]


@pytest.mark.parametrize(
    ("ran", "spare", "words"),
    [
        (9.9, 1, []),
        (9.9, 0, ["1.0 CPUs are idle while the loop works on fewer threads (for data, small operators)"]),
        (5.0, 1, ["1.0 CPUs are idle, so the loop itself waits (for data, evaluation, a pause)"]),
    ],
)
def test_a_loop_that_works_all_the_time_is_not_said_to_wait(ran: float, spare: int, words: list[str]) -> None:
    """One thread on two CPUs leaves one idle however fast it is."""
    assert list(causes(BEFORE, after(idle=10.0, ran=ran, spare=spare))) == words


def test_only_idle_cpus_that_training_may_run_on_count(monkeypatch: pytest.MonkeyPatch) -> None:
    stat = "cpu  1 2 3 9000 9000 6\ncpu0 1 2 3 100 50 6\ncpu1 1 2 3 800 50 6\ncpu2 1 2 3 200 50 6\nintr 1\n"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    assert _idle(stat) == 4.0
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    assert _idle(stat) == 0.0


def test_cpus_that_went_away_are_a_cause() -> None:
    cpus = iter((4, 1))
    slow = Slowness(lambda: BEFORE, lambda: next(cpus))
    slow.begin()
    assert slow.causes() == "it may run on 1 of the 4 CPUs that it started on"


def test_without_a_cause_what_to_do_is_said() -> None:
    slow = Slowness(lambda: BEFORE)
    slow.begin()
    assert slow.words(10.0, 100.0) == f"a step takes 100 ms, the profile measured 10 ms: {UNKNOWN}"


def test_a_machine_that_cannot_be_looked_at_stops_nobody() -> None:
    def broken() -> Look:
        raise OSError("no /proc")

    slow = Slowness(broken)
    slow.begin()
    assert UNKNOWN in slow.words(1.0, 2.0)


def test_a_real_neighbour_is_seen_and_a_child_is_not() -> None:
    """The neighbour's parent is process 1 or a subreaper: it does not descend from this one."""
    start = [sys.executable, "-c", BUSY]
    orphan = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen({start!r}, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\nprint(child.pid, flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True, check=True)
    neighbour = int(done.stdout)
    child = subprocess.Popen(start, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        before = _look()
        seen = {each.pid for each in before.others}
        assert neighbour in seen
        assert child.pid not in seen
        assert os.getpid() not in seen
        used = before
        while sum(each.seconds for each in used.others if each.pid == neighbour) < 0.5 + sum(
            each.seconds for each in before.others if each.pid == neighbour
        ):
            used = _look()
        within_a_second = dataclasses.replace(used, seconds=before.seconds + 1)  # however busy this machine is
        assert any(f"(pid {neighbour}) takes" in cause for cause in causes(before, within_a_second))
    finally:
        child.kill()
        child.wait()
        os.kill(neighbour, 9)
