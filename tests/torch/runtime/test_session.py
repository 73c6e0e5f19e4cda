"""A session around one training loop, in one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import fingerprints
from autotune.runtime.session import OTHER, Session
from tests.torch.records import network, quiet, shuffled


def test_prepare_takes_anything_in_any_order_and_twice() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    objects = shuffled(8, 4), model, scheduler, optimizer, "text"
    with Session(quiet(batch_size=4), device="cpu") as session:
        assert session.prepare(*objects) == objects
        assert session.prepare(*objects) == objects
        late = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer.step()
        late.step()
        scheduler.step()
        assert session.skipped_steps == 0
        assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        assert (session.models, session.optimizers) == ([model], [optimizer])


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


@pytest.mark.parametrize("wrap", [lambda m: m, DistributedDataParallel, nn.DataParallel])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.usefixtures("group")
def test_unwrapped_state_loads_strictly_both_ways(wrap: Any, compiled: bool) -> None:
    session = Session(quiet(precision="bf16", compile="default" if compiled else "off"), device="cpu")
    with session:
        own = session.prepare(network())
        model = torch.compile(wrap(own), backend="eager")
        wrap(own)(torch.ones(2, 8)).sum().backward()
        assert session.not_applied == ()
        assert session.unwrap(model) is own
        network().load_state_dict(session.unwrap(model).state_dict(), strict=True)
        session.unwrap(model).load_state_dict(network().state_dict(), strict=True)


def test_a_model_that_its_user_replicates_is_not_run_in_another_precision() -> None:
    model = nn.DataParallel(network())
    model.device_ids = [0, 1]
    with Session(quiet(precision="bf16"), device="cpu") as session:
        assert session.unwrap(session.prepare(model)) is model.module
        assert "DataParallel" in dict(session.not_applied)["precision"]


def test_a_switch_that_is_changed_meanwhile_is_read_back() -> None:
    threads = torch.get_num_threads()
    with Session(quiet(threads=threads + 1), device="cpu") as session:
        assert torch.get_num_threads() == threads + 1
        assert session.not_applied == ()
        torch.set_num_threads(threads)
        assert "in force" in dict(session.not_applied)["threads"]


def test_what_comes_too_late_or_does_not_exist_is_listed() -> None:
    late = torch.get_num_interop_threads() + 1
    asked = {"allocator": "jemalloc", "cudnn_benchmark": True, "pin_memory": True, "processes": 2}
    with (
        mock.patch("torch.set_num_interop_threads", side_effect=RuntimeError("cannot set")),
        Session(quiet(interop_threads=late, **asked), device="cpu") as session,
    ):
        assert set(dict(session.not_applied)) == {"interop_threads", *asked}
        assert len(session.notes) == 5
        assert repr(session).count("(") == 5


@pytest.mark.parametrize("level", ["safe", None])
def test_a_model_and_an_optimizer_that_were_not_compared_are_left_alone(level: str | None) -> None:
    """In a trial, which has no level, without a word: its settings are in force for others."""
    known, other = network(), nn.Linear(8, 1)
    adam, sgd = torch.optim.Adam(known.parameters()), torch.optim.SGD(other.parameters(), lr=0.1)
    compared = Fingerprint((fingerprints.of_model(known),), (fingerprints.of_optimizer(adam),))
    settings = quiet(precision="bf16", optimizer_impl="fused")
    with Session(settings, device="cpu", level=level, compared=compared) as session:
        session.prepare(known, adam)
        assert session.not_applied == ()
        session.prepare(other, sgd)
        refused = {"precision": OTHER["models"], "optimizer_impl": OTHER["optimizers"]}
        assert dict(session.not_applied) == (refused if level else {})
        assert session.seen.models == (fingerprints.of_model(known), fingerprints.of_model(other))
        assert not sgd._optimizer_step_pre_hooks


@pytest.mark.parametrize(("processes", "reasons"), [(1, {}), (2, {"processes": "the script trains as 1 process(es)"})])
def test_a_script_makes_its_group_itself(processes, reasons, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun starts a rank: nothing is joined, and what the rank trains with is its own."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    settings = Settings(processes=processes, threads=torch.get_num_threads(), batch_size=8)
    with Session(settings, device="cpu", moves=False) as session:
        assert (session.rank, session.world_size) == (0, processes)
        loader = DataLoader(TensorDataset(torch.zeros(32, 1)), batch_size=8)
        assert [len(batch) for (batch,) in session.prepare(loader)] == [8] * 4
        assert type(loader) is DataLoader
        assert {knob: why for knob, why in session.not_applied if knob == "processes"} == reasons


@pytest.fixture
def plain() -> Iterator[Session]:
    with Session(None, device="cpu") as found:
        yield found


def test_names_of_accelerate(plain: Session, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 1)
    assert (plain.is_main_process, plain.is_local_main_process) == (True, True)
    assert (plain.process_index, plain.local_process_index, plain.num_processes) == (0, 0, 1)
    assert plain.unwrap_model(model) is model
    plain.wait_for_everyone()
    plain.print("loss", 3, sep="=")
    plain.is_main = False
    plain.print("of another process")
    assert capsys.readouterr().out == "loss=3\n"


@pytest.mark.parametrize("wrap", [list, tuple, lambda items: dict(enumerate(items))])
@pytest.mark.parametrize("inner", ["model", "optimizer", "loader"])
def test_containers_of_what_is_to_be_prepared_are_refused(plain: Session, wrap: Any, inner: str) -> None:
    model = nn.Linear(2, 1)
    objects = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loader": DataLoader([1.0])}
    with pytest.raises(TypeError, match=r"Write tuned\.prepare\(\*objects"):
        plain.prepare(wrap(["config", objects[inner]]))
