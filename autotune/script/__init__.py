"""Unmodified training scripts: what they train with is watched from outside, and settings are applied to it."""
