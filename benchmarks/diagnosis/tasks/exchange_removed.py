"""`exchange` on one process with one sample's share of the batch: no exchange is left."""

from benchmarks.diagnosis.tasks.exchange import build_dataset, build_model, build_optimizer, compute_loss  # noqa: F401

CURRENT = {"batch_size": 2, "num_workers": 0, "processes": 1, "threads": 1}
RATE = 2.0
"""Two such processes side by side train twice as many samples."""
