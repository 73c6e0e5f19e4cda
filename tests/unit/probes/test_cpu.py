"""Processors: lists, topology, kinds, NUMA nodes, names by cpuid and MIDR."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.knobs.binding import cpu_list
from autotune.probes import cpu
from tests.doubles.machines import amd_cpuinfo, arm_server, host, laptop, node
from tests.doubles.recorded import Recorded, Recording


@given(st.sets(st.integers(0, 4000), max_size=60))
def test_cpu_lists_read_back(ids: set[int]) -> None:
    assert cpu.parse_cpu_list(cpu_list(ids)) == tuple(sorted(ids))


@pytest.mark.parametrize("text", ["3-1", "a", "0-", "-1", "1 2", "0-7:1/2"])
def test_malformed_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of CPUs"):
        cpu.parse_cpu_list(text)


def test_hybrid_cores_have_kinds(tmp_path: Path) -> None:
    kinds = [c.kind for c in cpu.probe(laptop().at(tmp_path)).logical]
    assert kinds == ["performance"] * 12 + ["efficiency"] * 8


@pytest.mark.parametrize(
    ("capacities", "slow"),
    [
        ([1024, 1024, 1024, 1024], set()),
        ([430, 430, 1024, 1024], {0, 1}),
        ([250, 800, 800, 1024], {0}),  # three tiers: the middle one is big
        ([0, 0, 0, 0], set()),
    ],
)
def test_arm_kinds_come_from_capacity(tmp_path: Path, capacities: list[int], slow: set[int]) -> None:
    files = {f"/sys/devices/system/cpu/cpu{i}/cpu_capacity": str(value) for i, value in enumerate(capacities)}
    machine = host([(i,) for i in range(4)], cpuinfo="processor : 0", machine="aarch64").having(files)
    found = cpu.probe(machine.at(tmp_path))
    assert {c.id for c in found.logical if c.kind == "efficiency"} == slow
    assert {c.kind for c in found.logical} == ({"efficiency", "performance"} if slow else {"uniform"})


def test_without_sysfs_cpuinfo_and_mask_answer(tmp_path: Path) -> None:
    machine = host([(0,), (1,)], cpuinfo=amd_cpuinfo(2, 25, 17, "AMD EPYC")).without("/sys/devices")
    found = cpu.probe(machine.at(tmp_path))
    assert (found.cores, len(found.logical), found.nodes) == (2, 2, ())
    siblings = "\n\n".join(f"processor\t: {cpu}\ncore id\t: {cpu // 2}" for cpu in range(4))
    machine = host([(0, 1), (2, 3)], cpuinfo=siblings).without("/sys/devices")
    assert cpu.probe(machine.at(tmp_path / "smt")).cores == 2


def test_numa_nodes_with_gaps_and_without_memory(tmp_path: Path) -> None:
    files = {node(0): "0-1", node(2): ""}  # the second has memory only
    found = cpu.probe(host([(0,), (1,)], cpuinfo="").having(files).at(tmp_path))
    assert [(n.id, n.cpus) for n in found.nodes] == [(0, (0, 1)), (2, ())]


def test_arm_without_a_model_name_is_called_by_its_family(tmp_path: Path) -> None:
    found = cpu.probe(arm_server().at(tmp_path))
    assert found.model == "neoverse-v1"
    assert {"neon", "sve", "bf16"} <= set(found.features)


SYSCTL = """hw.logicalcpu: 10
hw.physicalcpu: 10
hw.perflevel0.logicalcpu: 6
hw.perflevel1.logicalcpu: 4
hw.optional.arm64: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_I8MM: 0
machdep.cpu.brand_string: Apple M2 Pro
"""


def test_macos(tmp_path: Path) -> None:
    recording = Recording(platform="darwin", machine="aarch64", commands={"sysctl hw machdep.cpu": (0, SYSCTL)})
    found = cpu.probe(Recorded(tmp_path, recording))
    assert (found.vendor, found.family, found.cores) == ("apple", "m2-pro", 10)
    assert [c.kind for c in found.logical] == ["efficiency"] * 4 + ["performance"] * 6
    assert found.features == ("bf16", "neon")


# Names ----------------------------------------------------------------------------------------------------------------


def x86(vendor: str, family: int, model: int, name: str = "", flags: str = "") -> dict[str, str]:
    numbers = {"cpu family": str(family), "model": str(model)}
    return {"vendor_id": vendor, "model name": name, "flags": flags, **numbers}


AVX2 = "fpu sse2 avx f16c fma avx2"
AVX512 = f"{AVX2} avx512f avx512bw avx512_vnni"
BF16 = f"{AVX512} avx512_bf16"
AMX = f"{BF16} avx512_fp16 amx_bf16 amx_tile amx_int8"


@pytest.mark.parametrize(
    ("record", "vendor", "family"),
    [
        (x86("AuthenticAMD", 25, 17, name="AMD EPYC 9554"), "amd", "epyc-zen4"),
        (x86("AuthenticAMD", 25, 97, name="AMD Ryzen 9 7950X"), "amd", "ryzen-zen4"),
        (x86("AuthenticAMD", 25, 24, name="AMD Ryzen Threadripper PRO 7995WX"), "amd", "threadripper-zen4"),
        (x86("AuthenticAMD", 25, 17, name="AMD-KVM"), "amd", "zen4"),
        (x86("AuthenticAMD", 31, 3), "amd", "family31-model3"),
        (x86("GenuineIntel", 6, 85, flags=f"{AVX2} avx512f"), "intel", "skylake-sp"),
        (x86("GenuineIntel", 6, 85, flags=AVX512), "intel", "cascade-lake"),
        (x86("GenuineIntel", 6, 85, flags=BF16), "intel", "cooper-lake"),
        (x86("GenuineIntel", 6, 143), "intel", "sapphire-rapids"),
        (x86("GenuineIntel", 6, 58, flags="sse2 avx f16c"), "intel", "ivy-bridge"),
        (x86("GenuineIntel", 6, 183, flags=f"{AVX2} avx_vnni"), "intel", "raptor-lake"),
        (x86("GenuineIntel", 6, 207, flags="sse2 amx_fp16"), "intel", "emerald-rapids"),
        (x86("GenuineIntel", 6, 250, flags=AMX), "intel", "family6-model250"),
        (x86("HygonGenuine", 24, 1, flags=AVX2), "unknown", "family24-model1"),
        # A hypervisor shows the model number of one design and the features of another.
        (x86("GenuineIntel", 6, 167, flags=AVX512), "intel", "rocket-lake"),
        (x86("GenuineIntel", 6, 167, flags=AMX), "intel", "amx"),
        (x86("GenuineIntel", 6, 167, flags=AVX2), "intel", "avx2"),
        (x86("AuthenticAMD", 25, 1, name="AMD EPYC 7763", flags=AVX2), "amd", "epyc-zen3"),
        (x86("AuthenticAMD", 25, 1, name="AMD EPYC 7763", flags=BF16), "amd", "avx512-bf16"),
        ({"CPU implementer": "0x41", "CPU part": "0xd4f"}, "arm", "neoverse-v2"),
        ({"CPU implementer": "0x41", "CPU part": "0xfff"}, "arm", "implementer0x41-part0xfff"),
        ({}, "unknown", "unknown"),
    ],
)
def test_identify(record: dict[str, str], vendor: str, family: str) -> None:
    assert cpu.identify(record) == (vendor, family)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"flags": "sse2 avx2 amx_bf16 avx512_bf16"}, ("amx_bf16", "avx2", "avx512_bf16")),
        ({"Features": "fp asimd bf16"}, ("bf16", "neon")),
        ({}, ()),
    ],
)
def test_features(record: dict[str, str], expected: tuple[str, ...]) -> None:
    assert cpu.features(record) == expected


@pytest.mark.parametrize(("text", "on"), [("1", True), ("2", True), ("0", False), (None, False)])
def test_numa_balancing(tmp_path: Path, text: str | None, on: bool) -> None:
    files = {"/proc/sys/kernel/numa_balancing": text} if text is not None else {}
    assert cpu.moves_pages(laptop().having(files).at(tmp_path)) is on


BATTERY = "/sys/class/power_supply/BAT0"
CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"
OTHER_DRIVER = {f"{BATTERY}/type": "UPS", f"{CPUFREQ}/scaling_driver": "acpi-cpufreq"}


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({}, "battery"),
        ({f"{BATTERY}/status": "Charging"}, None),
        ({f"{BATTERY}/scope": "Device"}, None),  # a mouse
        ({f"{BATTERY}/type": "UPS"}, None),
        (OTHER_DRIVER, "governor"),
        (OTHER_DRIVER | {f"{CPUFREQ}/scaling_governor": "performance"}, None),
    ],
)
def test_power_of_a_laptop(tmp_path: Path, files: dict[str, str], word: str | None) -> None:
    """Its driver, intel_pstate, clocks up by itself under the governor powersave."""
    notes = cpu.power(laptop().having(files).at(tmp_path))
    assert [word in note for note in notes] == ([True] if word else [])
