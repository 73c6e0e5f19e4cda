"""Whether a training is the one that a profile was made for."""

from __future__ import annotations

import pytest
from autotune.core.identity import Identity, Made, Prepared, made_for_another

OWN = Identity("0123456789abcdef", "AdamW", ("float32 8",))
MADE = Made("train", 100, OWN)
HERE = Prepared([(100, OWN.model)], 100, OWN.model, ["AdamW"])


@pytest.mark.parametrize(
    ("made", "here", "words"),
    [
        (MADE, HERE, None),
        (Made("train", 100, None), Prepared([(100, "f" * 16)], 100, "f" * 16, ["SGD"]), None),
        (MADE, Prepared([], 0, "", []), None),
        (MADE, Prepared([(60, "a"), (100, OWN.model)], 160, "b", ["AdamW", "SGD"]), None),
        (MADE, Prepared([(60, "a"), (40, "b")], 100, OWN.model, ["AdamW"]), None),
        (MADE, Prepared([(7, "a")], 7, "a", ["AdamW"]), "a model of 100 parameters, this has 7"),
        (MADE, Prepared([(100, "a")], 100, "a", ["AdamW"]), "another model of 100 parameters"),
        (MADE, Prepared([(100, OWN.model)], 100, OWN.model, ["SGD"]), "optimizer AdamW, here SGD"),
        (Made("train", 0, OWN), Prepared([(7, "a")], 7, "a", ["AdamW"]), None),
    ],
)
def test_what_is_said(made: Made, here: Prepared, words: str | None) -> None:
    said = made_for_another(made, here)
    assert (said is None) if words is None else (words in str(said))


def test_plain_data_and_back() -> None:
    assert Identity.from_dict(OWN.as_dict()) == OWN
