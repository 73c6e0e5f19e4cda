"""What is known of several processes of a script without a trial."""

import sys
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from autotune.scripts.hooks import Hooks
from autotune.trial.child.script_facts import Seen, counts_samples, script_facts, why_not_several
from autotune.trial.target import OUR_ONE, USERS_THREADS

DATA = TensorDataset(torch.zeros(64, 1))


class Stream(IterableDataset[Any]):
    """Four samples."""

    def __iter__(self) -> Iterator[Any]:
        yield from torch.zeros(4, 1)


def seen(loader: DataLoader[Any]) -> Seen:
    return Seen(Hooks(), loader=loader, batch=next(iter(loader)))


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of the script's own; the tests' libraries are not loaded."""
    own = tmp_path / "helper.py"
    own.write_text("import torch\n")
    module = ModuleType("helper")
    module.__file__ = str(own)
    own_names = {"torch", "autotune", *sys.stdlib_module_names}
    kept = {name: found for name, found in sys.modules.items() if name.partition(".")[0] in own_names}
    monkeypatch.setattr(sys, "modules", kept | {"helper": module})
    return own


@pytest.mark.parametrize(
    ("found", "device", "words"),
    [
        (lambda: Seen(Hooks()), "cpu", "trains on no DataLoader"),
        (lambda: seen(DataLoader(Stream(), 2)), "cpu", "samples of a stream"),
        (lambda: seen(DataLoader(DATA, 3)), "cpu", "cannot share the batch equally"),
        (lambda: seen(DataLoader(DATA, 4, collate_fn=lambda _: torch.zeros(9, 1))), "cpu", "the length of a batch"),
        (lambda: seen(DataLoader(DATA, 4)), "cuda", "only checked on CPUs"),
        (lambda: seen(DataLoader(DATA, 4)), "cpu", "nothing that the script has loaded makes a process group"),
    ],
)
def test_some_scripts_need_no_trial(found: Any, device: str, words: str) -> None:
    reason = why_not_several(found(), device)
    assert words in reason
    assert reason.endswith("a task file lets several processes be tried")


@pytest.mark.parametrize("word", ["dist.init_process_group('gloo')", "os.environ['WORLD_SIZE']"])
def test_a_word_of_process_groups_asks_for_one(loaded: Path, word: str) -> None:
    loaded.write_text(word)
    assert why_not_several(seen(DataLoader(DATA, 4)), "cpu") is None


@pytest.mark.parametrize(
    ("by_script", "environment", "words"),
    [
        (2, OUR_ONE, "the script sets"),
        (None, "2", "the script sets"),
        (None, OUR_ONE, "OMP_NUM_THREADS in your environment"),
    ],
)
def test_who_sets_the_threads(by_script, environment, words, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", environment)
    monkeypatch.setenv(USERS_THREADS, "OMP_NUM_THREADS=1")
    hooks = Hooks()
    hooks.threads = by_script
    facts = script_facts("x", Seen(hooks))
    (why,) = [each.reason for each in facts.left_out if each.knob == "threads"]
    assert words in why
    assert facts.fixed == {"threads": f"OMP_NUM_THREADS={facts.current['threads']}"}


def test_a_batch_of_a_tokenizer_is_as_long_as_its_tensors() -> None:
    """Seen: what ``tokenizer.pad`` returns is a ``UserDict``, and was taken for one sample a batch."""
    loader = DataLoader(DATA, 4, collate_fn=lambda rows: UserDict(x=torch.stack([row[0] for row in rows])))
    assert counts_samples(seen(loader))
