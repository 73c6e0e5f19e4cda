"""How a script that runs inside this process ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from autotune.runtime.entry import as_main


@pytest.mark.parametrize(
    ("code", "status", "printed"),
    [(None, 0, ""), (True, 1, ""), (7, 7, ""), (256, 0, ""), (-1, 255, ""), ("words", 1, "words\n"), (2.0, 1, "2.0\n")],
)
def test_exit_codes_are_read_as_python_reads_them(
    code: Any, status: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def leaves() -> None:
        raise SystemExit(code)

    assert as_main.ended(leaves) == (None, status)
    assert capsys.readouterr().err == printed


def test_a_traceback_begins_in_the_script(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "fails.py"
    script.write_text("def low():\n    return {}['missing']\nlow()\n")
    path, argv, line = list(as_main.sys.path), as_main.sys.argv, as_main.sys.orig_argv
    try:
        error, status = as_main.ended(partial(as_main.run, str(script), [str(script), "x"]))
    finally:
        as_main.sys.path[:], as_main.sys.argv, as_main.sys.orig_argv = path, argv, line
    lines = capsys.readouterr().err.splitlines()
    assert (type(error), status) == (KeyError, 1)
    assert lines[0] == "Traceback (most recent call last):"
    assert f'File "{script}", line 3' in lines[1]
    assert lines[-1] == "KeyError: 'missing'"
