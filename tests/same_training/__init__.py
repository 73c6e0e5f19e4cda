"""One differential harness: the same loop in plain PyTorch and through the runtime gives the same training."""
