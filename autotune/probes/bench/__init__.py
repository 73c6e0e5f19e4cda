"""Short measured facts about this machine. Each module runs as a child: ``python -m autotune.probes.bench.NAME``."""
