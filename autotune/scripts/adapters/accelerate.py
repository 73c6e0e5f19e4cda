"""Accelerate."""

from __future__ import annotations

from autotune.scripts.adapters.adapter import Adapter

ACCELERATE = Adapter(
    packages=("accelerate",),
    several_processes="Accelerate joins processes on CPUs only with Accelerator(cpu=True) or ACCELERATE_USE_CPU=true",
)
