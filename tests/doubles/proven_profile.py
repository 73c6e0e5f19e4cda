"""Small valid profiles."""

from collections.abc import Mapping

from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.profiles.format import Evidence, LevelResult, MachineType, Profile, Target
from autotune.stats.proof import Proof

MACHINE = MachineType(
    key="amd-epyc-zen4-8c-32g",
    vendor="amd",
    family="epyc-zen4",
    architecture="x86_64",
    threads=8,
    cores=8,
    sockets=1,
    nodes=1,
    memory_gib=32,
    gpus=(),
    features=("avx2", "avx512f"),
)


def profile(
    settings: Settings,
    levels: Mapping[str, Settings] | None = None,
    machine: MachineType = MACHINE,
    rate: float = 2010.5,
) -> Profile:
    """A profile of ``machine`` in which every level is proven and `safe` is recommended.

    Args:
        settings: of every level that ``levels`` does not name.
        levels: settings by level.
        machine: where the profile was measured.
        rate: items per second of every level.
    """
    proof = Proof(1.62, 1.55, 1.7, 0.95, 12)
    chosen = dict.fromkeys(LEVELS, settings) | dict(levels or {})
    return Profile(
        machine=machine,
        software={"python": "3.11.9", "torch": "2.9.0", "cuda": None},
        target=Target("train", "samples", "cuda" if machine.gpus else "cpu", 11_000_000, 50_000),
        recommended="safe",
        baseline=Settings(batch_size=settings.global_batch),
        baseline_rate=rate / proof.value,
        levels={name: LevelResult(chosen[name], rate, proof, True) for name in LEVELS},
        evidence=Evidence(trials=31, seconds=72.5),
    )
