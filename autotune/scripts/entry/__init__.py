"""Starts under `autotune run`: prepares this process for a backend and then runs the user's script."""
