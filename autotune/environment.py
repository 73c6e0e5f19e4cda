"""The names of the user's variables: which profile, which level, or none at all."""

from __future__ import annotations

from collections.abc import Mapping

PROFILE, LEVEL, DISABLE = "AUTOTUNE_PROFILE", "AUTOTUNE_LEVEL", "AUTOTUNE_DISABLE"
"""The first two are unset if they are empty."""
SCRIPT_VARIABLE = "AUTOTUNE_SCRIPT"
"""What `autotune run` hands to the process of an unmodified script: see `autotune.scripts.apply`."""
NO = ("", "0", "false", "no", "off")
"""Values that mean no, in upper or lower case; all others mean yes."""
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""The first that is set says which of several processes this is."""


def is_first(environment: Mapping[str, str]) -> bool:
    """Return True in the process that speaks for all of a job."""
    rank = next((environment[name] for name in RANKS if name in environment), "0")
    return rank == "0" or not rank.isdecimal()


def disabled(environment: Mapping[str, str]) -> bool:
    """Return True if training runs as it is, without a profile."""
    return environment.get(DISABLE, "").strip().lower() not in NO
