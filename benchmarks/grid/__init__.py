"""Ground truth: every feasible setting of a task's space, measured, with the raw blocks kept."""
