"""What runs on the machine, in which order, and for how long at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TASKS = Path(__file__).parent / "tasks"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOTAL_SECONDS = 530.0
"""For everything: under nine minutes."""


@dataclass(frozen=True)
class Subject:
    """One task that is tuned.

    Attributes:
        path: the task file.
        device: ``cuda``, or ``cpu``: with every CPU core, and no GPU to be seen.
        budget: seconds of the tuning run.
        rival: who else is asked.
        rival_seconds: the rival's limit.
    """

    path: Path
    device: str
    budget: float
    rival: str
    rival_seconds: float = 35.0

    @property
    def name(self) -> str:
        """Of the parts that are about it."""
        return self.path.stem


SUBJECTS = (
    Subject(TASKS / "cnn.py", "cuda", 65.0, "pytorch-autotune"),
    Subject(TASKS / "transformer.py", "cuda", 70.0, "pytorch-autotune"),
    Subject(TASKS / "images.py", "cuda", 45.0, "loadtune", 25.0),
    Subject(EXAMPLES / "tabular_mlp.py", "cpu", 35.0, "loadtune", 20.0),
)


@dataclass(frozen=True)
class Part:
    """One step of the run, in a process of its own.

    Attributes:
        kind: ``facts``, ``tests``, ``tune``, ``rival`` or ``recheck``.
        seconds: after which it is ended.
        subject: the task, where it is about one.
    """

    kind: str
    seconds: float
    subject: Subject | None = None

    @property
    def name(self) -> str:
        """In the result file."""
        return f"{self.kind} {self.subject.name}" if self.subject else self.kind


TUNE_GRACE, RECHECK_SECONDS, REHEARSAL_BUDGET = 8.0, 28.0, 20.0
ONE_BY_ONE = ("tune", "rival", "recheck")


def parts(*, rehearse: bool) -> Iterator[Part]:
    """In order: what is most wanted first. A rehearsal tunes one task, in seconds."""
    yield Part("facts", 60.0 if rehearse else 15.0)
    yield Part("tests", 120.0 if rehearse else 40.0)
    for subject in SUBJECTS[:1] if rehearse else SUBJECTS:
        seconds = {"tune": subject.budget + TUNE_GRACE, "rival": subject.rival_seconds, "recheck": RECHECK_SECONDS}
        yield from (Part(kind, 120.0 if rehearse else seconds[kind], subject) for kind in ONE_BY_ONE)
