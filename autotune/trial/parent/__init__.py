"""The tuning process: starts trials, watches them, and says how each ended. It never imports torch."""
