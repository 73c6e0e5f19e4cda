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
    """

    path: Path
    device: str
    budget: float

    @property
    def name(self) -> str:
        """Return the name that its parts carry."""
        return self.path.stem


SUBJECTS = (
    Subject(TASKS / "cnn.py", "cuda", 100.0),
    Subject(TASKS / "transformer.py", "cuda", 100.0),
    Subject(EXAMPLES / "tabular_mlp.py", "cpu", 60.0),
)


@dataclass(frozen=True)
class Part:
    """One step of the run, in a process of its own.

    Attributes:
        kind: ``facts``, ``tests``, ``tune`` or ``recheck``.
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


TUNE_GRACE, RECHECK_SECONDS, REHEARSAL_BUDGET = 8.0, 28.0, 45.0


def parts(*, rehearse: bool) -> Iterator[Part]:
    """In order: what is most wanted first. A rehearsal tunes one task, in seconds."""
    yield Part("facts", 60.0 if rehearse else 15.0)
    yield Part("tests", 120.0 if rehearse else 40.0)
    for subject in SUBJECTS[:1] if rehearse else SUBJECTS:
        yield Part("tune", 120.0 if rehearse else subject.budget + TUNE_GRACE, subject)
        yield Part("recheck", 120.0 if rehearse else RECHECK_SECONDS, subject)
