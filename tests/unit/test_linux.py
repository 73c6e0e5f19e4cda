"""System calls by name: what the kernel answers, and what a system without the call does."""

import errno
import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from autotune import linux

GET_DUMPABLE = 3
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def test_the_kernels_answer_is_returned() -> None:
    assert linux.call("getppid") == os.getppid()
    assert linux.call("prctl", GET_DUMPABLE, 0, 0, 0, 0) in (0, 1, 2)


def test_a_refusal_says_the_call_and_its_files(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"umount2\(.*none\): ") as refused:
        linux.call("umount2", tmp_path / "none", 0)
    assert refused.value.errno in (errno.ENOENT, errno.EPERM, errno.EINVAL)


@pytest.mark.parametrize(("name", "system"), [("no_such_call", "Linux"), ("getppid", "Darwin")])
def test_a_call_that_is_not_there_is_an_oserror(name: str, system: str) -> None:
    with (
        mock.patch.object(os, "uname", return_value=mock.Mock(sysname=system)),
        pytest.raises(OSError, match=name) as refused,
    ):
        linux.call(name)
    assert refused.value.errno == errno.ENOSYS
