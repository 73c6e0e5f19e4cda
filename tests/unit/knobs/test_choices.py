"""What each knob offers, and the reason for what it does not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME, KNOB_NAMES, KNOBS
from autotune.probes.facts import Backend, Gpu
from benchmarks.simulation.simulator import GIB, context, inventory


def gpu(capability: tuple[int, int]) -> Gpu:
    return Gpu(0, "simulated", 16 * GIB, 16 * GIB, capability, False, 0)


def with_gpu(capability: tuple[int, int], **changes) -> Context:
    return context(replace(inventory(gpus=1), gpus=(gpu(capability),)), 64, **changes)


def with_features(*features: str) -> Context:
    host = inventory()
    return context(replace(host, cpu=replace(host.cpu, features=features)), 64)


def offered(name: str, where: Context) -> tuple:
    return BY_NAME[name].choices(where).values


def reasons(name: str, where: Context) -> dict:
    return dict(BY_NAME[name].choices(where).left_out)


def test_one_row_for_every_field_of_settings():
    assert {knob.name for knob in KNOBS} == set(KNOB_NAMES)
    assert all(knob.level in LEVELS for knob in KNOBS)


def test_two_cpus():
    where = context(inventory(), 64)
    assert offered("threads", where) == (1, 2)
    assert offered("processes", where) == (1, 2)
    assert offered("num_workers", where) == (0, 1, 2)
    assert offered("binding", where) == ("none", "cores")
    assert reasons("binding", where) == {"numa": "the allowed CPUs lie on one NUMA node"}


def test_one_cpu():
    where = context(inventory(1, 1), 64)
    assert offered("threads", where) == (1,)
    assert offered("processes", where) == (1,)
    assert reasons("processes", where) == {2: "the budget is one CPU"}
    assert offered("binding", where) == ("none",)


def test_two_sockets_can_be_bound_by_node():
    assert offered("binding", context(inventory(16, 8, sockets=2), 64)) == ("none", "cores", "numa")


def test_fast_cores_alone_are_a_number_of_threads():
    """A07: 2 fast cores with two siblings each, 4 slow ones without."""
    host = inventory(8, 8)
    kinds = ["performance"] * 4 + ["efficiency"] * 4
    logical = tuple(replace(cpu, kind=kind) for cpu, kind in zip(host.cpu.logical, kinds, strict=True))
    budget = replace(host.budget, threads=8, cores=6, performance_cores=2)
    hybrid = replace(host, cpu=replace(host.cpu, logical=logical), budget=budget)
    assert {2, 4, 8} <= set(offered("threads", context(hybrid, 64)))


def test_threads_beyond_what_torch_would_take():
    """A sandbox may show torch one CPU of eight."""
    host = inventory(8, 8)
    where = context(replace(host, software=replace(host.software, default_threads=1)), 64)
    assert 8 in offered("threads", where)


@pytest.mark.parametrize("feature", ["avx512_bf16", "amx_bf16", "bf16", "sve_bf16"])
def test_bf16_on_cpus_needs_the_instructions(feature):
    assert offered("precision", with_features("avx2", feature)) == ("fp32", "bf16")


def test_bf16_without_instructions_is_left_out_with_the_reason():
    where = with_features("avx2", "avx512f")
    assert offered("precision", where) == ("fp32",)
    assert reasons("precision", where)["bf16"] == "this CPU has no bfloat16 instructions"
    assert "fp16" in reasons("precision", where)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((6, 1), ("fp32",)),
        ((7, 5), ("fp32", "fp16")),
        ((8, 0), ("fp32", "tf32", "bf16", "fp16")),
        ((9, 0), ("fp32", "tf32", "bf16", "fp16")),
    ],
)
def test_precision_on_gpus_goes_by_capability(capability, expected):
    assert offered("precision", with_gpu(capability)) == expected


def test_pinned_memory_only_with_an_accelerator():
    assert offered("pin_memory", context(inventory(), 64)) == (False,)
    assert offered("pin_memory", with_gpu((8, 0))) == (False, True)


def test_threads_that_sleep_compete_beside_other_processes_only():
    quiet = context(inventory(), 64)
    beside = replace(quiet, neighbours=0.9)
    assert offered("omp_wait_policy", quiet) == ("default",)
    little = reasons("omp_wait_policy", replace(quiet, neighbours=0.12))["passive"]
    assert "take 0.3 CPUs or more" in little
    assert "they took 0.1" in little
    assert offered("omp_wait_policy", beside) == ("default", "passive")
    host = inventory()
    own = replace(host, software=replace(host.software, environment=(("GOMP_SPINCOUNT", "0"),)))
    assert offered("omp_wait_policy", replace(beside, inventory=own)) == ("default",)
    assert offered("omp_wait_policy", replace(with_gpu((8, 0)), neighbours=0.9)) == ("default",)


def test_threads_that_sleep_mean_nothing_to_one_thread():
    assert Settings(threads=1, omp_wait_policy="passive") == Settings(threads=1)
    assert Settings(threads=2, omp_wait_policy="passive").inherited != Settings(threads=2).inherited


def test_channels_last_only_with_convolutions():
    assert offered("channels_last", context(inventory(), 64)) == (False,)
    assert offered("channels_last", context(inventory(), 64, convolutions=True)) == (False, True)


def test_cudnn_benchmark_only_for_fixed_shapes():
    assert offered("cudnn_benchmark", with_gpu((8, 0), convolutions=True)) == (False, True)
    assert offered("cudnn_benchmark", with_gpu((8, 0), convolutions=True, sample_variation=3.0)) == (False,)


@pytest.mark.parametrize(
    ("train_seconds", "compiler", "expected", "reason"),
    [
        (None, "g++", ("off",), "--train-time"),
        (60.0, "g++", ("off",), "cannot pay back"),
        (36_000.0, None, ("off",), "no C++ compiler"),
        (36_000.0, "g++", ("off", "default"), None),
    ],
)
def test_compile_must_be_possible_and_pay_back(train_seconds, compiler, expected, reason):
    host = inventory()
    where = context(replace(host, software=replace(host.software, compiler=compiler)), 64, train_seconds=train_seconds)
    assert offered("compile", where) == expected
    assert reason is None or reason in reasons("compile", where)["default"]


def test_compile_needs_a_budget_in_which_it_can_be_proven():
    where = replace(context(inventory(), 64, train_seconds=36_000.0), budget_seconds=90.0)
    assert "does not fit into 90 s: --budget 10m" in reasons("compile", where)["default"]
    assert offered("compile", replace(where, budget_seconds=300.0)) == ("off", "default")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"compile_seconds": 20.0}, None),
        ({"compile_seconds": 90.0}, "took 90 s, and search and proof with it do not fit into 180 s: --budget 10m"),
        ({"compile_seconds": math.inf}, "did not come to its end"),
        ({"budget_seconds": 30.0}, "may not fit into 30 s: --budget 3m"),
    ],
    ids=str,
)
def test_on_gpus_compile_competes_as_far_as_there_is_time(changes, words):
    where = replace(with_gpu((9, 0)), **{"budget_seconds": 180.0, **changes})
    modes = ("off", "reduce-overhead", "default", "max-autotune")
    assert offered("compile", where) == (("off",) if words else modes)
    assert words is None or all(words in reason for reason in reasons("compile", where).values())


def test_on_gpus_compile_needs_triton_and_shapes_that_stay():
    assert "needs capability 7.0" in reasons("compile", with_gpu((6, 1)))["default"]
    assert "shapes change from batch to batch" in reasons("compile", with_gpu((9, 0), batch_shapes=3))["default"]


def test_processes_must_divide_the_batch_and_have_a_backend():
    assert offered("processes", context(inventory(4, 4), 50)) == (1, 2)
    assert "does not divide" in reasons("processes", context(inventory(4, 4), 50))[4]
    host = inventory()
    bare = context(replace(host, software=replace(host.software, backends=())), 64)
    assert offered("processes", bare) == (1,)
    assert "no gloo backend" in reasons("processes", bare)[2]


@pytest.mark.parametrize("own", [0, 1, 2])
def test_the_batches_of_a_stream_stay_as_they_are(own: int):
    where = context(inventory(), 64, iterable=True)
    where = replace(where, baseline=where.baseline.but(num_workers=own))
    assert offered("num_workers", where) == (own,)
    assert "other batches" in reasons("num_workers", where)[own + 1]


@pytest.mark.parametrize(
    ("own", "cpus", "left_out"), [(1, 4, {2, 4}), (2, 4, {1, 4}), (3, 4, {1, 2, 4}), (2, 1, {1}), (1, 1, {2})]
)
def test_where_processes_change_training_the_users_own_number_stays(own, cpus, left_out):
    where = context(inventory(cpus, cpus), 48, why_not_several="the loss of a batch is a sum")
    where = replace(where, baseline=where.baseline.but(processes=own, backend="gloo" if own > 1 else None))
    assert offered("processes", where) == (own,)
    assert set(reasons("processes", where)) == left_out


@pytest.mark.parametrize(
    ("usable", "values"),
    [
        (("gloo",), ("gloo",)),
        (("gloo", "mpi"), ("gloo", "mpi")),
        (("gloo", "mpi", "ccl"), ("gloo", "mpi", "ccl")),
        (("mpi",), ("mpi",)),
        ((), ("gloo",)),
        (("gloo", "nccl"), ("gloo",)),
    ],
)
def test_every_usable_backend_for_cpus_is_offered(usable, values):
    host = inventory()
    found = tuple(Backend(name, name in usable, f"no {name}") for name in ("gloo", "nccl", "mpi", "ccl"))
    where = context(replace(host, software=replace(host.software, backends=found)), 64)
    assert offered("backend", where) == values
    missing = {"gloo", "nccl", "mpi", "ccl"} - set(values if usable else ())
    assert set(reasons("backend", where)) == missing
    assert offered("processes", where) == ((1, 2) if usable and values[0] in usable else (1,))


def test_gpus_exchange_through_nccl_alone():
    host = with_gpu((8, 0)).inventory
    found = tuple(Backend(name, True, "") for name in ("gloo", "nccl", "mpi"))
    where = context(replace(host, software=replace(host.software, backends=found)), 64)
    assert offered("backend", where) == ("nccl",)
    assert reasons("backend", where)["mpi"] == "nccl exchanges between GPUs directly"
