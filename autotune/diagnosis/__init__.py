"""What a training step is bound by: measured parts in, a verdict out. Pure."""
