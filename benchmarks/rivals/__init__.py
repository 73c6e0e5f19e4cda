"""Other ways to find settings, run for real on the same tasks, and what each of them is worth afterwards."""
