"""One command for a machine with a GPU that is at hand for a few minutes."""
