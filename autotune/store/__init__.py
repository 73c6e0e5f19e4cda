"""Files: profiles as validated YAML, where they live, and the machine-wide lock. Never imports torch."""
