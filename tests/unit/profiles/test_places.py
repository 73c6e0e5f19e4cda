"""Where profiles are looked for, and in which order."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from autotune import project
from autotune.errors import UsageError
from autotune.profiles import places
from autotune.profiles.places import VARIABLE
from autotune.project import MOST_BYTES


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("../../etc/passwd", "etc-passwd-67a1de67"),
        ("..", "unnamed-"),
        ("", "unnamed-"),
        ("a\\b\nc\0d", "a-b-c-d-"),
        (".hidden", "hidden-"),
        ("mein modell ü", "mein-modell-ü-"),
        ("x" * 300, "x" * 91 + "-"),
        ("训" * 300, "训" * 30 + "-"),
        ("resnet_50.v2", "resnet_50.v2"),
        ("训练", "训练"),
        ("a.train", "a.train"),
    ],
)
def test_names_stay_inside_their_folder_and_differ(text: str, name: str) -> None:
    path = places.default_path(text, text, Path("r"))
    found = path.stem
    assert path == Path("r", found, f"{found}.yaml")
    assert found.startswith(name[:-8] if name[-1].isalnum() and name.startswith("etc") else name)
    assert (found == text) is not bool(re.search(r"-[0-9a-f]{8}$", found))
    assert len(found.encode()) <= MOST_BYTES


def test_names_of_version_0_1_are_still_found() -> None:
    found = [places.target_of(f"key/{each}") for each in places.file_names("mein modell ü")]
    assert found == ["mein-modell-ü-3f7f6795"] * 2 + ["mein-modell"] * 2


# Names of scripts -----------------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with scripts of the same name in its folders, and a mark inside that is not its top."""
    top = tmp_path / "repository"
    for folder in ("a/deep", "b"):
        (top / folder).mkdir(parents=True)
    (top / ".git").touch()  # as of a work tree
    (top / "b" / "pyproject.toml").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(top)
    return top


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("train.py", ("train",)),
        ("a/train.py", ("a.train", "train")),
        ("b/train.py", ("b.train", "train")),
        ("a/deep/训练.py", ("a.deep.训练", "训练")),
        ("b/__main__.py", ("b",)),
        ("__main__.py", ("repository",)),
    ],
)
def test_a_script_is_named_by_its_place_in_the_project(script: str, names: tuple[str, ...], repository: Path) -> None:
    assert project.names_of(repository / script) == project.names_of(Path(script)) == names
    (repository / Path(script).name).touch()  # one that is called so today
    assert project.names_of(Path(script)) == (names[:1] if "__main__" not in script else names)


def test_a_link_is_called_as_what_it_leads_to(repository: Path) -> None:
    """`tune` sees the file, and a training that calls `load` sees the link."""
    (repository / "link.py").symlink_to(repository / "a" / "train.py")
    assert project.name_of(repository / "link.py") == "a.train"


def test_without_a_mark_the_scripts_own_folder_is_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    assert project.names_of(Path("a/train.py")) == ("train",)
    assert places.own_place("key", "train", Path("a/train.py")) == Path("a/profiles/key/train.yaml")
    (tmp_path / "a" / "pyproject.toml").touch()
    assert project.root(tmp_path / "a" / "b" / "train.py") == tmp_path / "a"


def test_profiles_are_looked_for_upwards_and_written_at_the_top(repository, monkeypatch) -> None:
    script = repository / "a" / "deep" / "train.py"
    assert places.own_place("key", "a.deep.train", script) == Path("profiles/key/a.deep.train.yaml")
    assert not (repository / "profiles").exists()
    up = (Path("profiles"), Path("a/deep/profiles"), Path("a/profiles"))
    assert places.places(script)[:3] == up
    monkeypatch.chdir(repository / "b")
    found = places.places(script)
    assert found[:4] == (
        Path("profiles"),
        *(repository / each for each in ("a/deep/profiles", "a/profiles", "profiles")),
    )
    assert places.own_place("key", "x", script) == repository / "profiles" / "key" / "x.yaml"
    monkeypatch.chdir(repository.parent)  # an earlier version wrote to the working folder
    assert Path("profiles") in places.places(script)


def test_another_projects_profiles_are_not_looked_at(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "train.py"
    other.parent.mkdir()
    (other.parent / ".git").touch()
    assert Path("profiles") not in places.places(other)
    assert not {*places.places(other)[:2]} & {*places.places(repository / "train.py")}
    assert places.user_folder(other) != places.user_folder() == places.user_folder(repository / "a" / "train.py")


def homeless(*_args: Any, **_options: Any) -> str:
    raise RuntimeError("Could not determine home directory.")


def test_the_project_comes_first_then_the_user_the_system_and_what_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "/shared/profiles")
    near, own, system, named = places.places(tmp_path / "train.py")
    assert (near, own, named) == (Path("profiles"), places.user_folder(), Path("/shared/profiles"))
    assert isinstance(system, Path)
    assert system.is_absolute()


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ('profiles = ["team", "s3://bucket/x", 3]', ["team", "s3://bucket/x"]),
        ("profiles = 3", []),
        ("profiles = [", []),
        ("[other]", []),
    ],
)
def test_a_project_names_places(table: str, found: list[str], repository: Path) -> None:
    (repository / "pyproject.toml").write_text(f"[tool.torch-autotune]\n{table}\n")
    seen = places.places(repository / "a/deep/train.py")
    wanted = [each if places.is_url(each) else repository / each for each in found]
    assert [each for each in seen if "team" in str(each) or "s3" in str(each)] == wanted


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


@pytest.mark.parametrize("kind", places.MARKS)
def test_of_a_large_file_only_the_start_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("numbers")
    os.truncate(path, 2**40)  # takes no space on the disk, but more than the memory
    with pytest.raises(UsageError, match="and is not replaced"):
        places.checked_place(path, kind)
