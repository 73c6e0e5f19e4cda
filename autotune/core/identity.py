"""What a profile was made for: marks by which two tasks of one name are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OTHER_OPTIMIZER = "other"
"""Stands for every optimizer class that is not PyTorch's own: its name could tell something private."""


@dataclass(frozen=True)
class Identity:
    """What decides the speed of a task, beside its batch and its number of parameters. Never code or data.

    Attributes:
        model: 16 hexadecimal digits of the model's structure: kinds of layers, and shapes of parameters.
        optimizer: a class of `torch.optim`, or ``other``.
        sample: each tensor of a sample, such as ``float32 3x224x224``; ``*`` where samples differ in length.
    """

    model: str
    optimizer: str
    sample: tuple[str, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Identity:
        """The inverse of `as_dict`."""
        return cls(**{**data, "sample": tuple(data["sample"])})

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "sample": list(self.sample)}


@dataclass(frozen=True)
class Made:
    """What a profile was made for, as far as a training can compare it with itself.

    Attributes:
        target: the profile's.
        parameters: of the model; 0 where no model was seen.
        identity: None in profiles of version 1.
    """

    target: str
    parameters: int
    identity: Identity | None


@dataclass(frozen=True)
class Prepared:
    """What a training has prepared.

    Attributes:
        models: parameters and structure of each model.
        parameters: of all models together.
        structure: of all models together.
        optimizers: classes, as in `Identity`.
    """

    models: Sequence[tuple[int, str]]
    parameters: int
    structure: str
    optimizers: Sequence[str]


def made_for_another(made: Made, here: Prepared) -> str | None:
    """One sentence where the profile was made for something else than what trains ``here``; else None."""
    differences = "; ".join(_differences(made, here))
    if not differences:
        return None
    return (
        f"the profile of {made.target} was made for another training ({differences}): its speedup may differ here;"
        " autotune tune makes one for this"
    )


def _differences(made: Made, here: Prepared) -> Iterator[str]:
    counts = {here.parameters, *(count for count, _ in here.models)}
    structures = {here.structure, *(structure for _, structure in here.models)}
    if here.models and made.parameters:
        if made.parameters not in counts:
            yield f"a model of {made.parameters:,} parameters, this has {here.parameters:,}"
        elif made.identity is not None and made.identity.model not in structures:
            yield f"another model of {made.parameters:,} parameters"
    if made.identity is not None and here.optimizers and made.identity.optimizer not in here.optimizers:
        yield f"optimizer {made.identity.optimizer}, here {' and '.join(here.optimizers)}"
