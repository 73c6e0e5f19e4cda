"""Measurements, paired comparisons, and when the proof may stop. Pure."""
