"""GPUs by a driver made of tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_nvml import FakeGpu, FakeNvml
from machines import GIB, Machine, host, mig_slice, server

from autotune.probes import gpu
from autotune.probes.facts import Gpu


def plain(**env: str) -> Machine:
    return host([(0,)], cpuinfo="", env=env)


def probe(tmp_path: Path, nvml: FakeNvml, **env: str) -> tuple[Gpu, ...]:
    return gpu.probe(plain(**env).at(tmp_path), nvml)


def test_server(tmp_path: Path) -> None:
    machine = server()
    found = gpu.probe(machine.at(tmp_path), machine.nvml)
    assert [g.node for g in found] == [0] * 4 + [2] * 4
    assert {link.kind for g in found for link in g.links} == {"nvlink"}
    assert [link.peer for link in found[3].links] == [0, 1, 2, 4, 5, 6, 7]
    assert found[0].name == "NVIDIA H200"


def test_links_are_numbered_as_cuda_numbers(tmp_path: Path) -> None:
    machine = server().having(env={"CUDA_VISIBLE_DEVICES": "5,2"})
    found = gpu.probe(machine.at(tmp_path), machine.nvml)
    assert [(g.index, g.uuid[:12], [link.peer for link in g.links]) for g in found] == [
        (0, "GPU-00000005", [1]),
        (1, "GPU-00000002", [0]),
    ]


def test_mig_slice(tmp_path: Path) -> None:
    machine = mig_slice()
    (found,) = gpu.probe(machine.at(tmp_path), machine.nvml)
    assert (found.mig, found.memory_total, found.capability) == (True, 10 * GIB, (8, 0))
    assert found.uuid.startswith("MIG-00000001")
    assert found.links == ()


@pytest.mark.parametrize("failure", ["NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"])
def test_no_driver_is_no_gpu(tmp_path: Path, failure: str) -> None:
    assert probe(tmp_path, FakeNvml([FakeGpu("GPU-a")], failure=failure)) == ()


def test_a_broken_driver_raises(tmp_path: Path) -> None:
    with pytest.raises(FakeNvml.NVMLError):
        probe(tmp_path, FakeNvml([FakeGpu("GPU-a")], failure="NVMLError"))


@pytest.mark.parametrize(
    ("level", "kind"),
    [(0, "pcie-switch"), (10, "pcie-switch"), (20, "pcie-switch"), (30, "host-bridge"), (40, "numa"), (50, "system")],
)
def test_links_without_nvlink(tmp_path: Path, level: int, kind: str) -> None:
    found = probe(tmp_path, FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b")], level=level))
    assert [link.kind for link in found[0].links] == [kind]


@pytest.mark.parametrize(
    ("used", "processes", "count", "memory"),
    [
        (9 * GIB, ((77, 9 * GIB),), 1, 9 * GIB),
        (9 * GIB, (), None, 9 * GIB),  # somebody uses it and the container hides who
        (9 * GIB, None, None, 9 * GIB),
        (2 * GIB, ((4242, 2 * GIB),), 0, 0),  # that is us
        (3 * GIB, ((4242, GIB), (77, None)), 1, 2 * GIB),
        (0, (), 0, 0),
    ],
)
def test_others_on_the_gpu(tmp_path: Path, used: int, processes: object, count: int | None, memory: int) -> None:
    card = FakeGpu("GPU-a", used=used, processes=processes)  # type: ignore[arg-type]
    (found,) = probe(tmp_path, FakeNvml([card]))
    assert (found.foreign_processes, found.foreign_memory) == (count, memory)
    assert bool(gpu.warnings([found])) == bool(memory)


def test_the_warning_has_figures_and_no_names(tmp_path: Path) -> None:
    (warning,) = gpu.warnings(probe(tmp_path, FakeNvml([FakeGpu("GPU-a", used=9 * GIB)])))
    assert "9.0 GiB taken" in warning
    assert "7.0 of 16.0 GiB free (processes: unknown)" in warning
    assert "GPU-a" not in warning


@pytest.mark.parametrize(
    ("reasons", "names"),
    [(0x1, ()), (0x3, ()), (0x4, ("power cap",)), (0x68, ("hardware slowdown", "thermal", "hardware thermal"))],
)
def test_throttling(tmp_path: Path, reasons: int, names: tuple[str, ...]) -> None:
    assert probe(tmp_path, FakeNvml([FakeGpu("GPU-a", reasons=reasons)]))[0].clocks_throttled == names


@pytest.mark.parametrize(
    "missing",
    [
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetP2PStatus",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetTopologyCommonAncestor",
    ],
)
def test_older_drivers_lack_functions(tmp_path: Path, missing: str) -> None:
    cards = [FakeGpu("GPU-a", reasons=0x4), FakeGpu("GPU-b")]
    found = probe(tmp_path, FakeNvml(cards, missing=frozenset({missing})))
    assert [g.uuid for g in found] == ["GPU-a", "GPU-b"]


def test_nvml_is_closed_again(tmp_path: Path) -> None:
    nvml = FakeNvml([FakeGpu("GPU-a")])
    probe(tmp_path, nvml)
    assert nvml.calls[-1] == "nvmlShutdown"
