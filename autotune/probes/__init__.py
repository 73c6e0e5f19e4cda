"""Probes: what this machine is, and what this process may use of it."""
