from __future__ import annotations

import contextlib
import copy
import importlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from autotune.runtime.appliers import compile as compiling
from autotune.runtime.appliers import data_parallel
from autotune.runtime.pace import SLOW_WINDOWS, STEPS, WARMUP_STEPS
from torch import nn
from torch.nn.parallel import DistributedDataParallel, replicate
from torch.utils.data import DataLoader, TensorDataset

from autotune.knobs.settings import Settings
from autotune.runtime import calls
from autotune.runtime.session import Session

from .records import network, quiet, shuffled


def test_prepare_takes_anything_in_any_order_and_twice() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    with Session(quiet(batch_size=4), device="cpu") as session:
        loader, same, steps, ours, other = session.prepare(shuffled(8, 4), model, scheduler, optimizer, "text")
        assert (same, steps, ours, other) == (model, scheduler, optimizer, "text")
        assert session.prepare(loader, model, optimizer) == (loader, model, optimizer)
        late = torch.optim.lr_scheduler.StepLR(ours, 1)
        ours.step()
        late.step()
        steps.step()
        assert session.skipped_steps == 0
        assert steps.get_last_lr() == [optimizer.param_groups[0]["lr"]]


def test_accumulation_that_the_user_writes_is_the_users() -> None:
    weight = nn.Parameter(torch.zeros(1))
    with Session(quiet(batch_size=1), device="cpu") as session:
        optimizer, loader = session.prepare(
            torch.optim.SGD([weight], lr=1.0), DataLoader([1.0, 3.0, 10.0, 20.0], batch_size=1)
        )
        for k, batch in enumerate(loader, start=1):
            with session.no_sync() if k % 2 else contextlib.nullcontext():
                session.backward((weight * batch).mean() / 2)
            if k % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert weight.item() == pytest.approx(-17.0)


def test_clipping_returns_the_norm() -> None:
    weight = nn.Parameter(torch.zeros(1))
    with Session(quiet(batch_size=2), device="cpu") as session:
        optimizer, loader = session.prepare(torch.optim.SGD([weight], lr=1.0), DataLoader([3.0, 5.0], batch_size=2))
        for batch in loader:
            session.backward((weight * batch).mean())
            assert session.clip_grad_norm_([weight], 1.0).item() == 4.0
            optimizer.step()
    assert weight.item() == pytest.approx(-1.0, abs=1e-4)


@pytest.fixture
def group(tmp_path: Path) -> Any:
    """A process group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_unwrapped_state_loads_strictly_both_ways(
    compiled: bool, shared: bool, group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    with Session(quiet(compile="default" if compiled else "off", precision="bf16"), device="cpu") as session:
        model = session.prepare(network())
        if shared:
            model = DistributedDataParallel(model)
        model(torch.ones(2, 8)).sum().backward()
        assert "compile" not in dict(session.not_applied)
        state = session.unwrap(model).state_dict()
        network().load_state_dict(state, strict=True)
        session.unwrap(model).load_state_dict(network().state_dict(), strict=True)
        session.unwrap(torch.compile(model, backend="eager")).load_state_dict(state, strict=True)
        twin = copy.deepcopy(session.unwrap(model))
        pickle.loads(pickle.dumps(twin)).load_state_dict(state)


def test_a_replicated_model_trains_alike_and_unwraps(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own replicas, on a machine without GPUs: each runs in a thread of its own, as DataParallel has it."""
    monkeypatch.setattr(data_parallel, "idle", lambda device: None)
    monkeypatch.setattr(
        importlib.import_module("torch.nn.parallel.replicate"),
        "_broadcast_coalesced_reshape",
        lambda tensors, devices, detach: [[tensor.clone() for tensor in tensors] for _ in devices],
    )
    inputs, alone, seen = torch.randn(8, 8), network(), []
    with Session(quiet(precision="bf16"), device="cpu") as session:
        session.prepare(alone)(inputs).square().mean().backward()
    own = network()
    own[0].register_forward_hook(lambda module, received, output: seen.append(output.dtype))
    with Session(quiet(data_parallel=True, precision="bf16"), device="cpu") as session:
        model = session.prepare(own)
        assert model is own
        parallel = calls.current(model).parallel
        assert isinstance(parallel, nn.DataParallel)
        with ThreadPoolExecutor(2) as threads:
            parts = threads.map(
                lambda replica, share: replica(share), replicate(parallel.module, [0, 1]), inputs.chunk(2)
            )
            session.backward(torch.cat(list(parts)).square().mean())
        assert session.not_applied == ()
    assert seen == [torch.bfloat16] * 2
    for mine, other in zip(own.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0.02, atol=1e-3)


def test_a_model_that_its_user_replicates_keeps_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_parallel, "idle", lambda device: None)
    own, seen = network(), []
    own[0].register_forward_hook(lambda module, received, output: seen.append(output.dtype))
    with Session(quiet(data_parallel=True, precision="bf16"), device="cpu") as session:
        model = session.prepare(nn.DataParallel(own))
        model(torch.ones(2, 8))
        assert session.unwrap(model) is own
        assert session.not_applied == ()
    assert seen == [torch.bfloat16]


def test_a_model_that_its_user_replicates_is_not_run_in_another_precision() -> None:
    model = nn.DataParallel(network())
    model.device_ids = [0, 1]
    with Session(quiet(precision="bf16"), device="cpu") as session:
        assert session.unwrap(session.prepare(model)) is model.module
        assert "float16" in dict(session.not_applied)["precision"]


def test_a_failing_compiler_is_said_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler here")

    torch._dynamo.reset()  # else an earlier test's graph would serve
    monkeypatch.setattr(compiling, "BACKEND", broken)
    with Session(quiet(compile="default"), device="cpu") as session:
        model = session.prepare(network())
        assert model(torch.ones(2, 8)).shape == (2, 1)
        assert "no compiler here" in dict(session.not_applied)["compile"]


def test_errors_of_the_model_itself_stay_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("mine")

    with Session(quiet(), device="cpu") as session, pytest.raises(KeyError, match="mine"):
        session.prepare(Wrong())(torch.ones(1))


def test_channels_last_reaches_the_model_and_leaves_batches_alone() -> None:
    with Session(quiet(channels_last=True), device="cpu") as session:
        loader, model = session.prepare(DataLoader(torch.ones(2, 3, 4, 4), batch_size=2), nn.Conv2d(3, 4, 3))
        assert model.weight.is_contiguous(memory_format=torch.channels_last)
        batch = next(iter(loader))
        assert batch.is_contiguous()
        assert model(batch).is_contiguous()
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(network())
        assert "no two-dimensional" in dict(session.not_applied)["channels_last"]


def test_process_wide_switches_are_put_back() -> None:
    threads = torch.get_num_threads()
    with Session(quiet(threads=threads + 1), device="cpu") as session:
        assert torch.get_num_threads() == threads + 1
        assert session.not_applied == ()
        torch.set_num_threads(threads)
        assert "in force" in dict(session.not_applied)["threads"]
    assert torch.get_num_threads() == threads


def test_what_comes_too_late_or_does_not_exist_is_listed() -> None:
    late = torch.get_num_interop_threads() + 1
    with mock.patch("torch.set_num_interop_threads", side_effect=RuntimeError("cannot set")):
        session = Session(
            quiet(interop_threads=late, allocator="jemalloc", cudnn_benchmark=True, pin_memory=True, processes=2),
            device="cpu",
        )
        alone = Session(quiet(data_parallel=True), device="cpu")
    assert dict(alone.not_applied) == {"data_parallel": "no CUDA device"}
    assert set(dict(session.not_applied)) == {
        "interop_threads",
        "allocator",
        "cudnn_benchmark",
        "pin_memory",
        "processes",
    }
    assert len(session.notes) == 5
    session.close()


@pytest.mark.parametrize(("level", "batch"), [("max", 32), ("amp", 8), ("safe", 8), (None, 8)])
def test_max_takes_the_profiles_batch_and_safe_the_users(level: str | None, batch: int) -> None:
    with Session(quiet(batch_size=32), device="cpu", level=level) as session:
        loader = session.prepare(shuffled(64, 8))
        assert loader.batch_size == len(next(iter(loader))[0]) == batch


def test_random_numbers_are_left_alone() -> None:
    state = torch.get_rng_state()
    with Session(quiet(batch_size=8, num_workers=1, optimizer_impl="fused"), device="cpu") as session:
        model = network()
        session.prepare(model, torch.optim.Adam(model.parameters()), shuffled(8, 8))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("batch", "said"), [(4, 1), (8, 0)])
def test_pace_is_watched_where_the_batch_is_the_measured_one(batch: int, said: int) -> None:
    weight = nn.Parameter(torch.zeros(1))
    with Session(quiet(batch_size=4), device="cpu", level="safe", step_seconds=1e-12) as session:
        optimizer, _loader = session.prepare(torch.optim.SGD([weight], lr=1.0), shuffled(16, batch))
        for _ in range(WARMUP_STEPS + SLOW_WINDOWS * STEPS):
            optimizer.step()
        assert session.preparer._watchers == ()  # later steps cost nothing
        assert sum("a step takes" in note for note in session.notes) == said


def test_baseline_session_leaves_everything_as_it_is() -> None:
    loader, model = shuffled(8, 4), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with Session(None, device="cpu") as session:
        same, ours, prepared = session.prepare(model, optimizer, loader)
        assert same is model
        assert ours is optimizer
        assert prepared.loader is loader
        assert session.not_applied == ()
        assert session.state_dict() == {}


def test_settings_are_kept_for_the_report() -> None:
    settings = Settings(threads=torch.get_num_threads(), interop_threads=torch.get_num_interop_threads(), batch_size=3)
    with Session(settings, device="cpu", level="amp", origin="test") as session:
        assert (session.settings, session.level, session.origin, session.rank, session.world_size, session.is_main) == (
            settings,
            "amp",
            "test",
            0,
            1,
            True,
        )


@pytest.mark.parametrize(("processes", "reasons"), [(1, {}), (2, {"processes": "the script trains as 1 process(es)"})])
def test_a_script_makes_its_group_itself(
    processes: int, reasons: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchrun starts a rank: nothing is joined, and what the rank trains with is its own."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    settings = Settings(processes=processes, threads=torch.get_num_threads(), batch_size=8)
    with Session(settings, device="cpu", moves=False) as session:
        assert (session.rank, session.world_size) == (0, 1)
        loader = DataLoader(TensorDataset(torch.zeros(32, 1)), batch_size=8)
        assert [len(batch) for (batch,) in session.prepare(loader)] == [8] * 4
        assert {knob: why for knob, why in session.not_applied if knob == "processes"} == reasons
