"""Processor names by cpuid and MIDR."""

from __future__ import annotations

import pytest

from autotune.probes import families


def x86(vendor: str, family: int, model: int, stepping: int = 1, name: str = "", flags: str = "") -> dict[str, str]:
    numbers = {"cpu family": str(family), "model": str(model), "stepping": str(stepping)}
    return {"vendor_id": vendor, "model name": name, "flags": flags, **numbers}


@pytest.mark.parametrize(
    ("record", "vendor", "family"),
    [
        (x86("AuthenticAMD", 25, 17, name="AMD EPYC 9554"), "amd", "epyc-zen4"),
        (x86("AuthenticAMD", 25, 97, name="AMD Ryzen 9 7950X"), "amd", "ryzen-zen4"),
        (x86("AuthenticAMD", 25, 24, name="AMD Ryzen Threadripper PRO 7995WX"), "amd", "threadripper-zen4"),
        (x86("AuthenticAMD", 25, 17, name="AMD-KVM"), "amd", "zen4"),
        (x86("AuthenticAMD", 31, 3), "amd", "family31-model3"),
        (x86("GenuineIntel", 6, 85, 4), "intel", "skylake-sp"),
        (x86("GenuineIntel", 6, 85, 7), "intel", "cascade-lake"),
        (x86("GenuineIntel", 6, 85, 11), "intel", "cooper-lake"),
        (x86("GenuineIntel", 6, 143), "intel", "sapphire-rapids"),
        (x86("GenuineIntel", 6, 250), "intel", "family6-model250"),
        (x86("GenuineIntel", 15, 143), "intel", "family15-model143"),
        (x86("HygonGenuine", 24, 1), "unknown", "family24-model1"),
        ({"CPU implementer": "0x41", "CPU part": "0xd4f"}, "arm", "neoverse-v2"),
        ({"CPU implementer": "0x61", "CPU part": "0x023"}, "apple", "m1"),
        ({"CPU implementer": "0x41", "CPU part": "0xfff"}, "arm", "implementer0x41-part0xfff"),
        ({"cpu": "POWER9, altivec supported"}, "ibm", "power9"),
        ({}, "unknown", "unknown"),
    ],
)
def test_identify(record: dict[str, str], vendor: str, family: str) -> None:
    assert families.identify(record) == (vendor, family)


AVX2 = "fpu sse2 avx f16c fma avx2"
AVX512 = f"{AVX2} avx512f avx512bw avx512_vnni"
BF16 = f"{AVX512} avx512_bf16"
AMX = f"{BF16} avx512_fp16 amx_bf16 amx_tile amx_int8"


@pytest.mark.parametrize(
    ("record", "family"),
    [
        (x86("GenuineIntel", 6, 167, flags=AVX512), "rocket-lake"),
        (x86("GenuineIntel", 6, 167, flags=AMX), "amx"),
        (x86("GenuineIntel", 6, 167, flags=AVX2), "avx2"),
        (x86("GenuineIntel", 6, 143, flags=AMX), "sapphire-rapids"),
        (x86("GenuineIntel", 6, 207, flags="sse2 amx_fp16"), "emerald-rapids"),
        (x86("GenuineIntel", 6, 85, 7, flags=AMX), "amx"),
        (x86("GenuineIntel", 6, 85, 16, flags=AVX512), "family6-model85"),
        (x86("GenuineIntel", 6, 58, flags="sse2 avx f16c"), "ivy-bridge"),
        (x86("GenuineIntel", 6, 183, flags=f"{AVX2} avx_vnni"), "raptor-lake"),
        (x86("GenuineIntel", 6, 250, flags=AMX), "family6-model250"),
        (x86("AuthenticAMD", 25, 1, name="AMD EPYC 7763", flags=AVX2), "epyc-zen3"),
        (x86("AuthenticAMD", 25, 1, name="AMD EPYC 7763", flags=BF16), "avx512-bf16"),
        (x86("AuthenticAMD", 25, 17, name="AMD EPYC 9554", flags=AVX2), "avx2"),
        (x86("HygonGenuine", 24, 1, flags=AVX2), "family24-model1"),
    ],
)
def test_a_designs_name_needs_its_features(record: dict[str, str], family: str) -> None:
    """A masked server part shows another design's model number and its own features."""
    assert families.identify(record)[1] == family


@pytest.mark.parametrize(
    ("record", "present", "absent"),
    [
        ({"flags": "sse2 avx2 amx_bf16 avx512_bf16"}, {"avx2", "amx_bf16", "avx512_bf16"}, {"bf16", "sse2"}),
        ({"flags": "sse2 avx2"}, {"avx2"}, {"avx512f", "avx512_bf16"}),
        ({"Features": "fp asimd bf16"}, {"neon", "bf16"}, {"asimd", "sve"}),
        ({}, set(), {"avx2"}),
    ],
)
def test_features(record: dict[str, str], present: set[str], absent: set[str]) -> None:
    found = set(families.features(record))
    assert present <= found
    assert not absent & found
