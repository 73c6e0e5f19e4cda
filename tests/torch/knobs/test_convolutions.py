"""Inputs in channels_last; all that the user holds lies as it did."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from autotune.knobs.convolutions import laid_out
from autotune.runtime.session import Session
from tests.torch.records import quiet

IMAGES = torch.rand(2, 3, 4, 4)


class Looking(nn.Conv2d):
    """A convolution that remembers what it was called with."""

    def forward(self, images: Tensor) -> Tensor:
        self.seen = images
        return super().forward(images)


def test_inputs_are_laid_out_while_the_model_trains_and_nothing_else_is() -> None:
    model = Looking(3, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        assert session.not_applied == ()
        images = IMAGES.clone()
        outputs = model(images)
        assert model.seen.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(model.seen, images)
        assert outputs.is_contiguous(memory_format=torch.channels_last)
        outputs.sum().backward()
        optimizer.step()
        assert images.is_contiguous()
        held = [model.weight, model.weight.grad, optimizer.state[model.weight]["momentum_buffer"]]
        assert all(tensor is not None and tensor.is_contiguous() for tensor in held)
        model.eval()
        model(images)
        assert model.seen is images
        with torch.no_grad():
            model.train()(images)
        assert model.seen is images
    model(images)
    assert model.seen is images


@pytest.mark.parametrize(
    "value", [torch.rand(3), torch.rand(2, 3, 4), torch.zeros(2, 3, 4, 4, dtype=torch.int64), "x", None, [IMAGES]]
)
def test_what_is_no_batch_of_images_stays(value: object) -> None:
    assert laid_out(value) is value


def test_one_channel_lies_both_ways_and_is_the_same_memory() -> None:
    images = torch.rand(2, 1, 4, 4)
    assert laid_out(images).data_ptr() == images.data_ptr()
    assert nn.Conv2d(1, 8, 3)(laid_out(images)).is_contiguous(memory_format=torch.channels_last)
    assert nn.Conv2d(1, 8, 3)(images).is_contiguous()


def test_a_model_that_its_user_laid_out_keeps_its_own_call() -> None:
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model)
        assert session.not_applied == ()
        assert "_compiled_call_impl" not in vars(model)
