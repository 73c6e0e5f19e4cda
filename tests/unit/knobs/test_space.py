"""Spaces: nothing infeasible in, nothing feasible lost."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.knobs.constraints import THREAD_SLACK
from autotune.knobs.knob import progress
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.knobs.task_facts import LeftOut
from autotune.probes.facts import Backend, Inventory
from tests.doubles.simulation.simulator import GIB, context, inventory

BUDGETS = st.tuples(st.integers(1, 256), st.sampled_from([1, 2])).map(
    lambda pair: inventory(threads=pair[0], cores=max(1, pair[0] // pair[1]), memory=64 * GIB)
)
SPACES = st.builds(
    lambda host, batch, level, convolutions: build(context(host, batch, convolutions=convolutions), level),
    BUDGETS,
    st.integers(1, 512),
    st.sampled_from(list(LEVELS)),
    st.booleans(),
)


def walk(space: Space, seed: int, steps: int = 40) -> list[Settings]:
    """Settings met on a random walk from the baseline."""
    rng = random.Random(seed)
    met = [space.context.baseline]
    for _ in range(steps):
        met.append(space.random_move(met[-1], rng.randrange) or met[-1])
    return met


@given(SPACES, st.integers())
@settings(max_examples=30, deadline=None)
def test_a_walk_stays_within_the_budget_and_keeps_the_global_batch_below_max(space, seed):
    budget, own = space.context.inventory.budget.threads, space.context.baseline.global_batch
    met = walk(space, seed)
    for found in met:
        assert found.processes * found.threads <= max(budget, found.processes)
        assert found.processes <= budget
        assert found.processes * found.num_workers <= budget
        assert found == space.context.baseline or (
            found.processes * (found.threads + found.num_workers) <= budget * THREAD_SLACK
        )
    batches = {found.global_batch for found in met}
    assert space.level == "max" or batches == {own}
    assert all(batch % own == 0 and batch <= 32 * own for batch in batches)


@given(SPACES, st.integers())
@settings(max_examples=20, deadline=None)
def test_moves_are_feasible_distinct_and_change_something(space, seed):
    here = walk(space, seed)[-1]
    assert here in space
    found = [settings for _, settings in space.moves(here)]
    assert here not in found
    assert all(settings in space for settings in found)
    assert len(set(found)) == len(found)


@given(SPACES)
@settings(max_examples=20, deadline=None)
def test_the_baseline_is_always_contained(space):
    baseline = space.context.baseline
    assert baseline in space
    odd = baseline.but(threads=999, num_workers=7, prefetch_factor=3)
    assert odd in build(replace(space.context, baseline=odd), space.level)


NO_LOADER = [
    LeftOut(name, None, "no loader") for name in ("num_workers", "prefetch_factor", "worker_start", "pin_memory")
]


@pytest.mark.parametrize(("batch", "left_out"), [(1, ()), (6, ()), (6, NO_LOADER)])
def test_enumeration_gives_each_feasible_setting_once(batch, left_out):
    """A walk through moves reaches nothing that enumeration misses, and both agree with `refusal`."""
    fixed = {"optimizer_impl": "default"} if left_out else {"optimizer_impl": "default", "prefetch_factor": 2}
    space = build(context(inventory(), batch, left_out=tuple(left_out)), "safe", fixed)
    everything = list(space.enumerate())
    assert len(everything) == len(set(everything))
    assert all(found in space for found in everything)
    reached, frontier = {space.context.baseline}, [space.context.baseline]
    while frontier:
        fresh = {s for _, s in space.moves(frontier.pop())} - reached
        reached |= fresh
        frontier += fresh
    assert reached == set(everything)


def test_a_binding_that_does_nothing_is_refused_and_dropped_on_the_way():
    space = build(context(inventory(), 16), "safe")
    alone = space.context.baseline.but(binding="cores")
    assert space.why_not(alone) == "binding=cores: one process has all CPUs anyway"
    two = Settings(processes=2, threads=1, interop_threads=2, batch_size=8, binding="cores")
    assert two in space
    reshaped = {(s.processes, s.threads, s.binding) for what, s in space.moves(two) if what == "processes x threads"}
    assert reshaped == {(1, 1, "cores"), (1, 2, "none")}
    fixed = build(context(inventory(), 16), "safe", {"binding": "cores"})
    assert {s.binding for s in fixed.enumerate()} == {"cores"}
    assert fixed.conformed(space.context.baseline).binding == "cores"


def test_precision_waits_for_amp_and_batches_for_max():
    where = context(inventory(), 64)
    assert [build(where, level).values["precision"] for level in LEVELS] == [("fp32",), *2 * [("fp32", "bf16")]]
    assert build(where, "amp").global_batches == (64,)
    assert build(where, "max").global_batches == (64, 128, 256, 512, 1024, 2048)
    assert build(context(inventory(), 64, samples=1500), "max").global_batches == (64, 128)


@pytest.mark.parametrize(("noise_scale", "largest"), [(0.2, 128), (4.4, 256), (1e9, 2048)])
def test_no_batch_is_beyond_the_noise_scale(noise_scale: float, largest: int) -> None:
    found = replace(context(inventory(), 64), noise_scale=noise_scale)
    space, fixed = build(found, "max"), build(found, "max", {"batch_size": 2048})
    assert (space.global_batches[-1], fixed.global_batches[-1]) == (largest, 2048)
    for each in (space, build(replace(found, task=replace(found.task, samples=1500)), "max")):
        left_out = {one.value for one in each.left_out if "noise scale" in one.reason}
        assert left_out == ({2 * largest} if largest < 2048 else set())


def with_mpi(threads: int = 4, cores: int = 4) -> Inventory:
    """A machine where MPI is usable beside gloo."""
    host = inventory(threads, cores)
    backends = (Backend("gloo", True, ""), Backend("mpi", True, "mpi4py with MPICH 5.0.2"))
    return replace(host, software=replace(host.software, backends=backends))


SMALL, FEW = inventory(), inventory(8, 8)
TINY_SHM = context(replace(SMALL, memory=replace(SMALL.memory, shm_free=2**20)), 64)
FEW_TASKS = context(replace(FEW, limits=replace(FEW.limits, processes=24, processes_source="pids.max")), 64)
TWO_PROCESSES = Settings(processes=2, threads=1, interop_threads=2, batch_size=32)
MPI = context(with_mpi(8, 4), 64)


@pytest.mark.parametrize(
    ("where", "settings", "reason"),
    [
        (TINY_SHM, TINY_SHM.baseline.but(num_workers=1), "--shm-size"),
        (FEW_TASKS, TWO_PROCESSES.but(interop_threads=8, num_workers=4), "pids.max"),
        (context(inventory(memory=GIB), 64, parameters=50_000_000), TWO_PROCESSES, "trials have 724 MiB"),
        (context(SMALL, 8, convolutions=True), TWO_PROCESSES.but(batch_size=4), "over 4 samples, fewer than 8"),
        # What waits busily gets a core for every thread.
        (MPI, Settings(processes=4, threads=1, backend="mpi", batch_size=16), None),
        (MPI, Settings(processes=8, threads=1, backend="gloo", batch_size=8), None),
        (MPI, Settings(processes=8, threads=1, backend="mpi", batch_size=8), "busily: 8 x 1 threads exceed"),
        (MPI, Settings(processes=4, threads=2, backend="mpi", batch_size=16), "busily: 4 x 2 threads exceed"),
    ],
)
def test_what_the_machine_lacks_is_refused(where, settings, reason):
    found = build(where, "safe", {"processes": settings.processes}).why_not(settings)
    assert found is None if reason is None else reason in (found or "")


def test_a_random_move_is_drawn_from_what_is_offered_only():
    """A knob without another value takes no draws from those that have one."""
    free = build(context(inventory(), 64), "safe")
    fixed = {name: values[0] for name, values in free.values.items() if name not in ("optimizer_impl", "batch_size")}
    space = build(context(inventory(), 64), "safe", fixed)
    here = next(each for each in space.enumerate() if each.optimizer_impl == "default")
    rng = random.Random(1)
    drawn = {space.random_move(here, rng.randrange) for _ in range(20)}
    assert drawn == {other for other in space.enumerate() if other.optimizer_impl != "default"}


def exchanges(found) -> set[tuple[int, str | None]]:
    return {(settings.processes, settings.backend) for settings in found}


def test_backends_move_alone_and_stay_when_processes_move_and_the_first_processes_take_any():
    alone = build(context(with_mpi(2, 2), 64), "safe")
    found = [settings for _, settings in alone.moves(alone.context.baseline)]
    assert exchanges(found) == {(1, None), (2, "gloo"), (2, "mpi")}
    by_mpi = Settings(processes=2, threads=1, backend="mpi", batch_size=32)
    moved = list(build(context(with_mpi(), 64), "safe").moves(by_mpi))
    assert [settings.difference(by_mpi) for what, settings in moved if what == "backend"] == [
        {"backend": ("gloo", "mpi")}
    ]
    assert exchanges(s for what, s in moved if what == "processes x threads") == {(1, None), (2, "mpi"), (4, "mpi")}


def test_a_script_of_several_processes_keeps_their_number_and_moves_the_rest() -> None:
    found = context(inventory(4, 4), 32, script="batches", why_not_several="the launch line says so")
    own = found.baseline.but(processes=2, threads=1, batch_size=16, backend="gloo")
    space = build(replace(found, baseline=own), "safe")
    assert own.but(threads=2) in space
    assert own.but(num_workers=1, prefetch_factor=2) in space
    assert {settings.processes for _, settings in space.moves(own)} == {2}
    assert {settings.global_batch for _, settings in build(replace(found, baseline=own), "max").moves(own)} == {32}


@pytest.mark.parametrize(
    ("factor", "noise_scale", "worth"), [(1, 7.0, 1.0), (4, None, 1.0), (4, 0.0, 0.25), (4, 2.0, 0.5), (4, 1e9, 1.0)]
)
def test_items_of_a_larger_batch_are_worth_less(factor: float, noise_scale: float | None, worth: float) -> None:
    assert progress(factor, noise_scale) == pytest.approx(worth)
