"""How large a batch would fit into memory."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.diagnosis.inspection import Sizes

HEADROOM = 0.1
TEMPORARY = 2.0
"""A backward pass makes gradients of activations: together about this many times the activations."""


@dataclass(frozen=True)
class LargestBatch:
    """The largest global batch that would fit with 10 % headroom.

    Attributes:
        samples: predicted.
        all_data: it is the whole dataset, which is smaller than what would fit.
        ran: the largest batch that was run to check; 0 where none was.
        peak: bytes of all processes then.
    """

    samples: int
    all_data: bool
    ran: int = 0
    peak: int = 0


def sample_bytes(sizes: Sizes, samples: int) -> float:
    """Bytes that one more sample takes, predicted from a batch of ``samples``."""
    return max(1.0, (TEMPORARY * sizes.activations + sizes.batch) / max(1, samples))


def refined(sizes: Sizes, samples: int, larger: int, peak: int) -> float:
    """The same, from what a ``larger`` batch reached; the prediction where the peak did not move."""
    if larger < 2 * samples or peak <= sizes.peak:
        return sample_bytes(sizes, samples)
    return (peak - sizes.peak) / (larger - samples)


def largest(sizes: Sizes, samples: int, each: float, processes: int, limit: int) -> int:
    """Samples of the largest global batch.

    Args:
        sizes: of one process.
        samples: of one process's batch.
        each: bytes of one more sample.
        processes: that share the memory.
        limit: bytes of the memory.
    """
    room = limit * (1 - HEADROOM) / processes - sizes.peak
    return processes * max(0, int(samples + room / each))
