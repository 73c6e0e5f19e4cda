"""How a script that runs inside this process ends."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.scripts.entry import as_main


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
