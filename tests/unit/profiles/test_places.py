"""Where profiles are looked for, and in which order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.cli_profiles import check_report
from autotune.errors import UsageError
from autotune.profiles import places
from autotune.profiles.places import VARIABLE


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("..", "unnamed"),
        ("", "unnamed"),
        ("a\\b\nc\0d", "a-b-c-d"),
        (".hidden", "hidden"),
        ("mein modell ü", "mein-modell"),
        ("x" * 300, "x" * 100),
        ("resnet_50.v2", "resnet_50.v2"),
    ],
)
def test_names_stay_inside_their_folder(text: str, name: str) -> None:
    assert places.default_path(text, text) == Path("profiles", name, f"{name}.yaml")
    assert places.default_path(text, text, Path("r")).parts == ("r", name, f"{name}.yaml")
    assert {places.target_of(f"key/{each}") for each in places.file_names(text)} == {name}


def homeless(*_args: Any, **_options: Any) -> str:
    raise RuntimeError("Could not determine home directory.")


def test_the_project_comes_first_then_the_script_the_user_the_system_and_what_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "/shared/profiles")
    found = places.places(tmp_path / "train.py")
    assert found[:2] == (Path("profiles"), tmp_path / "profiles")
    assert found[2] == places.user_folder()
    assert isinstance(found[3], Path)
    assert found[3].is_absolute()
    assert found[4:] == (Path("/shared/profiles"),)


def test_a_place_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "profiles")
    monkeypatch.setenv(VARIABLE, f"{tmp_path}/link:profiles/")
    found = places.places(tmp_path / "train.py")
    assert found.count(Path("profiles")) == 1
    assert tmp_path / "profiles" not in found
    assert tmp_path / "link" not in found


def test_a_named_folder_that_is_not_there_is_missing(tmp_path: Path) -> None:
    found = tuple(map(places.place, (str(tmp_path), f"{tmp_path}/gone", "~nobody-of-that-name/x", "s3://bucket/x")))
    assert places.missing_folders(found) == (tmp_path / "gone", Path("~nobody-of-that-name/x"))


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", ()),
        ("/a:b:~/c", (Path("/a"), Path("b"), Path("~/c"))),
        ("/a:s3://bucket/x/:/b", (Path("/a"), "s3://bucket/x", Path("/b"))),
        ("a:b:s3://bucket/x:~/c", (Path("a"), Path("b"), "s3://bucket/x", Path("~/c"))),
        ("::  :a b:/c:s3://b", (Path("a b"), Path("/c"), "s3://b")),
        ("https://host:8000/x:s3://b", ("https://host:8000/x", "s3://b")),
        ("/a; github://o:r@main/p\n/b", (Path("/a"), "github://o:r@main/p", Path("/b"))),
        ("file:///shared/p", (Path("/shared/p"),)),
    ],
)
def test_entries_of_the_variable(text: str, entries: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    found = tuple(Path(os.path.expanduser(each)) if isinstance(each, Path) else each for each in entries)
    assert places.named_places() == found


@pytest.mark.parametrize("broken", [homeless, lambda *_a, **_o: "~/.local/share/torch-autotune"])
def test_a_home_that_cannot_be_told(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("user_data_dir", "site_data_dir"):
        monkeypatch.setattr(places, name, broken)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert places.places() == (Path("profiles"),)


def test_a_file_that_is_no_profile_is_not_replaced(tmp_path: Path) -> None:
    for name, text in {"train.py": "import torch", "conf.yaml": "epochs: 3"}.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match="is no profile, and is not replaced"):
            places.checked_place(tmp_path / name)
    (tmp_path / "old.yaml").write_text("# a header\nschema: autotune.profile\n")
    assert places.checked_place(tmp_path / "old.yaml") == tmp_path / "old.yaml"


@pytest.mark.parametrize("check", [places.checked_place, check_report])
def test_of_a_large_file_only_the_start_is_read(check: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("numbers")
    os.truncate(path, 2**40)  # takes no space on the disk, but more than the memory
    with pytest.raises(UsageError, match="and is not replaced"):
        check(path)
