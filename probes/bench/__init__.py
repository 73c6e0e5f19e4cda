"""Short measured facts about this machine. Each module runs as a child: ``python -m probes.bench.NAME``."""
