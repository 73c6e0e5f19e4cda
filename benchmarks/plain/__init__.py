"""Plain PyTorch trainers that share nothing with the project: they measure its claims again."""
