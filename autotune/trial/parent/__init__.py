"""The tuning process: starts trials, waits for them, and classifies how each ended. It never imports torch."""
