"""GPUs by a driver made of tables, and CUDA_VISIBLE_DEVICES as CUDA reads it."""

from pathlib import Path
from typing import Any

import pytest

from autotune.probes import gpu
from autotune.probes.facts import Gpu
from autotune.probes.gpu import Device, visible
from tests.doubles.fake_nvml import FakeGpu, FakeNvml
from tests.doubles.machines import GIB, host, mig_slice, server


def probe(tmp_path: Path, nvml: FakeNvml) -> tuple[Gpu, ...]:
    return gpu.probe(host([(0,)], cpuinfo="").at(tmp_path), nvml)


def test_gpus_are_numbered_as_cuda_numbers(tmp_path: Path) -> None:
    machine = server().having(env={"CUDA_VISIBLE_DEVICES": "5,2"})
    found = gpu.probe(machine.at(tmp_path), machine.nvml)
    assert [(g.index, g.node, g.links) for g in found] == [(0, 2, ("nvlink",)), (1, 0, ("nvlink",))]


def test_mig_slice(tmp_path: Path) -> None:
    machine = mig_slice()
    (found,) = gpu.probe(machine.at(tmp_path), machine.nvml)
    assert (found.mig, found.memory_total, found.capability) == (True, 10 * GIB, (8, 0))
    assert (found.name, found.links) == ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", ())


@pytest.mark.parametrize("failure", ["NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"])
def test_no_driver_is_no_gpu(tmp_path: Path, failure: str) -> None:
    assert probe(tmp_path, FakeNvml([FakeGpu("GPU-a")], failure=failure)) == ()


LINKS = {0: "pcie-switch", 10: "pcie-switch", 20: "pcie-switch", 30: "host-bridge", 40: "numa", 50: "system"}
OTHERS = ((((77, GIB),), 1), (((4242, GIB), (77, None)), 1), ((), 0), (None, 0))
"""Processes on a GPU, and how many are not this one, which is 4242."""
REASONS = {0x1: (), 0x3: (), 0x4: ("power cap",), 0x68: ("hardware slowdown", "thermal", "hardware thermal")}


@pytest.mark.parametrize(
    ("nvml", "facts"),
    [
        *((FakeNvml([FakeGpu("A"), FakeGpu("B")], level=level), {"links": (kind,)}) for level, kind in LINKS.items()),
        *((FakeNvml([FakeGpu("A", processes=those)]), {"foreign_processes": count}) for those, count in OTHERS),
        *((FakeNvml([FakeGpu("A", reasons=bits)]), {"clocks_throttled": names}) for bits, names in REASONS.items()),
        # Memory that the GPU shares with the host is not listed.
        (FakeNvml([FakeGpu("A", memory=None)]), {"memory_total": 0, "capability": (9, 0)}),
    ],
)
def test_what_a_driver_tells(tmp_path: Path, nvml: FakeNvml, facts: dict[str, Any]) -> None:
    found = probe(tmp_path, nvml)[0]
    assert {name: getattr(found, name) for name in facts} == facts


OPTIONAL = "GetMigMode GetP2PStatus GetCurrentClocksThrottleReasons GetComputeRunningProcesses GetPciInfo"


@pytest.mark.parametrize("missing", [*OPTIONAL.split(), "GetTopologyCommonAncestor"])
def test_older_drivers_lack_functions(tmp_path: Path, missing: str) -> None:
    cards = [FakeGpu("GPU-a", "A", reasons=0x4), FakeGpu("GPU-b", "B")]
    nvml = FakeNvml(cards, missing=frozenset({f"nvmlDevice{missing}"}))
    assert [g.name for g in probe(tmp_path, nvml)] == ["A", "B"]
    assert nvml.calls[-1] == "nvmlShutdown"


A, B, C = "GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-cccc3333-0000"
GPUS = [Device(A), Device(B), Device(C)]
M1, M2 = "MIG-1111aaaa-0000", "MIG-2222bbbb-0000"
SLICED = [Device(A, slices=(Device(M1), Device(M2))), Device(B)]


@pytest.mark.parametrize(
    ("devices", "value", "expected"),
    [
        (GPUS, None, [A, B, C]),
        (GPUS, "", []),
        (GPUS, "-1", []),
        (GPUS, "0,-1,1", [A]),
        (GPUS, "1,0", [B, A]),
        (GPUS, " 2 , 0 ", [C, A]),
        (GPUS, "0,1,foo,2", [A, B]),
        (GPUS, "0,0", []),
        (GPUS, "0,,1", [A]),
        (GPUS, A, [A]),
        (GPUS, "GPU-cccc", [C]),
        (GPUS, "GPU-aaaa", []),  # two devices begin so
        (GPUS, "GPU-aaaa2,GPU-c", [B, C]),
        (GPUS, "GPU-c,GPU-zzzz,GPU-aaaa1", [C]),
        (GPUS, "GPU-", []),
        (GPUS, "MIG-1111", []),
        (SLICED, None, [M1]),  # one slice at most, and no whole GPU beside it
        (SLICED, "0", [M1]),
        (SLICED, "1,0", [M1]),
        (SLICED, M2, [M2]),
        (SLICED, f"{M2},{M1}", [M2]),
        (SLICED, "MIG-zzzz", []),
        (SLICED, A, [M1]),
        (SLICED, B, [B]),
    ],
)
def test_visible_devices(devices: list[Device], value: str | None, expected: list[str]) -> None:
    assert [device.uuid for device in visible(value, devices)] == expected
