"""What runs on the machine, in which order, and for how long at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
TOTAL_SECONDS = 530.0
"""For everything: under nine minutes."""


@dataclass(frozen=True)
class Subject:
    """One plain script that is tuned.

    Attributes:
        name: of its file, without the suffix.
        short: arguments with which a whole run takes some seconds of training.
    """

    name: str
    short: tuple[str, ...]

    @property
    def path(self) -> Path:
        """Return its file."""
        return SCRIPTS / f"{self.name}.py"


SUBJECTS = (Subject("gpt", ("--steps", "400")), Subject("resnet", ("--epochs", "4")))


@dataclass(frozen=True)
class Part:
    """One step of the run, in a process of its own.

    Attributes:
        kind: ``facts``, ``tests``, ``tune`` or ``runs``.
        seconds: after which it is ended.
        subject: the script, where it is about one.
    """

    kind: str
    seconds: float
    subject: Subject | None = None

    @property
    def name(self) -> str:
        """In the result file."""
        return f"{self.kind} {self.subject.name}" if self.subject else self.kind


TUNE_SECONDS, REHEARSAL_SECONDS, GRACE_SECONDS, RUNS_SECONDS = 110.0, 60.0, 15.0, 100.0


def parts(*, rehearse: bool) -> Iterator[Part]:
    """In order: what is most wanted first. A rehearsal tunes one script, in a minute."""
    yield Part("facts", 60.0 if rehearse else 15.0)
    for subject in SUBJECTS[:1] if rehearse else SUBJECTS:
        yield Part("tune", (REHEARSAL_SECONDS if rehearse else TUNE_SECONDS) + GRACE_SECONDS, subject)
        yield Part("runs", RUNS_SECONDS, subject)
    yield Part("tests", 120.0)
