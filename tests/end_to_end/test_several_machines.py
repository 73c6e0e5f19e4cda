"""`autotune tune` on two machines: two runs of the same command, which share nothing but an address."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.harness import MLP, PATIENCE, begin, left, read_until

pytestmark = pytest.mark.torch
Pair = list[subprocess.Popen[str]]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def begin_pair(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    """Starts two machines' runs: the first to come controls. Each has a task file, a folder and a lock of its own."""
    running: Pair = []

    def begin_pair(*options: str) -> Pair:
        words = ["tune", "model.py", "--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{_free_port()}", *options]
        for name in ("a", "b"):
            folder = tmp_path / name
            (folder / "tmp").mkdir(parents=True)
            (folder / "model.py").write_text(MLP)
            running.append(begin(folder, *words, TMPDIR=str(folder / "tmp")))
            if name == "a":
                read_until(running[0], "for 1 more machine")
        return running

    yield begin_pair
    for process in running:
        process.kill()
        process.communicate()


def test_two_machines_are_tuned_together(begin_pair: Callable[..., Pair]) -> None:
    """With little to try: the run ends by itself."""
    pair = begin_pair("--budget", "90s", "--only", "precision", "--json")
    (out, err), (nothing, said) = (process.communicate(timeout=PATIENCE) for process in pair)
    assert pair[0].returncode == 0, err
    assert pair[1].returncode == 0, said
    assert "the run has ended" in said
    assert nothing == ""
    answer = json.loads(out)
    profile = yaml.safe_load(Path(answer["path"]).read_text())
    assert profile["target"]["nnodes"] == 2
    assert Path(answer["path"]).name == "model.2nodes.yaml"
    assert profile["baseline"]["settings"]["batch_size"] == 64
    assert profile["baseline"]["rate"] > 0
    kinds = [failure["kind"] for failure in profile["evidence"]["failures"]]
    assert not {"crashed", "not-applied"} & set(kinds), profile["evidence"]["failures"]
    assert left() == set()


@pytest.mark.parametrize(("killed", "words"), [(1, "the agent there is gone"), (0, "ended without notice")])
def test_a_machine_that_vanishes_ends_the_run(begin_pair: Callable[..., Pair], killed: int, words: str) -> None:
    pair = begin_pair("--budget", "10m")
    read_until(pair[0], "searching: ")
    os.kill(pair[killed].pid, signal.SIGKILL)
    _out, err = pair[1 - killed].communicate(timeout=PATIENCE)
    assert pair[1 - killed].returncode == 4, err
    assert words in err
    assert left() == set()


def test_ctrl_c_on_the_controller_ends_both_and_keeps_what_was_found(
    begin_pair: Callable[..., Pair], tmp_path: Path
) -> None:
    pair = begin_pair("--budget", "10m")
    read_until(pair[0], "searching: ")
    pair[0].send_signal(signal.SIGINT)
    (_out, err), (_nothing, said) = (process.communicate(timeout=PATIENCE) for process in pair)
    assert pair[0].returncode == 130, err
    assert pair[1].returncode == 0, said
    assert left() == set()
    (saved,) = tmp_path.rglob("model.2nodes.yaml")
    assert yaml.safe_load(saved.read_text())["evidence"]["partial"]
