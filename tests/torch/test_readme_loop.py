"""The README's training loop trains, with the example of the page on task files."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.test_docs import PAGES, blocks


def test_the_training_loop_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (changes,) = blocks(PAGES["README.md"], "diff")
    loop_with_us = "\n".join(line[1:] for line in changes.splitlines() if line[:1] in "+ ")
    task: dict[str, Any] = {}
    exec(next(text for text in blocks(PAGES["docs/task-file.md"], "python") if "def build_model" in text), task)
    torch.manual_seed(0)
    model = task["build_model"]()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loop: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": torch.utils.data.DataLoader(task["build_dataset"](), batch_size=1024),
        "criterion": torch.nn.functional.cross_entropy,
    }
    exec(loop_with_us, loop)
    loop["tuned"].close()
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
