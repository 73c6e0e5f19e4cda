"""Profiles: their format, files, registries, and which of them fits this machine."""
