"""Is what the tuner claims true? A/A comparisons, trials beside neighbours, coverage of simulated proofs."""
