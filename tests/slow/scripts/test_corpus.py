"""All other scripts of the corpus, brought to their training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.scripts.corpus import CORPUS, Script
from tests.processes.scripts.test_corpus import check


@pytest.mark.parametrize("script", [each for each in CORPUS if not each.daily], ids=lambda script: script.name)
def test_comes_to_its_training(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(script, tmp_path, monkeypatch)
