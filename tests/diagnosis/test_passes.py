"""What forward and backward passes are bound by."""

from __future__ import annotations

import math

import pytest

from autotune.diagnosis.inspection import Operator
from autotune.diagnosis.passes import (
    BANDWIDTH,
    COMPUTE,
    OVERHEAD,
    Limits,
    fixed_share,
    pass_seconds,
    used,
    without_share,
)

from .records import LIMITS, inspection


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (Operator("aten::mm", calls=2, flops=1e9, bytes=1e6, seconds=0.002), COMPUTE),
        (Operator("aten::mul", calls=2, flops=0.0, bytes=2e7, seconds=0.002), BANDWIDTH),
        (Operator("aten::mul", calls=400, flops=0.0, bytes=1e5, seconds=0.0025), OVERHEAD),
        (Operator("mkldnn::rnn", calls=2, flops=0.0, bytes=1e5, seconds=0.002), COMPUTE),
    ],
    ids=["a product", "traffic explains the time", "many small calls", "unknown operations, little traffic"],
)
def test_an_operator_is_bound_by_what_explains_its_time(operator: Operator, kind: str) -> None:
    assert pass_seconds(inspection(operators=(operator,)), LIMITS).kind == kind


def test_time_is_divided_and_none_is_lost() -> None:
    found = pass_seconds(inspection(), LIMITS)
    assert found.overhead == pytest.approx(2 * 5e-6)
    assert found.total == pytest.approx(0.002)
    assert found.kernels == pytest.approx(0.002 - 2 * 5e-6)


def test_calls_cost_no_more_than_the_operator_took() -> None:
    tiny = Operator("aten::add", calls=1000, flops=0.0, bytes=0.0, seconds=0.001)
    assert pass_seconds(inspection(operators=(tiny,)), LIMITS).overhead == pytest.approx(0.001)


def test_shares_of_the_machines_limits() -> None:
    found = used(inspection(), LIMITS, 0.01)
    assert found == {COMPUTE: pytest.approx(0.1), BANDWIDTH: pytest.approx(0.01)}


def test_an_unknown_limit_has_no_share() -> None:
    assert used(inspection(), Limits(0.0, 0.0), 0.01) == {}


@pytest.mark.parametrize(("quarter", "share"), [(1.0, 1.0), (0.25, 0.0), (0.625, 0.5), (0.1, 0.0), (1.3, 1.0)])
def test_what_does_not_shrink_with_the_batch_is_fixed(quarter: float, share: float) -> None:
    found = fixed_share([(1.0, quarter)] * 5)
    assert found == (pytest.approx(share), pytest.approx(share), pytest.approx(share))


def test_scatter_widens_the_interval() -> None:
    found = fixed_share([(1.0, 0.6), (1.0, 0.65), (1.0, 0.62)])
    assert found is not None
    value, low, high = found
    assert low < value < high


def test_one_measurement_has_no_interval() -> None:
    assert fixed_share([(1.0, 0.5)]) is None


def test_a_step_without_all_of_it_has_no_bound() -> None:
    assert without_share((0.5, 0.2, 1.0)).high == math.inf
    assert without_share((0.5, 0.2, 1.0)).value == pytest.approx(2.0)
