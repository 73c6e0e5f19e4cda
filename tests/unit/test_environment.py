"""What the environment says."""

from __future__ import annotations

import pytest

from autotune.environment import Overrides, overrides


@pytest.mark.parametrize("written", ["", "0", "false", "False", "no", "NO", "off", " off "])
def test_no_as_people_write_it(written: str) -> None:
    assert not overrides({"AUTOTUNE_DISABLE": written}).disabled


@pytest.mark.parametrize("written", ["1", "true", "Yes", "on", "2"])
def test_yes_as_people_write_it(written: str) -> None:
    assert overrides({"AUTOTUNE_DISABLE": written}).disabled


def test_empty_is_unset() -> None:
    assert overrides({"AUTOTUNE_PROFILE": "", "AUTOTUNE_LEVEL": ""}) == overrides({}) == Overrides(None, None, False)
