"""`autotune run` in a script's process: the same training, and hooks only where a knob needs them."""

import gc
import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import fingerprints
from autotune.runtime.session import OTHER, Session
from autotune.scripts import apply
from autotune.scripts.apply import Applied, Order, SharedBatch
from tests.torch.conftest import differences, process_state
from tests.torch.records import quiet, workers_of

BASELINE = quiet(batch_size=4)
Begin = Callable[..., Applied]


def data(count: int = 24) -> TensorDataset:
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


KNOWN = Fingerprint(
    (fingerprints.of_model(model()),),
    (fingerprints.of_optimizer(AdamW(model().parameters())), fingerprints.of_optimizer(SGD(model().parameters(), 0.1))),
    (fingerprints.of_loader(DataLoader(data(), 4, shuffle=True)), fingerprints.of_loader(DataLoader(data(), 4))),
)


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Put settings in force as the entry does; they are taken away at the end."""
    found: list[Applied] = []

    def make(**changes: Any) -> Applied:
        own = ("shared_batch", "level", "expected", "by_batch")
        options = {name: changes.pop(name) for name in own if name in changes}
        compared = changes.pop("compared", KNOWN)
        strict = changes.pop("strict", False)
        order = Order(BASELINE.but(**changes), BASELINE, compared, device="cpu", **options)
        applied = Applied(Order.from_text(order.as_text()), strict=strict)
        applied.install()
        found.append(applied)
        return applied

    yield make
    for applied in found:
        applied.remove()


def train(epochs: int = 2, seen: list[Any] | None = None) -> tuple[list[float], list[Tensor]]:
    """A plain script that evaluates. Returns losses and weights; ``seen`` gets what it trains with."""
    torch.manual_seed(0)
    net = model()
    optimizer = AdamW(net.parameters(), lr=0.01)
    loader, valid = DataLoader(data(), batch_size=4, shuffle=True), DataLoader(data(), batch_size=8)
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            losses += [nn.functional.mse_loss(net(inputs), targets).item() for inputs, targets in valid]
    if seen is not None:
        seen += [net, optimizer, loader, valid]
    return losses, list(net.parameters())


HAD_NO_EFFECT = "autotune: the script has not trained here: its profile had no effect\n"
CHANGES: dict[str, tuple[dict[str, Any], float]] = {
    "process-wide": ({"malloc": "keep", "threads": torch.get_num_threads() + 1}, 1e-6),
    "workers": ({"num_workers": 1}, 0.0),
    "fused": ({"optimizer_impl": "fused"}, 1e-5),
    "bf16": ({"precision": "bf16"}, 0.05),
    "all": ({"num_workers": 1, "optimizer_impl": "fused", "malloc": "keep"}, 1e-5),
}


@pytest.mark.parametrize(("changes", "tolerance"), CHANGES.values(), ids=CHANGES)
def test_a_plain_script_trains_the_same(begin: Begin, changes: dict[str, Any], tolerance: float) -> None:
    losses, weights = train()
    applied, seen = begin(**changes), list[Any]()
    found, ours = train(seen=seen)
    torch.testing.assert_close(found, losses, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours, weights, rtol=tolerance, atol=tolerance)
    assert applied.session.not_applied == ()
    net, optimizer, loader, valid = seen
    assert (workers_of(loader), workers_of(valid)) == (changes.get("num_workers", 0), 0)
    assert bool(optimizer._optimizer_step_pre_hooks) is ("optimizer_impl" in changes)
    assert (net in applied.session.models) is ("precision" in changes)


def test_what_a_script_drops_is_not_held(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains another model on other data in each fold; the first comes back, and has the settings again."""
    monkeypatch.setattr(apply, "LATE_STEPS", 5)
    applied = begin(num_workers=1, optimizer_impl="fused", precision="bf16")
    first, folds = list[Any](), list[list[weakref.ref[Any]]]()
    train(seen=first)
    for _ in range(5):
        seen = list[Any]()
        train(seen=seen)
        folds.append([weakref.ref(each) for each in seen])
        del seen
    gc.collect()
    assert [[each() is None for each in fold] for fold in folds[:3]] == 3 * [[True] * 4]
    net, optimizer, loader, _valid = first
    assert "fused" not in optimizer.param_groups[0] or not optimizer.param_groups[0]["fused"]
    for inputs, targets in loader:
        nn.functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
    assert (optimizer.param_groups[0]["fused"], workers_of(loader), net in applied.session.models) == (True, 1, True)
    assert applied.session.not_applied == ()


def test_a_loader_that_a_script_drops_is_freed_at_once(begin: Begin) -> None:
    """Each fold may hold all that fits: one more would not."""
    applied, gone = begin(num_workers=1), list[weakref.ref[Any]]()
    for _fold in range(3):
        seen = list[Any]()
        train(seen=seen, epochs=2)
        gone.append(weakref.ref(seen[2].dataset))
        del seen
        assert gone[-1]() is None, "without a walk over the heap"
    assert applied.session.not_applied == ()


@pytest.mark.parametrize("name", ["process-wide", "fused", "workers", "bf16"])
def test_only_what_the_knobs_need_is_hooked_and_all_is_put_back(begin: Begin, name: str) -> None:
    before, methods = process_state(), dict(vars(DataLoader))
    applied = begin(**CHANGES[name][0])
    train(epochs=1)
    changed = differences(before, process_state())
    assert {each for each in changed if "." in each} == ({"DataLoader.__iter__"} if name == "workers" else set())
    assert ("hooks" in changed) is (name in ("fused", "bf16"))
    signature = inspect.signature(DataLoader.__iter__)
    applied.remove()
    assert differences(before, process_state()) == []
    assert signature == inspect.signature(methods["__iter__"])


def test_what_equals_the_scripts_own_is_left_alone(begin: Begin) -> None:
    """A knob with the baseline's value is not put in force, even if it is not PyTorch's default."""
    before, settings = process_state(), BASELINE.but(threads=torch.get_num_threads() + 1, optimizer_impl="fused")
    applied = Applied(Order(settings, settings, KNOWN, device="cpu"))
    applied.install()
    assert differences(before, process_state()) == []
    applied.remove()


@pytest.mark.parametrize("changes", [{}, {"batch_size": 16, "shared_batch": SharedBatch(4, 16, 24)}])
def test_a_batch_that_was_not_tuned_stays(begin: Begin, changes: dict[str, Any]) -> None:
    """The script is started with another batch size than it was tuned with."""
    begin(num_workers=1, **changes)
    loader = DataLoader(data(), batch_size=8)
    assert len(next(iter(loader))[0]) == 8
    assert workers_of(loader) == 1


@pytest.mark.parametrize("tuned", [True, False])
def test_at_max_a_batch_is_there_from_the_start_and_goes_back_beside_another_model(begin: Begin, tuned: bool) -> None:
    """Schedules are made from a loader's length, before the model is there; and data sets may be made anew."""
    shared = SharedBatch(batch=4, share=8, samples=24)
    first, net = nn.Linear(3, 77), nn.Linear(3, 78)
    compared = replace(KNOWN, models=(fingerprints.of_model(net if tuned else first),))
    del first
    applied = begin(batch_size=8, level="max", shared_batch=shared, compared=compared)
    for _ in range(3):
        loader = DataLoader(data(), batch_size=4)
        assert len(loader) == 3
        assert [len(inputs) for inputs, _ in loader] == ([8] * 3 if tuned else [4] * 6)
    assert ("batch_size" in dict(applied.session.not_applied)) is not tuned
    assert len(DataLoader(data(25), batch_size=4)) == 7, "another data set keeps its batch"


def test_a_model_that_was_changed_since_is_refused_by_name(begin: Begin) -> None:
    applied = begin(precision="bf16", channels_last=True, level="safe", compared=replace(KNOWN, models=()))
    losses, _ = train(epochs=1)
    assert dict(applied.session.not_applied) == dict.fromkeys(("channels_last", "precision"), OTHER["models"])
    applied.remove()
    assert train(epochs=1)[0] == losses


@pytest.mark.parametrize("by_batch", [True, False])
def test_steps_are_counted_on_request(begin: Begin, by_batch: bool, capsys: pytest.CaptureFixture[str]) -> None:
    losses, _ = train()
    applied = begin(expected=41.5, by_batch=by_batch)
    applied._say()
    assert capsys.readouterr().err == HAD_NO_EFFECT
    assert train()[0] == losses
    applied._say()
    assert re.fullmatch(r"autotune: 12 steps, \S+ a second; the profile: 41.5 a second\n", capsys.readouterr().err)
    with torch.no_grad():
        plain = iter(DataLoader(data(), 4))
    counted = iter(DataLoader(data(), 4))
    assert (len(counted), counted._num_workers) == (len(plain), plain._num_workers)  # type: ignore[arg-type, attr-defined]


def test_loaders_of_each_epoch_are_changed_and_those_of_an_evaluation_are_left_alone(begin: Begin) -> None:
    begin(num_workers=1)
    dataset = data()
    loaders = [DataLoader(dataset, batch_size=4) for _ in range(3)]
    with torch.no_grad():
        list(loaders[0])
    for loader in loaders[1:]:
        next(iter(loader))
    assert [workers_of(loader) for loader in loaders] == [0, 1, 1]


def test_a_part_of_a_wrapper_is_found_by_its_optimizer(begin: Begin) -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.other = model(), nn.Linear(2, 2)

    wrapper, apart = Wrapper(), model()
    applied = begin(precision="bf16")
    optimizer = SGD(wrapper.net.parameters(), lr=0.1)
    wrapper.net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert applied.session.models == [wrapper.net]
    assert apart not in applied.session.models


def broken(*_: object, **__: object) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("strict", [False, True])
def test_a_failure_leaves_the_script_as_it_is_and_ends_a_trial(begin, strict, monkeypatch, capsys) -> None:
    losses, _ = train()
    before = process_state()
    begin(num_workers=1, optimizer_impl="fused", strict=strict)
    monkeypatch.setattr(Session, "prepare", broken)
    if strict:
        with pytest.raises(ValueError, match="broken"):
            train()
        return
    assert train()[0] == losses
    assert capsys.readouterr().err.count("the script runs as it is: ValueError: broken") == 1  # in no log of its own
    monkeypatch.undo()
    assert differences(before, process_state()) == []


def test_a_failure_in_a_step_lets_the_scripts_own_hooks_run(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch goes through all hooks then, so none may be taken away."""
    losses, _ = train()
    begin(optimizer_impl="fused")
    monkeypatch.setattr(Session, "prepare", broken)
    steps: list[Any] = []
    own = register_optimizer_step_pre_hook(lambda *_: steps.append(1))
    assert train()[0] == losses
    own.remove()
    assert len(steps) == 12


# Several processes ----------------------------------------------------------------------------------------------------

SHARED = SharedBatch(batch=16, share=8, samples=64)
LINES = TensorDataset(torch.zeros(64, 1))


def test_the_loader_of_the_training_data_gets_its_share_and_others_do_not(begin: Begin) -> None:
    signature = inspect.signature(DataLoader.__init__)
    begin(shared_batch=SHARED)
    loaders = (
        DataLoader(LINES, 16),
        DataLoader(LINES, batch_size=16, shuffle=True),
        DataLoader(dataset=LINES, batch_size=16),
    )
    assert [(loader.batch_size, len(loader)) for loader in loaders] == [(8, 8)] * 3
    others = (
        DataLoader(TensorDataset(torch.zeros(32, 1)), 16),
        DataLoader(LINES, 4),
        DataLoader(LINES, batch_sampler=BatchSampler(RandomSampler(LINES), 16, drop_last=False)),
        DataLoader(LINES, batch_size=None),
        DataLoader(LINES),
    )
    assert [loader.batch_size for loader in others] == [16, 4, None, None, 1]
    assert inspect.signature(DataLoader.__init__) == signature
    with pytest.raises(TypeError):
        DataLoader()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("batch", "world", "words"),
    [(8, 2, None), (16, 2, "would train on batches of 16"), (8, 1, "its process group has 1")],
)
def test_processes_that_would_not_share_are_told_from_those_that_do(batch, world, words, monkeypatch) -> None:
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: world)
    reason = SHARED.why_not(DataLoader(LINES, batch))
    assert (reason is None) == (words is None)
    assert words is None or words in str(reason)


def test_a_script_whose_processes_do_not_share_ends(begin: Begin) -> None:
    begin(shared_batch=SHARED, num_workers=1, processes=2)
    with pytest.raises(SystemExit, match="its process group has 1"):
        next(iter(DataLoader(LINES, 16)))
