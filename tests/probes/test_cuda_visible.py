"""CUDA_VISIBLE_DEVICES as CUDA reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.probes.cuda_visible import Device, visible

A, B, C = "GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-cccc3333-0000"
GPUS = [Device(A), Device(B), Device(C)]
M1, M2 = "MIG-1111aaaa-0000", "MIG-2222bbbb-0000"
SLICED = [
    Device(A, sliced=True),
    Device(B),
    Device(M1, parent=0, alias=f"MIG-{A}/1/0"),
    Device(M2, parent=0, alias=f"MIG-{A}/2/0"),
]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [A, B, C]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [A]),
        ("1,0", [B, A]),
        (" 2 , 0 ", [C, A]),
        ("0,1,foo,2", [A, B]),
        ("foo", []),
        ("0,3,1", [A]),
        ("0,0", []),
        ("1,2,1", []),
        ("1gpu2,2ampere", [B, C]),
        ("NoDevFiles", []),
        ("0,,1", [A]),
        (A, [A]),
        ("GPU-cccc", [C]),
        ("GPU-aaaa", []),  # two devices begin so
        ("GPU-aaaa2,GPU-c", [B, C]),
        ("GPU-c,GPU-zzzz,GPU-aaaa1", [C]),
        ("GPU-c,GPU-cccc", []),
        ("GPU-c,0", [C]),
        ("GPU-", []),
        ("MIG-1111", []),
    ],
)
def test_whole_gpus(value: str | None, expected: list[str]) -> None:
    assert [device.uuid for device in visible(value, GPUS)] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [M1]),  # one slice at most, and no whole GPU beside it
        ("0", [M1]),
        ("1", [B]),
        ("1,0", [M1]),
        (M2, [M2]),
        ("MIG-2222", [M2]),
        (f"{M2},{M1}", [M2]),
        (f"MIG-{A}/2/0", [M2]),
        ("MIG-zzzz", []),
        (A, [M1]),
        (B, [B]),
    ],
)
def test_mig_slices(value: str | None, expected: list[str]) -> None:
    assert [device.uuid for device in visible(value, SLICED)] == expected


def test_a_gpu_in_mig_mode_without_slices_cannot_compute() -> None:
    assert visible(None, [Device(A, sliced=True), Device(B)]) == [Device(B)]


@given(st.lists(st.integers(-2, 5), max_size=6))
def test_indices_are_a_prefix_or_nothing(indices: list[int]) -> None:
    chosen = [GPUS.index(device) for device in visible(",".join(map(str, indices)), GPUS)]
    assert chosen == indices[: len(chosen)]
    assert len(set(chosen)) == len(chosen)


@given(st.text(alphabet="0123456789GPUMIG-ac, ", max_size=30))
def test_any_text_gives_known_devices_once(value: str) -> None:
    for devices in (GPUS, SLICED):
        chosen = visible(value, devices)
        assert set(chosen) <= set(devices)
        assert len(set(chosen)) == len(chosen)
