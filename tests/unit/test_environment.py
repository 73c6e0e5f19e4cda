"""What the environment says."""

from __future__ import annotations

import pytest

from autotune.environment import Overrides, overrides

NO = ["", "0", "false", "False", "no", "NO", "off", " off "]


@pytest.mark.parametrize("written", [*NO, "1", "true", "Yes", "on", "2"])
def test_yes_and_no_as_people_write_them(written: str) -> None:
    assert overrides({"AUTOTUNE_DISABLE": written}).disabled is (written not in NO)


def test_empty_is_unset() -> None:
    assert overrides({"AUTOTUNE_PROFILE": "", "AUTOTUNE_LEVEL": ""}) == overrides({}) == Overrides(None, None, False)
