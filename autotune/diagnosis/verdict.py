"""What a training step is bound by, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.diagnosis.inspection import Inspection, LoaderAlone
from autotune.diagnosis.passes import BANDWIDTH, COMPUTE, OVERHEAD, PassSeconds
from autotune.knobs.settings import Settings
from autotune.stats.proof import IDENTITY, Proof
from autotune.trial.parts import EXCHANGE, LOADER, REMOVABLE, UPDATE

THREADS, PASSES = "threads", "passes"
WORTH_NAMING = 0.2
"""A part is named beside the verdict from this share of the step on."""
BUSY = 0.6
"""A process that runs for this share of the time computes; others wait, for something else than a CPU."""
FROM_STORAGE = 2**12
"""Bytes of a batch that come from storage, from which on a loader that waits is said to wait for it."""
FASTER, SURELY_FASTER = 1.25, 1.05
"""Fewer threads must be so much faster, or so much at the interval's lower end, before the step counts as
oversubscribed."""

INPUT, DISK, MAIN_PROCESS, SLOW_SOURCE, WORKERS = (
    "input-bound",
    "input-bound: disk",
    "input-bound: augmentation in the main process",
    "input-bound: slow source",
    "input-bound: workers",
)
KINDS = {
    UPDATE: "update-bound",
    EXCHANGE: "exchange-bound",
    THREADS: "oversubscribed by threads",
    OVERHEAD: "overhead-bound",
    COMPUTE: "compute-bound",
    BANDWIDTH: "memory-bandwidth-bound",
}
SENTENCES = {
    INPUT: "training waits for its loader",
    DISK: "training waits for its loader, which waits for the disk",
    MAIN_PROCESS: "the training process itself reads and augments samples: loader workers could do that meanwhile",
    SLOW_SOURCE: "training waits for its loader, which itself waits (for a network, a lock or a pause), not for a CPU",
    WORKERS: "training waits for its loader workers, which are busy on their CPUs",
    KINDS[UPDATE]: "the optimizer's update takes most of a step",
    KINDS[EXCHANGE]: "the gradient exchange between processes takes most of a step",
    KINDS[THREADS]: "more threads are busy than CPUs are there, and they wait for each other",
    KINDS[OVERHEAD]: "many small operators: calling them takes longer than what they compute",
    KINDS[COMPUTE]: "the forward and backward passes compute most of the time",
    KINDS[BANDWIDTH]: "the forward and backward passes wait for memory most of the time",
}


@dataclass(frozen=True)
class Verdict:
    """What bounds the step, and what else takes much of it.

    Attributes:
        kind: such as ``input-bound``.
        shares: of the step's time by part; what overlaps with other parts counts only as far as it delays them.
        others: parts that surely take much of the step, too.
    """

    kind: str
    shares: Mapping[str, float]
    others: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """For people."""
        return f"{self.kind.partition(':')[0]}: {SENTENCES[self.kind]}{self._beside}"

    @property
    def _beside(self) -> str:
        words = [f"{PARTS[part]} {self.shares[part]:.0%}" for part in self.others]
        return f"; also {' and '.join(words)} of the step" if words else ""


PARTS = {
    LOADER: "the loader takes",
    UPDATE: "the update takes",
    EXCHANGE: "the exchange takes",
    PASSES: "forward and backward passes take",
}


def verdict(gains: Mapping[str, Proof], inspection: Inspection, passes: PassSeconds, settings: Settings) -> Verdict:
    """What bounds the step.

    Args:
        gains: how much faster a step is without a part, by part, and with no more threads than CPUs.
        inspection: each part by itself.
        passes: what forward and backward passes are bound by.
        settings: of the step.
    """
    shares = {part: max(0.0, 1 - 1 / gains[part].value) for part in REMOVABLE if part in gains}
    shares[PASSES] = max(0.0, 1 - sum(shares.values()))
    fewer = gains.get(THREADS, IDENTITY)
    if fewer.value > FASTER or fewer.low > SURELY_FASTER:
        return Verdict(KINDS[THREADS], shares)
    largest = max(shares, key=lambda part: shares[part])
    others = tuple(part for part in shares if part != largest and _is_much(part, shares, gains))
    if largest == LOADER:
        return Verdict(_input_kind(inspection.loader, settings.num_workers), shares, others)
    return Verdict(KINDS[passes.kind if largest == PASSES else largest], shares, others)


def _is_much(part: str, shares: Mapping[str, float], gains: Mapping[str, Proof]) -> bool:
    return shares[part] >= WORTH_NAMING and (part == PASSES or gains[part].low > SURELY_FASTER)


def _input_kind(loader: LoaderAlone | None, workers: int) -> str:
    """Why a loader is slow."""
    if loader is None:
        return INPUT
    if max(loader.main_busy, loader.worker_busy) < BUSY:
        return DISK if loader.storage_bytes >= FROM_STORAGE else SLOW_SOURCE
    return WORKERS if workers else MAIN_PROCESS
