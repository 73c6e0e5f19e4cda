"""Parts of a training step that a trial can leave out, to measure what the step would take without them."""

from __future__ import annotations

LOADER, UPDATE, EXCHANGE = "loader", "update", "exchange"
REMOVABLE = (LOADER, UPDATE, EXCHANGE)
"""Waiting for batches, the optimizer's step, and the gradient exchange between processes."""
