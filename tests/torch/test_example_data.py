"""The examples' data is there without a download, the same every time, and can be learned."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

EXAMPLES = Path(__file__).parents[2] / "examples"
CROPS = 6

SAMPLES = {
    "digits": ((1, 8, 8), ()),
    "jpeg_folder": ((3, 128, 128), ()),
    "char_transformer": ((129,),),
    "tabular_mlp": ((65,), ()),
    "lstm_forecast": ((96, 5), (24,)),
    "recommender": ((12,), ()),
}
SIZES = {
    "digits": 1797,
    "jpeg_folder": 8 * CROPS,
    "tabular_mlp": 20_000,
    "lstm_forecast": 64 * 1417,
    "recommender": 200_000,
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small steps, and other work on the machine: threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return load("jpeg_folder").jpeg_folder(tmp_path_factory.mktemp("cache"), CROPS)


@pytest.fixture(params=SAMPLES)
def example(request: pytest.FixtureRequest, jpegs: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Each example; the JPEG folder with a few images only, outside the user's cache."""
    module = load(request.param)
    if request.param == "jpeg_folder":
        monkeypatch.setattr(module, "jpeg_folder", lambda _root: jpegs)
    module.name = request.param
    return module


def tensors(sample: object) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(value) for value in (sample if isinstance(sample, tuple) else (sample,)))


def test_samples_have_the_promised_shapes_and_are_the_same_again(example: ModuleType) -> None:
    dataset = example.build_dataset()
    assert tuple(tuple(value.shape) for value in tensors(dataset[0])) == SAMPLES[example.name]
    assert len(dataset) == SIZES.get(example.name, len(dataset)) >= 48
    found = []
    for again in (dataset, example.build_dataset()):
        torch.manual_seed(1)
        found.append(tensors(again[len(again) // 2]))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_few_steps_lower_the_loss(example: ModuleType) -> None:
    torch.manual_seed(0)
    dataset = example.build_dataset()
    few = Subset(dataset, range(0, len(dataset), len(dataset) // 48))
    batch = next(iter(DataLoader(few, batch_size=8, shuffle=True)))
    model = example.build_model()
    build_optimizer = getattr(example, "build_optimizer", torch.optim.AdamW)
    optimizer = build_optimizer(model.parameters())
    losses = []
    for _ in range(6):
        loss = example.compute_loss(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
