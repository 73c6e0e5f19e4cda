"""Compilers see the user's plain model: nothing of a session is traced, exported or scripted."""

import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import fingerprints
from autotune.runtime.session import Session
from autotune.scripts.apply import Applied, Order
from autotune.scripts.hooks import Hooks
from tests.torch.records import prepared, quiet

Loop = Callable[[], list[float]]
BACKEND = "aot_eager"
"""Traces forward and backward passes as the real compiler does, and keeps every bit."""
SESSIONS: dict[str, dict[str, Any]] = {
    "both": {"compile": "default", "precision": "bf16"},
    "layout": {"channels_last": True, "optimizer_impl": "fused"},
}


class Net(nn.Module):
    """A small network with a buffer that forward changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(16, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.head(torch.relu(self.conv(x)).flatten(1))


INPUTS = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(2))


pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated. Please switch:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),  # it compares the plain model with the prepared one
]


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def script(model: nn.Module) -> str:
    return str(torch.jit.script(model).code)


def trace(model: nn.Module) -> str:
    traced = torch.jit.trace(model, (INPUTS,))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    return str(traced.inlined_graph)


def export(model: nn.Module) -> str:
    return str(torch.export.export(model, (INPUTS,)).graph)


def symbols(model: nn.Module) -> str:
    return str(fx.symbolic_trace(model).code)


def dynamo(model: nn.Module) -> str:
    seen: list[str] = []

    def backend(graph: fx.GraphModule, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op != "placeholder")
        return graph

    torch.compile(model, backend=backend, fullgraph=True)(INPUTS)
    return "\n".join(seen)


TRACERS = (script, trace, export, symbols, dynamo)


def plain_text(text: str) -> str:
    """Return ``text`` without the source lines that graphs mention, TorchScript's own numbers, and strides.

    PyTorch 2.6 names the inputs of an exported graph, and only these, by where Dynamo found the module.
    """
    lines = [line.split(" # ")[0].rstrip() for line in text.splitlines() if line.strip()]
    return re.sub(r"(?<=[bp]_)l__model___|_mangle_\d+|strides=\[[\d, ]*\], ", "", "\n".join(lines))


@pytest.mark.parametrize("changes", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("tracer", TRACERS, ids=lambda tracer: tracer.__name__)
@pytest.mark.parametrize("after", [False, True], ids=["open", "closed"])
def test_a_prepared_model_is_traced_as_it_is(tracer, changes, after) -> None:
    expected = plain_text(tracer(net()))
    torch._dynamo.reset()
    model = net()
    with prepared(model, torch.optim.SGD(model.parameters(), lr=0.1), **changes) as session:
        session.backward(model(INPUTS).sum())
        found = "" if after else tracer(model)
    found = plain_text(tracer(model) if after else found)
    assert found == expected
    assert "bfloat16" not in found
    assert "autotune" not in found


@pytest.mark.parametrize("traced", [torch.jit.script, lambda model: torch.jit.trace(model, (INPUTS,))])
def test_a_traced_model_can_be_trained(traced: Callable[[nn.Module], nn.Module]) -> None:
    with Session(quiet(precision="bf16", compile="default"), device="cpu") as session:
        model = session.prepare(traced(net()))
        session.backward(model(INPUTS).sum())
        assert "compiles its model itself" in dict(session.not_applied)["compile"]


# Scripts that compile ------------------------------------------------------------------------------------------------


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(4)
    for _ in range(6):
        yield torch.randn(2, 3, 4, 4, generator=random), torch.randint(2, (2,), generator=random)


def a_model() -> list[float]:
    model = net()
    compiled = torch.compile(model, backend=BACKEND)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, y in batches():
        loss = nn.functional.cross_entropy(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def a_function_of_two_models() -> list[float]:
    """Gradients of two batches are added up for each step of two optimizers."""
    first, second = net(), net()

    @torch.compile(backend=BACKEND)
    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(first(x), y) + nn.functional.cross_entropy(second(x), y)

    optimizers = torch.optim.Adam(first.parameters()), torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for number, (x, y) in enumerate(batches()):
        loss = loss_of(x, y) / 2
        loss.backward()
        losses.append(loss.item())
        if number % 2:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    return losses


def a_step() -> list[float]:
    """Forward, backward and the model's own method in one compiled function."""
    model = net()
    model.compile(backend=BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> float:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return [step(x, y) for x, y in batches()]


SCRIPTS = (a_model, a_function_of_two_models, a_step)
FLAGS = Settings(threads=torch.get_num_threads(), optimizer_impl="fused", malloc="keep")


@pytest.mark.parametrize("loop", SCRIPTS, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("side", ["watched", "applied"])
def test_a_script_that_compiles_trains_the_same(loop: Loop, side: str) -> None:
    """Train plainly, then with the hooks of a trial or with settings in force: the same losses, no break in a graph."""
    expected = loop()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    if side == "watched":
        hooks = Hooks()
        hooks.install()
        hooks.look_at_calls()
        undo = hooks.remove
    else:
        applied = Applied(Order(FLAGS, Settings(threads=torch.get_num_threads()), compared()), strict=True)
        applied.install()
        undo = applied.remove
    try:
        found = loop()
    finally:
        undo()
    assert found == (pytest.approx(expected, rel=1e-4) if side == "applied" else expected)
    assert not torch._dynamo.utils.counters["graph_break"]


def compared() -> Fingerprint:
    """Return fingerprints of what the scripts train with, as tuning finds them."""
    kinds = [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD]
    made = [kind([torch.zeros(1, requires_grad=True)], lr=0.1) for kind in kinds]
    return Fingerprint((fingerprints.of_model(net()),), tuple(fingerprints.of_optimizer(each) for each in made))


def test_the_users_own_compile_of_a_prepared_model() -> None:
    """The user compiles after `prepare`: the graph holds the plain model, in full precision."""
    with Session(quiet(precision="bf16"), device="cpu") as session:
        model = session.prepare(net())
        assert model(INPUTS).dtype is torch.float32
        compiled = torch.compile(model, backend=BACKEND, fullgraph=True)
        with torch.no_grad():
            torch.testing.assert_close(compiled(INPUTS), net()(INPUTS))
