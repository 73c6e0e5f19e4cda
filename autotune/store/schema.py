"""The profile file's schema, checked strictly, and its conversion to and from `Profile`.

Schema history
    autotune.profile/1   first public format; settings of version 0.1 hold `accumulation`, which is read where it is 1

A profile may come from anyone. It can therefore hold numbers, enumerated words and short plain text only: nothing in it
names a file, a variable or code. An interval without an upper end is written ``high: null``, since files hold finite
numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    create_model,
    model_validator,
)

from autotune.core.errors import UsageError
from autotune.core.knobs import knob as kinds
from autotune.core.knobs.table import KNOB_NAMES, KNOBS
from autotune.core.profile import Ceiling, Evidence, Failure, LevelResult, NotOffered, Profile, Target
from autotune.core.proof import Proof
from autotune.core.settings import Settings, without_accumulation

MAX_TEXT = 500
MAX_NAME = 100
MAX_ITEMS = 200

Level = Literal["safe", "amp", "max"]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control or other unprintable characters")
    return text


def _knob(name: str) -> str:
    if name not in (*KNOB_NAMES, "accumulation"):
        raise ValueError(f"{name!r} is no knob")
    return name


def _scalar(value: Any) -> Any:
    """One knob's value: a word, a number, true, false or null."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not a finite number")
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ValueError(f"is longer than {MAX_TEXT} characters")
        return _printable(value)
    if value is not None and not isinstance(value, (bool, int, float)):
        raise ValueError("is not a single value")
    return value


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT), AfterValidator(_printable)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME), AfterValidator(_printable)]
Slug = Annotated[str, StringConstraints(max_length=200, pattern=r"^[a-z0-9][a-z0-9.\-]*$")]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
KnobName = Annotated[str, AfterValidator(_knob)]
Scalar = Annotated[Any, PlainValidator(_scalar)]
Count = Annotated[int, Field(ge=0, le=2**62)]
Rate = Annotated[float, Field(ge=0)]


class Record(BaseModel):
    """Base of every part: no unknown keys, no conversions, no infinities."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class _Settings(Record):
    """`Settings`, flat. Every knob is required; one that was added later takes its neutral value where it is absent."""

    @model_validator(mode="before")
    @classmethod
    def _older(cls, data: Any) -> Any:
        try:
            return without_accumulation(data) if isinstance(data, Mapping) else data
        except UsageError as error:
            raise ValueError(error) from None

    def to_core(self) -> Settings:
        """Canonical `Settings`."""
        return Settings(**dict(self))


def _field(knob: kinds.Knob) -> tuple[Any, Any]:
    """The knob's type and default, as `pydantic.create_model` takes them."""
    kind = knob.kind
    typed: Any = bool
    if isinstance(kind, kinds.Word):
        typed = Literal[kind.values]
    elif isinstance(kind, kinds.Count):
        typed = Annotated[int, Field(ge=kind.least, le=kind.most)]
    return (typed | None if knob.neutral is None else typed), (knob.neutral if knob.added_later else ...)


if TYPE_CHECKING:
    SettingsRecord = _Settings
else:
    SettingsRecord = create_model("SettingsRecord", __base__=_Settings, **{k.name: _field(k) for k in KNOBS})


class FactsRecord(Record):
    """The facts of a `MachineType`, without its key."""

    vendor: Word
    family: Word
    architecture: Word
    threads: Annotated[int, Field(ge=1, le=2**20)]
    cores: Annotated[int, Field(ge=1, le=2**20)]
    sockets: Annotated[int, Field(ge=1, le=2**20)]
    nodes: Annotated[int, Field(ge=1, le=2**20)]
    memory_gib: Annotated[int | float, Field(ge=0, le=2**30)]
    gpus: Annotated[list[Slug], Field(max_length=1024)]
    features: Annotated[list[Word], Field(max_length=MAX_ITEMS)]


class MachineRecord(Record):
    """``{key, facts}``."""

    key: Slug
    facts: FactsRecord


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

    schema_: Annotated[Literal["autotune.profile/1"], Field(alias="schema")]
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
            machine=self.machine.model_dump(),
            software=dict(self.software),
            target=Target(**dict(self.target)),
            recommended=self.recommended,
            baseline=self.baseline.settings.to_core(),
            baseline_rate=self.baseline.rate,
            levels={name: level.to_core() for name, level in self.levels},
            evidence=self.evidence.to_core(),
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
