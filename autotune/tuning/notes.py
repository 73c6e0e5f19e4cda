"""Writes what a profile says of each level and of the run, from verdicts and figures to sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.knobs.level import LEVELS
from autotune.knobs.memory import size
from autotune.knobs.settings import Settings
from autotune.probes.cpu_time import MENTIONED, Load, Neighbour
from autotune.probes.facts import Inventory
from autotune.stats.decide import Answer, Reason

REASONS = {
    Reason.TOO_FEW_ROUNDS: "not proven within the budget",
    Reason.NOISY: "trials of the same settings differ by more than the gain; a longer --budget may prove it",
    Reason.NOT_REACHED: "not reached within the budget: a longer --budget tries it",
    Reason.INTERRUPTED: "interrupted before the proof",
}
BUSY = "measured on a busy machine"
DISTURBED = "Your settings ran {:.1f}x slower while other programs used the CPU. Only quiet rounds are counted."
NOT_FORKED = "settings were changed inside one running training, which cannot be forked: {}"
ON_GPU = "{} other process(es) were on GPU {} when the run began: the figures hold for that load"
COPIES = (
    "each loader worker comes to hold a copy of the data set's Python objects, {} in all. Arrays (NumPy, Arrow) are"
    " shared"
)
MANY = 2**28
"""Bytes of copies that are worth a note."""
WIDE = 4
"""If the ends of an interval are this many times apart, its middle is not shown."""
NAMED = 2
"""Processes that are named; the others are summed up."""


def level_note(level: str, answer: Answer) -> str:
    """Return why ``level`` adds nothing of its own; empty if it does."""
    proof = answer.proof
    if answer.reason in (Reason.SAME, Reason.NOT_TRIED):
        own = LEVELS[level]
        said = own.nothing_faster if answer.reason is Reason.SAME else own.not_tried
        return f"{said}: same settings as {own.below[-1]}" if own.below else said
    if answer.reason is Reason.UNPROVEN and proof is not None:
        more = "; a longer --budget may decide" if proof.undecided else ""
        if proof.high > WIDE * proof.low:
            return f"repeated runs of these settings differ too much to decide{more}"
        return f"{proof.value:.2f}x measured, but not proven ({proof.low:.2f} to {proof.high:.2f}){more}"
    if answer.reason is Reason.ALL_FAILED:
        return f"{LEVELS[level].all_failed}: {answer.failure}"
    return REASONS.get(answer.reason, "")


def named(neighbour: Neighbour) -> str:
    """Return what a process took, with its name."""
    nice = f", nice {neighbour.niceness}" if neighbour.niceness > 0 else ""
    return f"{neighbour.name} (pid {neighbour.pid}{nice}) took {neighbour.cpus:.1f}"


def load_note(load: Load, *, names: bool = False) -> str:
    """Return a sentence on what others took; empty if there is nothing to report.

    With ``names`` it is for the user's own terminal: profiles, which others read, name no processes.
    """
    own = sorted((each for each in load.neighbours if names and each.name), key=lambda each: -each.cpus)[:NAMED]
    if sum(each.cpus for each in own) >= load.taken + MENTIONED:
        own = []
    parts, rest = list[str](), load.taken - sum(each.cpus for each in own)
    if load.is_mentioned(load.taken):
        parts += [named(each) for each in own]
        parts += [f"other processes took {rest:.1f}"] if rest >= MENTIONED else []
    if load.is_mentioned(load.steal):
        parts.append(f"the hypervisor's other guests took {load.steal:.1f}")
    if not parts:
        return ""
    words = f"{', '.join(parts)} of {load.threads} CPUs"
    if load.is_busy:
        return f"{BUSY}: {words}. Measure again when it is quiet"
    return f"{words} while this was measured: the figures hold for that load"


def on_gpus(inventory: Inventory) -> list[str]:
    """Return what others did on the GPUs before any trial; nothing if training runs on the host."""
    crowded = [] if inventory.device.on_host else [gpu for gpu in inventory.gpus if gpu.foreign_processes]
    return [ON_GPU.format(gpu.foreign_processes, gpu.index) for gpu in crowded]


def copies(copied_bytes: int, chosen: Iterable[Settings]) -> list[str]:
    """Return what the workers of the ``chosen`` settings may come to hold; nothing if that is little."""
    most = copied_bytes * max((each.processes * each.num_workers for each in chosen), default=0)
    return [COPIES.format(size(most))] if most >= MANY else []


def batch_norm(own: int, others: Sequence[int]) -> str:
    """Return what sharing a batch changes: BatchNorm normalises over what one process has."""
    sizes = " or ".join(map(str, others))
    keep = "torch.nn.SyncBatchNorm or --fix processes=1 keeps it"
    return f"BatchNorm normalises over {sizes} samples instead of {own}; {keep}"
