"""What settings need, by what the baseline held; and what is refused for it."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.knobs.knob import Context
from autotune.knobs.memory import host_bytes, why_not
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import MemoryUse
from autotune.tuning.notes import COPIES, copies
from tests.doubles.simulation.simulator import GIB, context, inventory

MIB = 2**20
OWN = Settings(threads=4, interop_threads=4, batch_size=64, num_workers=2, prefetch_factor=2)
HELD = MemoryUse(fixed=600 * MIB, peak=1000 * MIB, workers=100 * MIB)


def machine(memory: int = 64 * GIB, **changes: Any) -> Context:
    return replace(context(inventory(4, 4, memory=memory), 64), baseline=OWN, memory=HELD, **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1000 + 100),
        ({"num_workers": 0, "batch_size": 64}, 1000),
        ({"num_workers": 0, "batch_size": 256}, 600 + 4 * 400),
        ({"num_workers": 0, "processes": 2, "threads": 2, "batch_size": 32}, 2 * (600 + 200)),
        ({"num_workers": 4, "batch_size": 64}, 1000 + 100 + 2 * 100),
    ],
)
def test_processes_workers_and_batches_count(changes: dict[str, Any], expected: int) -> None:
    there = machine()
    settings = OWN.but(**changes)
    batches = settings.processes * (3 * settings.num_workers + 1) * settings.batch_size * there.task.sample_bytes
    assert host_bytes(settings, there) == pytest.approx(expected * MIB + batches, rel=1e-3)


def test_each_worker_comes_to_hold_the_objects_of_the_data_set() -> None:
    there = machine(8 * GIB)
    many = replace(there, task=replace(there.task, copied_bytes=2 * GIB))
    more = OWN.but(num_workers=4)
    assert host_bytes(more, many) - host_bytes(more, there) == 8 * GIB
    assert why_not(more, there) is None
    assert "of memory; trials have" in str(why_not(more, many))
    assert (copies(2 * GIB, [OWN, more]), copies(2 * MIB, [more])) == ([COPIES.format("8.0 GiB")], [])


def test_what_needs_more_than_the_user_allows_is_refused_and_the_baseline_never() -> None:
    capped = machine(max_memory=GIB)
    assert why_not(OWN, capped) is None
    assert why_not(OWN.but(batch_size=256), capped) == "needs about 2.3 GiB of memory; --max-memory is 1.0 GiB"
    assert why_not(OWN.but(batch_size=256), machine()) is None
    assert why_not(OWN.but(batch_size=256), machine(2 * GIB)) == "needs about 2.3 GiB of memory; trials have 1.7 GiB"


def test_a_batch_that_a_gpu_may_not_hold_is_refused() -> None:
    there = replace(machine(max_gpu_memory=2 * GIB), memory=MemoryUse(gpu=GIB))
    assert why_not(OWN.but(batch_size=128), there) is None
    assert "of a GPU; --max-gpu-memory is 2.0 GiB" in str(why_not(OWN.but(batch_size=256), there))
