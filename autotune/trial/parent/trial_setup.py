"""What all trials of a tuning run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.knobs.affinity import AffinityPlan
from autotune.knobs.settings import Settings
from autotune.trial.paths import StudyPaths
from autotune.trial.script import Script


@dataclass(frozen=True)
class TrialSetup:
    """How trials of one task file or script run on this machine.

    Attributes:
        task: the task file, or the script's.
        paths: scratch folder of the study.
        environment: environment of the zygote for what a process must start with.
        origin: the user's working folder, mirrored for each trial.
        seed: of data order and weights.
        script: how an unmodified script is started; None for a task file.
        users_threads: ``OMP_NUM_THREADS`` of the user's environment; empty where it is not set.
        oom_kills: reads the memory cgroup's kill counter.
        binding: the CPUs of each process of settings on this machine.
    """

    task: Path
    paths: StudyPaths
    environment: Callable[[Settings], Mapping[str, str]]
    origin: Path
    seed: int = 0
    script: Script | None = None
    users_threads: str = ""
    oom_kills: Callable[[], int | None] = lambda: None
    binding: Callable[[Settings], AffinityPlan] = lambda _: AffinityPlan()

    @property
    def words(self) -> tuple[str, ...]:
        """What is tuned, in the user's own words: the file's text, and a script's arguments."""
        return (self.task.read_text(), *(self.script.arguments if self.script is not None else ()))
