"""What all trials of a tuning run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.core.binding import AffinityPlan
from autotune.core.settings import Settings
from autotune.trial.paths import StudyPaths


@dataclass(frozen=True)
class TrialSetup:
    """How trials of one task file run on this machine.

    Attributes:
        task: the task file.
        paths: scratch folder of the study.
        environment: environment of the zygote that serves an allocator.
        origin: the user's working folder, mirrored for each trial.
        seed: of data order and weights.
        oom_kills: reads the memory cgroup's kill counter.
        binding: the CPUs of each process of settings on this machine.
        over_machines: settings of one machine, and of how many -> what all their processes together run.
    """

    task: Path
    paths: StudyPaths
    environment: Callable[[str], Mapping[str, str]]
    origin: Path
    seed: int = 0
    oom_kills: Callable[[], int | None] = lambda: None
    binding: Callable[[Settings], AffinityPlan] = lambda _: AffinityPlan()
    over_machines: Callable[[Settings, int], Settings] = lambda settings, _: settings
