"""The pure room: frozen data and functions of it. No clock, no files, no randomness, no torch."""
