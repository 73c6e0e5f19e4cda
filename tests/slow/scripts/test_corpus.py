"""All other scripts of the corpus, brought to their training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.scripts.corpus import Script
from tests.processes.scripts.test_corpus import REST, check


@pytest.mark.parametrize("script", REST, ids=lambda script: script.name)
def test_comes_to_its_training(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(script, tmp_path, monkeypatch)
