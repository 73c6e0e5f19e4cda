"""Places for processes: properties on random machines, and tables for the shapes that matter."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.knobs.binding import (
    BINDINGS,
    LOCAL_RANKS,
    VARIABLE,
    Affinity,
    AffinityPlan,
    cpu_list,
    own_affinity,
    plan,
    why_not,
    why_not_offered,
)
from autotune.knobs.binding import plan_of as given_plan
from autotune.knobs.settings import Settings
from autotune.probes.facts import Gpu, Inventory, LogicalCpu, NumaNode
from tests.doubles.simulation.simulator import GIB, inventory


def machine(
    *nodes: int, siblings: int = 1, without: frozenset[int] = frozenset(), slow: int = 0, gpus: tuple[int, ...] = ()
) -> Inventory:
    """A machine with so many cores on each of its nodes, numbered as Linux does: second siblings come last.

    Args:
        nodes: cores of each node.
        siblings: logical CPUs of each core.
        without: CPUs that a cpuset takes away.
        slow: this many of the last cores are efficiency cores.
        gpus: the node of each GPU.
    """
    homes = [node for node, count in enumerate(nodes) for _ in range(count)]
    count = len(homes)
    logical = tuple(
        LogicalCpu(k, homes[k % count], k % count, homes[k % count], _kind(k % count >= count - slow, slow))
        for k in range(siblings * count)
    )
    cpus = tuple(cpu.id for cpu in logical if cpu.id not in without)
    rows = tuple(NumaNode(n, tuple(cpu.id for cpu in logical if cpu.node == n)) for n in range(len(nodes)))
    plain = inventory()
    return replace(
        plain,
        cpu=replace(plain.cpu, logical=logical, nodes=rows),
        budget=replace(plain.budget, cpus=cpus, threads=len(cpus), cores=len({k % count for k in cpus})),
        gpus=tuple(Gpu(k, "simulated", GIB, GIB, (9, 0), False, node) for k, node in enumerate(gpus)),
    )


def _kind(is_slow: bool, slow: int) -> str:
    return "uniform" if not slow else "efficiency" if is_slow else "performance"


@st.composite
def machines(draw: st.DrawFn) -> Inventory:
    """Any machine with at least two CPUs left to us and memory somewhere."""
    nodes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    siblings = draw(st.sampled_from([1, 2]))
    count = sum(nodes) * siblings
    taken = draw(st.sets(st.integers(0, count - 1), max_size=max(0, count - 2)))
    slow = draw(st.integers(0, sum(nodes) - 1)) if len(nodes) == 1 else 0
    return machine(*nodes, siblings=siblings, without=frozenset(taken), slow=slow)


HOST = machine(4)
SHAPES = st.builds(
    Settings,
    processes=st.integers(1, 12),
    threads=st.integers(1, 12),
    num_workers=st.integers(0, 4),
    binding=st.sampled_from(BINDINGS[1:]),
)


@given(machines(), SHAPES)
@settings(max_examples=60, deadline=None)
def test_places_are_allowed_apart_and_large_enough(host: Inventory, wanted: Settings) -> None:
    allowed = host.budget.cpus
    found = plan(wanted, host)
    assert AffinityPlan.parse(found.text) == found
    assert found.allowed == allowed
    assert len(found.affinities) == wanted.processes
    for place in found.affinities:
        assert place.cpus
        assert place.workers
        assert set(place.cpus) | set(place.workers) <= set(allowed)
        assert not set(place.cpus) & set(place.workers) or set(place.cpus) <= set(place.workers)
    if wanted.processes * wanted.threads <= len(allowed):
        everything = [cpu for place in found.affinities for cpu in place.cpus]
        assert len(everything) == len(set(everything))
        assert all(len(place.cpus) >= wanted.threads for place in found.affinities)
        assert wanted.binding == "numa" or all(len(place.cpus) == wanted.threads for place in found.affinities)
    if wanted.binding == "numa" and why_not(wanted, host) is None:
        node_of = {cpu.id: cpu.node for cpu in host.cpu.logical}
        assert all(len({node_of[cpu] for cpu in place.cpus}) == 1 for place in found.affinities)


@pytest.mark.parametrize(
    ("host", "shape", "binding", "places"),
    [
        (machine(2), (1, 1, 1), "cores", "0/1"),
        (machine(2), (1, 1, 2), "cores", "0/0-1"),
        (machine(4, siblings=2), (2, 2, 1), "cores", "0-1/4-5 2-3/6-7"),
        (machine(4, siblings=2, without=frozenset({0, 1, 2, 3})), (2, 2, 0), "cores", "4-5/4-5 6-7/6-7"),
        (machine(4, without=frozenset({1, 2})), (2, 1, 0), "cores", "0/0 3/3"),
        (machine(6, siblings=2, slow=4), (1, 4, 2), "cores", "0-1,6-7/2-5,8-11"),
        (machine(4, slow=2), (2, 1, 1), "cores", "0/2 1/3"),
        (machine(4, slow=1), (2, 2, 0), "cores", "0-1/0-1 2-3/2-3"),  # no way gives each the same part of the slow one
        (machine(2, 2), (1, 2, 1), "numa", "0-1/2-3"),
        (machine(2, 2, 2), (3, 1, 0), "numa", "0-1/0-1 2-3/2-3 4-5/4-5"),
        (machine(2, 2, 2, 2), (2, 2, 1), "numa", "0-1/2-3 4-5/6-7"),
        (machine(1, 3), (2, 2, 0), "cores", "0-1/0-1 2-3/2-3"),  # no node-wise way gives each two CPUs
        (machine(2, 4, gpus=(1, 1)), (2, 1, 1), "cores", "2/3 4/5"),
        (machine(2, 4, gpus=(1, 0)), (2, 1, 0), "numa", "2-5/2-5 0-1/0-1"),
        (machine(1, 1), (3, 1, 0), "cores", "0/0 1/1 0/0"),
    ],
)
def test_shapes_that_matter(host: Inventory, shape: tuple[int, int, int], binding: str, places: str) -> None:
    processes, threads, workers = shape
    wanted = Settings(processes=processes, threads=threads, num_workers=workers, binding=binding)
    assert plan(wanted, host).text == f"{cpu_list(host.budget.cpus)} {places}"


@pytest.mark.parametrize(
    ("host", "refused", "reason"),
    [
        (machine(1), {"cores", "numa"}, "the budget is one CPU"),
        (machine(4), {"numa"}, "one NUMA node"),
        (machine(2, 2, without=frozenset({2, 3})), {"numa"}, "one NUMA node"),
        (machine(2, 2), set(), ""),
        (replace(HOST, cpu=replace(HOST.cpu, logical=())), {"cores", "numa"}, "where the CPUs are"),
        (replace(HOST, budget=replace(HOST.budget, threads=1, quota=1.5)), {"cores", "numa"}, "a CPU quota of 1.5"),
        (replace(HOST, software=replace(HOST.software, platform="darwin")), {"cores", "numa"}, "only Linux"),
    ],
)
def test_what_a_machine_cannot_do_has_a_reason(host: Inventory, refused: set[str], reason: str) -> None:
    found = {binding: why for binding, why in why_not_offered(host).items() if why is not None}
    assert set(found) == refused
    assert all(reason in text for text in found.values())


@pytest.mark.parametrize(
    ("host", "wanted", "reason"),
    [
        (machine(4), Settings(threads=4, binding="cores"), "one process has all CPUs"),
        (machine(4), Settings(threads=3, binding="cores"), None),
        (machine(4), Settings(processes=2, threads=3, binding="cores"), "2 x 3 threads need CPUs of their own"),
        (machine(4), Settings(threads=2, binding="numa"), "one NUMA node"),
        (machine(2, 2), Settings(threads=2, binding="numa"), None),
        (machine(2, 2), Settings(threads=3, binding="numa"), "do not fit into one node"),
        (machine(1, 3), Settings(processes=2, threads=2, binding="numa"), "do not fit into one node"),
    ],
)
def test_settings_for_which_a_binding_does_nothing(host: Inventory, wanted: Settings, reason: str | None) -> None:
    found = why_not(wanted, host)
    assert (found is None) == (reason is None)
    assert (reason or "") in (found or "")


@pytest.mark.parametrize("text", ["x", "0-3 0-", "0-3 1-0/1", "0-3 0/1@x"])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of CPUs"):
        AffinityPlan.parse(text)
    assert given_plan({VARIABLE: text}) == AffinityPlan()


@pytest.mark.parametrize("name", LOCAL_RANKS)
def test_each_process_finds_its_own_place(name: str) -> None:
    both = {VARIABLE: "0-3 0/1 2/3"}
    assert own_affinity(both) == Affinity((0,), (1,))
    assert own_affinity({**both, name: "1"}) == Affinity((2,), (3,))
    assert own_affinity({**both, name: "2"}) is None
    assert own_affinity({name: "0"}) is None
