"""Accelerate's names on a session."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from autotune.runtime.accelerate_names import INSTEAD
from autotune.runtime.session import Session


@pytest.fixture
def session() -> Any:
    with Session(None, device="cpu") as found:
        yield found


def test_equal_things_have_both_names(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 1)
    assert (session.is_main_process, session.is_local_main_process) == (True, True)
    assert (session.process_index, session.local_process_index, session.num_processes) == (0, 0, 1)
    assert session.unwrap_model(model) is model
    session.wait_for_everyone()
    session.print("loss", 3, sep="=")
    assert capsys.readouterr().out == "loss=3\n"


def test_other_processes_print_nothing(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.is_main = False
    session.print("loss")
    assert capsys.readouterr().out == ""


def test_the_local_rank_is_the_launchers(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert (session.local_process_index, session.is_local_main_process) == (3, False)


@pytest.mark.parametrize("name", INSTEAD)
def test_what_has_no_equal_says_what_to_write(session: Session, name: str) -> None:
    assert not hasattr(session, name)
    with pytest.raises(AttributeError, match="coming from Accelerate: "):
        getattr(session, name)


def test_any_other_name_is_missing_as_ever(session: Session) -> None:
    with pytest.raises(AttributeError, match=r"^'Session' object has no attribute 'prepar'$"):
        session.prepar  # noqa: B018


@pytest.mark.parametrize("wrap", [list, tuple, lambda items: dict(enumerate(items))])
@pytest.mark.parametrize("inner", ["model", "optimizer", "loader"])
def test_containers_of_what_is_to_be_prepared_are_refused(session: Session, wrap: Any, inner: str) -> None:
    model = nn.Linear(2, 1)
    objects = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loader": DataLoader([1.0])}
    with pytest.raises(TypeError, match=r"Write tuned\.prepare\(\*objects"):
        session.prepare(wrap(["config", objects[inner]]))


@pytest.mark.parametrize("other", [[], {}, {"lr": 0.1}, ("a", 1), "text", None])
def test_everything_else_passes(session: Session, other: Any) -> None:
    assert session.prepare(other) is other
