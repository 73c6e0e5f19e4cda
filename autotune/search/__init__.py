"""Who proposes the next trial. Optuna lives here only.

Light names (`Proposal`, `Observation`, `Search`) are in `protocol`; `StagedSearch` and `open_study` pull in Optuna.
"""
