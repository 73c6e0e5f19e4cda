"""`oversubscription` with PyTorch's own number of threads."""

from benchmarks.diagnosis.tasks.oversubscription import build_dataset, build_model, compute_loss  # noqa: F401

CURRENT = {"batch_size": 64, "num_workers": 0}
