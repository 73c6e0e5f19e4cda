from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from autotune.trial.user_errors import OURS, error_report, user_traceback


class Custom(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("bad"), "ValueError", "bad"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (Custom("mine"), f"{__name__}.Custom", "mine"),
    ],
)
def test_type_and_text(error: BaseException, kind: str, text: str) -> None:
    found = error_report(error)
    assert (found.error_type, found.error) == (kind, text)
    assert found.traceback.strip()


def test_the_traceback_starts_in_the_users_file(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("def build():\n    return missing_name\n\nbuild()\n")
    ours = compile("import runpy\nrunpy.run_path(path)\n", f"{OURS}/trial/imagined.py", "exec")
    with pytest.raises(NameError) as error:
        exec(ours, {"path": str(file), "runpy": runpy})
    error.value.__traceback__ = error.value.__traceback__.tb_next if error.value.__traceback__ else None
    text = user_traceback(error.value)
    assert "imagined.py" not in text
    assert text.rstrip().endswith("NameError: name 'missing_name' is not defined")
    assert f'File "{file}", line 2' in text


def test_an_error_of_our_own_keeps_its_whole_traceback() -> None:
    ours = compile("raise RuntimeError('ours')", f"{OURS}/trial/imagined.py", "exec")
    with pytest.raises(RuntimeError) as error:
        exec(ours)
    inner = error.value.__traceback__.tb_next if error.value.__traceback__ else None
    error.value.__traceback__ = inner
    assert "imagined.py" in user_traceback(error.value)
