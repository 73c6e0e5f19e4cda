"""NHWC inside a sequence of PyTorch's own layers: no code of the user's finds another layout than in plain PyTorch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parametrizations, prune
from torch.overrides import TorchFunctionMode

from autotune.runtime.session import Session
from tests.torch.records import prepared, quiet

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(*, norm: bool = True) -> nn.Sequential:
    """Runs of layers, the first over two sequences; a layer that draws, and a convolution by itself."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), *[nn.BatchNorm2d(4)] * norm, nn.ReLU(inplace=True))
    rest = [nn.Conv2d(4, 6, 3), nn.MaxPool2d(2), *[nn.Dropout(0.5)] * norm, nn.Conv2d(6, 4, 1)]
    return nn.Sequential(first, *rest, nn.Flatten(), nn.Linear(16, 1))


class Layouts(TorchFunctionMode):
    """Notes for each convolution if its input is in NHWC."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.conv2d:
            self.seen.append(args[0].is_contiguous(memory_format=torch.channels_last))
        return function(*args, **(kwargs or {}))


def test_layers_run_in_nhwc_and_nothing_else_does() -> None:
    model = network()
    with Session(quiet(channels_last=True), device="cpu") as session, Layouts() as layouts:
        session.prepare(model)
        assert session.not_applied == ()
        model(IMAGES)
        assert layouts.seen == [True, True, False], "the last one has no layer behind it"
        model.eval()(IMAGES)
        with torch.no_grad():
            model.train()(IMAGES)
        model[0](IMAGES)
        assert not any(layouts.seen[3:])
    with Layouts() as layouts:
        model(IMAGES)
    assert not any(layouts.seen)


def test_layers_that_are_called_twice_are_called_twice() -> None:
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
    model = nn.Sequential(nn.Conv2d(3, 4, 3), shared[1], shared, shared, nn.Flatten())
    expected = model(IMAGES)
    with Session(quiet(channels_last=True), device="cpu") as session, Layouts() as layouts:
        session.prepare(model)
        torch.testing.assert_close(model(IMAGES), expected)
    assert layouts.seen == [True] * 3


def test_one_channel_is_both_layouts_and_is_not_copied() -> None:
    model, images = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()), torch.rand(2, 1, 8, 8)
    with Session(quiet(channels_last=True), device="cpu") as session, Layouts() as layouts:
        session.prepare(model)
        assert model(images).is_contiguous()
    assert layouts.seen == [True]


# Code of the user's that runs later -----------------------------------------------------------------------------------

Later = Callable[[nn.Sequential], Any]


def gradients(model: nn.Sequential) -> list[Tensor]:
    """First and second ones, of the weights and of the input."""
    images = IMAGES.clone().requires_grad_()
    held = [images, *model.parameters()]
    first = torch.autograd.grad(model(images).square().sum(), held, create_graph=True)
    second = torch.autograd.grad(torch.stack([each.square().sum() for each in first]).sum(), held[1:])
    return [*(each.view(-1) for each in first), *second]


def gradients_of_each_sample(model: nn.Sequential) -> list[Tensor]:
    held = {name: parameter.detach() for name, parameter in model.named_parameters()}
    each = vmap(grad(lambda weights, image: functional_call(model, weights, (image[None],)).sum()), (None, 0))
    return [gradient.view(len(IMAGES), -1) for gradient in each(held, IMAGES).values()]


def hook_of_a_layer(model: nn.Sequential) -> list[Tensor]:
    seen: list[Tensor] = []
    model[0][0].register_forward_hook(lambda _m, _i, output: seen.append(output.view(-1)))
    model[1].register_full_backward_hook(lambda _m, _gi, outputs: seen.append(outputs[0].view(-1)))
    return [model(IMAGES).sum().backward() or model[1].weight.grad, *seen]  # type: ignore[func-returns-value, list-item]


def hook_of_a_sequence(model: nn.Sequential) -> list[Tensor]:
    seen: list[Tensor] = []
    model[0].register_forward_hook(lambda _m, _i, output: seen.append(output.view(-1)))
    return [model(IMAGES), *seen]


def hook_of_all_modules(model: nn.Sequential) -> list[Tensor]:
    seen: list[Tensor] = []
    hook = nn.modules.module.register_module_forward_hook(lambda _m, _i, output: seen.append(output.view(-1)))
    model(IMAGES)
    hook.remove()
    return seen


def hook_of_a_weight(model: nn.Sequential) -> list[Tensor]:
    seen: list[Tensor] = []
    model[1].weight.register_hook(lambda gradient: seen.append(gradient.view(-1)))
    model(IMAGES).sum().backward()
    return seen


def numbers_in_memory_order(model: nn.Sequential) -> list[Tensor]:
    features = model[:2](IMAGES)
    return [torch.randn_like(features), nn.functional.dropout(features), model(IMAGES), torch.rand(1)]


def layers_are_replaced(model: nn.Sequential) -> Tensor:
    model[0][2], model[2] = Own(), nn.AvgPool2d(2)
    return model(IMAGES)


def layer_is_patched(model: nn.Sequential) -> Tensor:
    own = model[1].forward
    model[1].forward = lambda images: own(images).view(-1).view(4, 6, 4, 4)
    return model(IMAGES)


class Own(nn.Module):
    """A layer of the user's that views."""

    def forward(self, images: Tensor) -> Tensor:
        return images.relu_().view(-1).view(images.shape)


def weights_are_parametrized(model: nn.Sequential) -> Tensor:
    parametrizations.weight_norm(model[1])
    prune.l1_unstructured(model[0][0], "weight", 0.5)
    return model(IMAGES)


def model_is_in_nhwc(model: nn.Sequential) -> Tensor:
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model(IMAGES.contiguous(memory_format=torch.channels_last))


LATER: list[Later] = [
    gradients_of_each_sample,
    *(hook_of_a_layer, hook_of_a_sequence, hook_of_all_modules, hook_of_a_weight),
    *(gradients, numbers_in_memory_order, layers_are_replaced, layer_is_patched, weights_are_parametrized),
    model_is_in_nhwc,
]


@pytest.mark.parametrize("later", LATER, ids=lambda later: later.__name__)
def test_code_that_runs_later_finds_what_it_finds_in_plain_pytorch(later: Later) -> None:
    norm = later is not gradients_of_each_sample  # running statistics cannot be mapped
    plain, ours = network(norm=norm), network(norm=norm)
    torch.manual_seed(1)
    expected = later(plain)
    with prepared(ours, channels_last=True):
        torch.manual_seed(1)
        torch.testing.assert_close(later(ours), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        nn.Conv2d(3, 4, 3),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(), nn.ReLU()),
        nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()),
        network().to(memory_format=torch.channels_last),  # type: ignore[call-overload]
    ],
    ids=["no sequence", "by itself", "no images", "the user's own layout"],
)
def test_other_models_are_left_alone(model: nn.Module) -> None:
    with prepared(model, channels_last=True) as session:
        assert "no torch.nn.Sequential" in dict(session.not_applied)["channels_last"]
        assert not any("_compiled_call_impl" in vars(module) for module in model.modules())
