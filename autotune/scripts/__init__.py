"""Unmodified training scripts: what they train with is seen from outside, and settings are applied to it."""
