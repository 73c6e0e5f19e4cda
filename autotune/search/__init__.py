"""Who proposes the next trial. `study` and `sampler` import Optuna."""
