"""Where a script is that does not come to its training."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.trial.parent.zygotes import last_place

STACK = """Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3/socket.py", line 10 in read
  File "/home/me/project/data.py", line 33 in prepare_data
  File "/home/me/project/train.py", line 7 in <module>
"""


@pytest.mark.parametrize(
    ("stacks", "where"),
    [(STACK, "; it is in prepare_data (data.py:33)"), ("", ""), ('File "/usr/x.py", line 1 in read', "")],
)
def test_is_the_innermost_frame_of_the_users_own(stacks: str, where: str) -> None:
    assert last_place(stacks, Path("/home/me/project")) == where
