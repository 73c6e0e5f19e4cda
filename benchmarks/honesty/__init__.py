"""Is what the tuner claims true? A/A comparisons, coverage, optimal baselines, short trials against long runs."""
