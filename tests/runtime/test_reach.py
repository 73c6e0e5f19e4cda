"""What the walk reaches, by which path."""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

import numpy
import pytest
from autotune.runtime.reach import is_library, walk

from autotune.runtime import reach

TABLE = {"a": [1]}


class Kept:
    """One attribute, one slot's worth of class state, and a method that reads a global."""

    shared: list[int] = []  # noqa: RUF012

    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return TABLE


def closed_over(value: Any) -> Any:
    def inner(default: Any = value) -> Any:
        return value, default

    return inner


def cycle() -> list[Any]:
    """A list that holds itself."""
    items: list[Any] = [1]
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (Kept, "root.value"),
        (lambda found: [0, {"key": found}], "root[1]['key']"),
        (lambda found: {(1, 2): found}, "root[#0]"),
        (lambda found: (*range(1000), found), "root[1000]"),
        (lambda found: [*range(500), found, *range(500)], "root[500]"),
        (lambda found: collections.deque([found]), "root[0]"),
        (lambda found: dict.fromkeys(range(500)) | {"last": found}, "root['last']"),
        (closed_over, "root.value"),
        (lambda found: functools.partial(print, found), "root.args[0]"),
        (lambda found: Kept(found).read, "root.self.value"),
        (lambda found: numpy.array([None, found], dtype=object), "root[1]"),
        (lambda found: types.SimpleNamespace(inner=Kept([found])), "root.inner.value[0]"),
    ],
)
def test_an_object_is_found(make: Any, path: str) -> None:
    found = Kept(None)
    assert [each.path for each in walk({"root": make(found)}) if each.value is found] == [path]


@pytest.mark.parametrize("path", ["Kept.shared", "TABLE", "TABLE['a']"])
def test_state_of_classes_and_modules_is_found(path: str) -> None:
    assert path in [each.path for each in walk({"root": Kept(1)})]


def test_a_circle_ends_and_the_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(list(walk({"root": cycle()}))) == 1
    monkeypatch.setattr(reach, "MOST", 5)
    assert len(list(walk({"root": [[k] for k in range(90)]}))) == 5


def test_the_users_code_is_not_called() -> None:
    class Hostile:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __len__(self) -> int:
            raise AssertionError

        __iter__ = __eq__ = __bool__ = __repr__ = __len__  # type: ignore[assignment]
        __hash__ = None  # type: ignore[assignment]

    class Items(list[Any]):
        __iter__ = __getitem__ = Hostile.__len__  # type: ignore[assignment]

    assert "root[0]" in [each.path for each in walk({"root": Items([Hostile()])})]


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("torch.utils.data", True),
        ("numpy", True),
        ("builtins", True),
        ("collections", True),
        ("pytest", True),
        (__name__, False),
        ("no_such_module", False),
    ],
)
def test_what_a_library_is(module: str, library: bool) -> None:
    assert is_library(module) is library
