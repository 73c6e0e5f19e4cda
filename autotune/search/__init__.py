"""Who proposes the next trial. Optuna is imported by `study` alone.

history     the record of a trial, and of a run
prior       what to expect of settings before they are tried
surrogate   a Gaussian process over what was tried
rules       what failures forbid
planner     history in, next proposal out
study       the Optuna study: journal, sampler, and one level's search
"""
