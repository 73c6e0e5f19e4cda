"""One tuning run as visible phases: baseline, search, race, proof, result."""
