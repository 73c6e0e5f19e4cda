"""Who proposes the next trial. Optuna is imported by `study` alone."""
