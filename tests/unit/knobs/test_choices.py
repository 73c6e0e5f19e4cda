"""What each knob offers, and the reason for what it does not."""

import math
from dataclasses import replace

import pytest

from autotune.knobs.knob import Context
from autotune.knobs.settings import BY_NAME, Settings
from autotune.probes.facts import Backend, Gpu
from tests.doubles.simulation.simulator import GIB, context, inventory


def gpu(capability: tuple[int, int]) -> Gpu:
    return Gpu(0, "simulated", 16 * GIB, 16 * GIB, capability, False, 0)


def with_gpu(capability: tuple[int, int], **changes) -> Context:
    return context(replace(inventory(gpus=1), gpus=(gpu(capability),)), 64, **changes)


def with_features(*features: str) -> Context:
    host = inventory()
    return context(replace(host, cpu=replace(host.cpu, features=features)), 64)


def with_software(**changes) -> Context:
    host = inventory()
    return context(replace(host, software=replace(host.software, **changes)), 64, train_seconds=36_000.0)


def stream(own: int) -> Context:
    where = context(inventory(), 64, iterable=True)
    return replace(where, baseline=where.baseline.but(num_workers=own))


def offered(name: str, where: Context) -> tuple:
    return tuple(value for value, reason in BY_NAME[name].reasons(where).items() if reason is None)


def reasons(name: str, where: Context) -> dict:
    return {value: reason for value, reason in BY_NAME[name].reasons(where).items() if reason is not None}


LONG = context(inventory(), 64, train_seconds=36_000.0)
TWO, ONE = context(inventory(), 64), context(inventory(1, 1), 64)
BESIDE, GPU = replace(TWO, neighbours=0.9), replace(with_gpu((9, 0)), budget_seconds=180.0)
SPINNING = replace(with_software(environment=(("GOMP_SPINCOUNT", "0"),)), neighbours=0.9)
UNLIKE = context(replace(inventory(gpus=2), gpus=(gpu((7, 5)), replace(gpu((9, 0)), index=1))), 64)
MODES = ("off", "reduce-overhead", "default", "max-autotune")
LONG_COMPILE = "took 90 s, and search and proof with it do not fit into 180 s: --budget 10m"
OFFERED = [
    ("threads", TWO, (1, 2), {}),
    ("threads", ONE, (1,), {}),
    ("threads", with_software(default_threads=1), (1, 2), {}),  # a sandbox may show torch one CPU of several
    ("processes", TWO, (1, 2), {}),
    ("processes", ONE, (1,), {2: "the budget is one CPU"}),
    ("processes", context(inventory(4, 4), 50), (1, 2), {4: "does not divide the global batch of 50 equally"}),
    ("processes", with_software(backends=()), (1,), {2: "torch.distributed has no gloo backend here"}),
    ("num_workers", TWO, (0, 1, 2), {}),
    *(("num_workers", stream(own), (0, 1), {2: "other batches of an iterable dataset"}) for own in (0, 1)),
    ("num_workers", stream(2), (2,), {3: "other batches of an iterable dataset"}),
    ("binding", TWO, ("none", "cores"), {"numa": "the allowed CPUs lie on one NUMA node"}),
    ("binding", ONE, ("none",), {}),
    ("binding", context(inventory(16, 8, sockets=2), 64), ("none", "cores", "numa"), {}),
    *(("precision", with_features("avx2", each), ("fp32", "bf16"), {}) for each in ("avx512_bf16", "amx_bf16", "bf16")),
    ("precision", with_features("sve_bf16"), ("fp32", "bf16"), {"fp16": "slow on CPUs"}),
    ("precision", with_features("avx512f"), ("fp32",), {"bf16": "this CPU has no bfloat16 instructions"}),
    ("precision", with_gpu((6, 1)), ("fp32",), {"fp16": "needs capability 7.0, the GPU has 6.1"}),
    ("precision", with_gpu((7, 5)), ("fp32", "fp16"), {}),
    ("precision", with_gpu((8, 0)), ("fp32", "tf32", "bf16", "fp16"), {}),
    ("precision", UNLIKE, ("fp32", "fp16"), {"bf16": "needs capability 8.0, the GPU has 7.5"}),
    ("precision", replace(UNLIKE, task=replace(UNLIKE.task, device="cuda:1")), ("fp32", "tf32", "bf16", "fp16"), {}),
    ("omp_wait_policy", TWO, ("default",), {"passive": "at least 0.3 CPUs (now: 0.0)"}),
    ("omp_wait_policy", BESIDE, ("default", "passive"), {}),
    ("omp_wait_policy", SPINNING, ("default",), {"passive": "GOMP_SPINCOUNT=0 is yours and stays"}),
    ("omp_wait_policy", replace(GPU, neighbours=0.9), ("default",), {"passive": "it does nothing beside a GPU"}),
    ("pin_memory", TWO, (False,), {True: "it does nothing without a GPU"}),
    ("pin_memory", with_gpu((8, 0)), (False, True), {}),
    ("channels_last", TWO, (False,), {True: "no torch.nn.Sequential of convolutions"}),
    ("channels_last", context(inventory(), 64, convolutions=True), (False, True), {}),
    ("malloc", TWO, ("default", "keep"), {}),
    ("malloc", with_gpu((8, 0)), ("default",), {"keep": "it does nothing beside a GPU"}),
    ("cudnn_benchmark", with_gpu((8, 0), convolutions=True), (False, True), {}),
    ("cudnn_benchmark", with_gpu((8, 0), convolutions=True, sample_variation=3.0), (False,), {True: "shapes vary"}),
    ("compile", LONG, ("off", "default"), {}),
    ("compile", replace(LONG, train_seconds=None), ("off",), {"default": "--train-time"}),
    ("compile", replace(LONG, train_seconds=60.0), ("off",), {"default": "cannot pay back"}),
    ("compile", with_software(compiler=None), ("off",), {"default": "no C++ compiler"}),
    ("compile", replace(LONG, budget_seconds=90.0), ("off",), {"default": "may not fit into 90 s: --budget 10m"}),
    ("compile", replace(LONG, budget_seconds=300.0), ("off", "default"), {}),
    ("compile", replace(GPU, compile_seconds=None), ("off",), {"default": "before the model was compiled"}),
    ("compile", replace(GPU, compile_seconds=2.0), MODES, {}),
    ("compile", replace(GPU, compile_seconds=20.0), MODES[:-1], {"max-autotune": "4 times as long: --budget 10m"}),
    ("compile", replace(GPU, compile_seconds=90.0), ("off",), dict.fromkeys(MODES[1:], LONG_COMPILE)),
    ("compile", replace(GPU, compile_seconds=math.inf), ("off",), {"max-autotune": "did not finish"}),
    ("compile", replace(GPU, compile_failure="no Triton"), ("off",), {"default": "compile failed: no Triton"}),
    ("compile", replace(GPU, budget_seconds=30.0), ("off",), {"default": "may not fit into 30 s: --budget 3m"}),
    ("compile", with_gpu((6, 1)), ("off",), {"default": "Triton needs capability 7.0"}),
    ("compile", with_gpu((9, 0), batch_shapes=3), ("off",), {"default": "shapes change from batch to batch"}),
]


@pytest.mark.parametrize(("name", "where", "values", "words"), OFFERED)
def test_values_are_offered_or_left_out_with_the_reason(name, where, values, words):
    found = reasons(name, where)
    assert offered(name, where) == values
    assert not found.keys() & set(values)
    assert all(text in found[value] for value, text in words.items())


def test_fast_cores_alone_are_a_number_of_threads():
    """A07: 2 fast cores with two siblings each, 4 slow ones without."""
    host = inventory(8, 8)
    kinds = ["performance"] * 4 + ["efficiency"] * 4
    logical = tuple(replace(cpu, kind=kind) for cpu, kind in zip(host.cpu.logical, kinds, strict=True))
    budget = replace(host.budget, threads=8, cores=6, performance_cores=2)
    hybrid = replace(host, cpu=replace(host.cpu, logical=logical), budget=budget)
    assert {2, 4, 8} <= set(offered("threads", context(hybrid, 64)))


def test_threads_that_sleep_mean_nothing_to_one_thread():
    assert Settings(threads=1, omp_wait_policy="passive") == Settings(threads=1)
    assert Settings(threads=2, omp_wait_policy="passive").inherited != Settings(threads=2).inherited


@pytest.mark.parametrize(
    ("own", "cpus", "left_out"), [(1, 4, {2, 4}), (2, 4, {1, 4}), (3, 4, {1, 2, 4}), (2, 1, {1}), (1, 1, {2})]
)
def test_where_processes_change_training_the_users_own_number_stays(own, cpus, left_out):
    where = context(inventory(cpus, cpus), 48, why_not_several="the loss of a batch is a sum")
    where = replace(where, baseline=where.baseline.but(processes=own, backend="gloo" if own > 1 else None))
    assert offered("processes", where) == (own,)
    assert set(reasons("processes", where)) == left_out


@pytest.mark.parametrize(
    ("usable", "values"), [(("gloo", "mpi", "ccl"), ("gloo", "mpi", "ccl")), ((), ()), (("gloo", "nccl"), ("gloo",))]
)
def test_every_usable_backend_for_cpus_is_offered(usable, values):
    host = inventory()
    found = tuple(Backend(name, name in usable, f"no {name}") for name in ("gloo", "nccl", "mpi", "ccl"))
    software = replace(host.software, backends=found)
    where = context(replace(host, software=software), 64)
    assert offered("backend", where) == values
    missing = {"gloo", "nccl", "mpi", "ccl"} - set(values)
    assert set(reasons("backend", where)) == missing
    assert offered("processes", where) == ((1, 2) if values else (1,))
    card = context(replace(host, software=software, gpus=(gpu((8, 0)),)), 64)
    assert offered("backend", card) == (("nccl",) if "nccl" in usable else ())
