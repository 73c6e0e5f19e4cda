"""This machine while it is measured: its lock, its signals, the runner of trials."""
