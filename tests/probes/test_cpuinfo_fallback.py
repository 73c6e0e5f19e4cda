"""Where the kernel's file says nothing of the processor, py-cpuinfo is asked once."""

import json
from pathlib import Path

from autotune.probes import cpu
from autotune.probes.system import CommandResult
from autotune.testing.recorded import Recorded, Recording

ANSWER = {
    "vendor_id_raw": "AuthenticAMD",
    "family": 25,
    "model": 17,
    "brand_raw": "AMD EPYC 9354",
    "flags": ["avx512f", "avx512_bf16", "avx2", "x"],
}


class Asked(Recorded):
    """A recorded machine that answers py-cpuinfo's command line."""

    calls = 0

    def run(self, command, timeout=60.0, cwd=None):
        if "cpuinfo" in command:
            type(self).calls += 1
            return CommandResult(0, json.dumps(ANSWER), "")
        return super().run(command, timeout, cwd)


def test_an_empty_cpuinfo_is_filled_in_once(tmp_path: Path) -> None:
    (tmp_path / "root" / "proc").mkdir(parents=True)
    (tmp_path / "root" / "proc" / "cpuinfo").write_text("")
    cache = tmp_path / "cache"
    cache.mkdir()
    for _ in range(2):
        found = cpu.probe(Asked(tmp_path / "root", Recording(), cache))
        assert (found.vendor, found.family) == ("amd", "epyc-zen4")
        assert found.features == ("avx2", "avx512_bf16", "avx512f")
    assert Asked.calls == 1
