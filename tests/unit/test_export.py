"""Every knob of a profile is in the text of every target: as a line to paste, or named with the reason."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.errors import UsageError
from autotune.export import TARGETS, exported, text
from autotune.knobs.knob import Plan
from autotune.knobs.settings import KNOB_NAMES
from tests.doubles.plans import GPU, ONE, PLANS, SLEEPING, TWO

MPI = "torchrun starts gloo, whose rate was not measured"
GLOO = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
JEMALLOC = {"OMP_NUM_THREADS": "2", "LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}
CHANGES: dict[str, tuple[Plan, Any, dict[str, Any]]] = {
    "processes": (TWO, 4, {"command": f"{TWO.command} --another"}),
    "threads": (ONE, 1, {"environment": {"OMP_NUM_THREADS": "1"}}),
    "interop_threads": (ONE, 2, {}),
    "omp_wait_policy": (SLEEPING, "default", {"environment": {"OMP_NUM_THREADS": "2"}}),
    "backend": (TWO, "mpi", {}),
    "binding": (ONE, "cores", {"command": "taskset -c 0 python train.py"}),
    "num_workers": (TWO, 2, {}),
    "prefetch_factor": (TWO, 2, {}),
    "worker_start": (TWO, "fork", {}),
    "worker_threads": (TWO, "one", {}),
    "pin_memory": (GPU, False, {}),
    "batch_size": (ONE, 32, {}),
    "channels_last": (TWO, False, {}),
    "optimizer_impl": (TWO, "foreach", {}),
    "allocator": (ONE, "jemalloc", {"environment": JEMALLOC}),
    "malloc": (TWO, "default", {"environment": GLOO}),
    "cudnn_benchmark": (GPU, False, {}),
    "compile": (GPU, "reduce-overhead", {}),
    "precision": (TWO, "fp16", {}),
    "matmul_precision": (ONE, "medium", {}),
}
"""For each knob a plan, another value of the knob, and what else of the plan follows from it."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("knob", KNOB_NAMES)
def test_no_knob_is_lost(knob: str, target: str) -> None:
    plan, value, others = CHANGES[knob]
    other = replace(plan, settings=plan.settings.but(**{knob: value}), **others)
    assert text(target, plan, ()) != text(target, other, ())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_what_is_not_expressed_is_said_in_comments(plan: Plan, target: str) -> None:
    found = text(target, plan, ["from a profile"])
    assert found.startswith("# from a profile\n")
    for knob in KNOB_NAMES:
        if knob not in TARGETS[target][1](plan)[1]:
            assert any(line.startswith("#") and knob in line for line in found.splitlines()), knob


@pytest.mark.parametrize("target", ["lightning", "transformers"])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_python_is_valid(plan: Plan, target: str) -> None:
    ast.parse(text(target, plan, ["x"]))


@pytest.mark.parametrize("plan", [ONE, GPU])
def test_yaml_is_valid(plan: Plan) -> None:
    found = yaml.safe_load(text("accelerate", plan, ["x"]))
    assert found["use_cpu"] is (plan.device.on_host)
    assert found.get("dynamo_config", {}).get("dynamo_mode") == (None if plan is ONE else "default")


@pytest.mark.parametrize("target", ["env", "torchrun", "accelerate", "lightning", "transformers"])
def test_a_backend_that_torchrun_cannot_start_is_named(target: str) -> None:
    plan = replace(TWO, settings=TWO.settings.but(backend="mpi"))
    assert MPI in text(target, plan, ())
    assert MPI not in text(target, TWO, ())


def test_an_allocator_that_is_missing_is_named() -> None:
    settings = ONE.settings.but(allocator="jemalloc")
    plan = replace(ONE, settings=settings, missing={"allocator": "jemalloc is not installed here"})
    for target in TARGETS:
        assert "#   allocator=jemalloc: jemalloc is not installed here" in text(target, plan, ())


def test_own_values_need_no_line_by_hand() -> None:
    found = text("env", ONE, (), ONE.settings.but(num_workers=5))
    assert "by hand:\n#   num_workers=" in found
    assert f"As in your own settings: interop_threads={ONE.settings.interop_threads}, batch_size=" in found


@pytest.mark.parametrize(("name", "close"), [("lightnin", "lightning"), ("Env", "env"), ("horovod", None)])
def test_unknown_targets_are_refused(name: str, close: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        exported(Path("profile.yaml"), None, name)
    assert "env, torchrun, accelerate, lightning, transformers" in str(caught.value)
    assert (f"did you mean {close}?" in str(caught.value)) is (close is not None)
