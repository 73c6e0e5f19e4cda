"""The parts of a profile's schema that all its records share: words, numbers, and the settings of a level."""

from __future__ import annotations

import math
import re
import unicodedata
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
from autotune.knobs import knob as kinds
from autotune.knobs.settings import Settings, without_accumulation
from autotune.knobs.table import KNOB_NAMES, KNOBS

MAX_TEXT = 500
MAX_NAME = 100
MAX_ITEMS = 200
STYLED = {"FULLWIDTH", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "CIRCLED", "SQUARED"}
"""How names of letters begin that only look like plain ones."""
MAX_NUMBER = 2**62
"""No figure of a profile is larger."""

Level = Literal["safe", "amp", "max"]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control or other unprintable characters")
    return text


def look_alike(name: str) -> str | None:
    """The part of ``name`` that may look like another name: letters of several alphabets, or styled ones."""
    for word in re.findall(r"[^\W\d_]+", name):
        alphabets = {unicodedata.name(letter, "UNKNOWN").split()[0] for letter in word}
        if alphabets & STYLED or ("LATIN" in alphabets and len(alphabets) > 1):
            return str(word)
    return None


def _readable(name: str) -> str:
    word = look_alike(name)
    if word is not None:
        raise ValueError(f"has letters that look like others ({ascii(word)[:MAX_NAME]})")
    return name


def _knob(name: str) -> str:
    if name not in (*KNOB_NAMES, "accumulation"):
        raise ValueError(f"{name!r} is no knob")
    return name


def _scalar(value: Any) -> Any:
    """One knob's value: a word, a number, true, false or null."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not a finite number")
    if isinstance(value, (int, float)) and abs(value) > MAX_NUMBER:
        raise ValueError(f"is above {MAX_NUMBER:.3g}")
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ValueError(f"is longer than {MAX_TEXT} characters")
        return _printable(value)
    if value is not None and not isinstance(value, (bool, int, float)):
        raise ValueError("is not a single value")
    return value


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT), AfterValidator(_printable)]
Word = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_NAME), AfterValidator(_printable), AfterValidator(_readable)
]
Plain = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME, pattern=r"^[\x21-\x7e]+$")]
"""Facts of machines: what a maker or kernel calls a thing, without blanks."""
Slug = Annotated[str, StringConstraints(max_length=200, pattern=r"^[a-z0-9][a-z0-9.\-]*$")]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
KnobName = Annotated[str, AfterValidator(_knob)]
Scalar = Annotated[Any, PlainValidator(_scalar)]
Count = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
Rate = Annotated[float, Field(ge=0, le=MAX_NUMBER)]


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
    return (typed | None if knob.neutral is None else typed), knob.neutral


if TYPE_CHECKING:
    SettingsRecord = _Settings
else:
    SettingsRecord = create_model("SettingsRecord", __base__=_Settings, **{k.name: _field(k) for k in KNOBS})
