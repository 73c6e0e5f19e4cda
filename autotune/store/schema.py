"""The profile file's schema, checked strictly, and its conversion to and from `Profile`.

Schema history
    autotune.profile/1   first public format; settings of version 0.1 hold `accumulation`, which is read where it is 1
    autotune.profile/2   adds `written`, `target.identity`, `machine.facts.gpu_gib` and `.gpu_links`, and may have
                         `software.driver`; files of version 1 are read, without them

A profile may come from anyone. It can therefore hold numbers, enumerated words and short plain text only: nothing in it
names a file, a variable or code. An interval without an upper end is written ``high: null``, since files hold finite
numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from autotune.core.fingerprint import Fingerprint
from autotune.core.profile import Ceiling, Evidence, Failure, LevelResult, NotOffered, Profile, Target, Written
from autotune.core.proof import Proof
from autotune.store.fields import (
    MAX_ITEMS,
    Count,
    Key,
    KnobName,
    Level,
    Plain,
    Rate,
    Record,
    Scalar,
    SettingsRecord,
    Slug,
    Text,
    Word,
)


class FactsRecord(Record):
    """The facts of a `MachineType`, without its key."""

    vendor: Plain
    family: Plain
    architecture: Plain
    threads: Annotated[int, Field(ge=1, le=2**20)]
    cores: Annotated[int, Field(ge=1, le=2**20)]
    sockets: Annotated[int, Field(ge=1, le=2**20)]
    nodes: Annotated[int, Field(ge=1, le=2**20)]
    memory_gib: Annotated[int | float, Field(ge=0, le=2**30)]
    gpus: Annotated[list[Slug], Field(max_length=1024)]
    features: Annotated[list[Plain], Field(max_length=MAX_ITEMS)]
    gpu_gib: Annotated[list[Annotated[int, Field(ge=0, le=2**20)]], Field(max_length=1024)] | None = None
    gpu_links: Annotated[list[Slug], Field(max_length=MAX_ITEMS)] | None = None


class MachineRecord(Record):
    """``{key, facts}``."""

    key: Slug
    facts: FactsRecord


Digests = Annotated[list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]], Field(max_length=16)]


class FingerprintRecord(Record):
    """`Fingerprint`."""

    models: Digests
    optimizers: Digests
    loaders: Digests

    def to_core(self) -> Fingerprint:
        """`Fingerprint`."""
        return Fingerprint.from_dict(dict(self))


class WrittenRecord(Record):
    """`Written`."""

    tool: Annotated[str, StringConstraints(pattern=r"^[0-9][0-9a-z.+]{0,39}$")]
    date: Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}-[01][0-9]-[0-3][0-9]$")]


class TargetRecord(Record):
    """`Target`."""

    name: Word
    unit: Word
    device: Literal["cpu", "cuda"]
    parameters: Count
    samples: Count | None
    nnodes: Annotated[int, Field(ge=1, le=2**20)] = 1
    script: Literal["batches", "steps", "backward passes"] | None = None
    skip: Annotated[int, Field(ge=0, le=2**20)] = 0
    compared: FingerprintRecord | None = None

    def to_core(self) -> Target:
        """`Target`."""
        return Target(**{**dict(self), "compared": self.compared.to_core() if self.compared else Fingerprint()})


class ProofRecord(Record):
    """`Proof`; ``high: null`` where one generation of processes left the interval open."""

    value: Rate
    low: Rate
    high: Rate | None
    confidence: Annotated[float, Field(gt=0, lt=1)]
    rounds: Count

    @model_validator(mode="after")
    def _ordered(self) -> ProofRecord:
        if not self.low <= self.value <= (math.inf if self.high is None else self.high):
            raise ValueError(f"{self.value} is not between low {self.low} and high {self.high}")
        return self

    def to_core(self) -> Proof:
        """`Proof`, with an open interval's infinity back."""
        values = dict(self)
        return Proof(**{**values, "high": math.inf if self.high is None else self.high})


class LevelRecord(Record):
    """`LevelResult`."""

    settings: SettingsRecord
    rate: Rate
    speedup: ProofRecord
    proven: bool
    note: Text

    def to_core(self) -> LevelResult:
        """`LevelResult`."""
        return LevelResult(self.settings.to_core(), self.rate, self.speedup.to_core(), self.proven, self.note)


class LevelsRecord(Record):
    """All three levels: one that adds nothing repeats the one below and says so."""

    safe: LevelRecord
    amp: LevelRecord
    max: LevelRecord


class BaselineRecord(Record):
    """What the user runs today."""

    settings: SettingsRecord
    rate: Rate


class FailureRecord(Record):
    """`Failure`."""

    kind: Word
    reason: Text
    changed: dict[KnobName, Scalar]


class NotOfferedRecord(Record):
    """`NotOffered`."""

    knob: Word
    value: Scalar
    reason: Text


class CeilingRecord(Record):
    """`Ceiling`."""

    fp32_gflops: Rate
    bf16_gflops: Rate
    flops_per_item: Rate


class EvidenceRecord(Record):
    """`Evidence`."""

    trials: Count
    seconds: Rate
    partial: bool
    failures: Annotated[list[FailureRecord], Field(max_length=MAX_ITEMS)]
    not_offered: Annotated[list[NotOfferedRecord], Field(max_length=MAX_ITEMS)]
    warnings: Annotated[list[Text], Field(max_length=MAX_ITEMS)]
    ceiling: CeilingRecord | None = None
    why: Text = ""

    def to_core(self) -> Evidence:
        """`Evidence`."""
        return Evidence(
            trials=self.trials,
            seconds=self.seconds,
            partial=self.partial,
            failures=tuple(Failure(**dict(item)) for item in self.failures),
            not_offered=tuple(NotOffered(**dict(item)) for item in self.not_offered),
            warnings=tuple(self.warnings),
            ceiling=Ceiling(**dict(self.ceiling)) if self.ceiling is not None else None,
            why=self.why,
        )


class ProfileRecord(Record):
    """The whole file."""

    schema_: Annotated[Literal["autotune.profile/1", "autotune.profile/2"], Field(alias="schema")]
    written: WrittenRecord | None = None
    machine: MachineRecord
    software: Annotated[dict[Key, Scalar], Field(max_length=MAX_ITEMS)]
    target: TargetRecord
    recommended: Level
    baseline: BaselineRecord
    levels: LevelsRecord
    evidence: EvidenceRecord

    def to_core(self) -> Profile:
        """`Profile`."""
        return Profile(
            machine=self.machine.model_dump(exclude_none=True),
            software=dict(self.software),
            target=self.target.to_core(),
            recommended=self.recommended,
            baseline=self.baseline.settings.to_core(),
            baseline_rate=self.baseline.rate,
            levels={name: level.to_core() for name, level in self.levels},
            evidence=self.evidence.to_core(),
            written=Written(**dict(self.written)) if self.written else None,
        )


_RECORDS: tuple[type[Record], ...] = (*Record.__subclasses__(), SettingsRecord)
KEYS = frozenset(name for record in _RECORDS for name in record.model_fields)
"""Names of all keys that the file's parts have."""


def from_data(data: Mapping[str, Any]) -> Profile:
    """`Profile` from parsed ``data``.

    Raises:
        pydantic.ValidationError: see `autotune.store.validation` for its words.
    """
    return ProfileRecord.model_validate(data).to_core()
