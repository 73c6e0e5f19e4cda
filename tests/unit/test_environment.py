"""What the environment says."""

from __future__ import annotations

import pytest

from autotune.environment import disabled

NO = ["", "0", "false", "False", "no", "NO", "off", " off "]


@pytest.mark.parametrize("written", [*NO, "1", "true", "Yes", "on", "2"])
def test_yes_and_no_as_people_write_them(written: str) -> None:
    assert disabled({"AUTOTUNE_DISABLE": written}) is (written not in NO)
