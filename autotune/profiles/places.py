"""Finds where profiles are: ``<machine key>/<target>.yaml`` in folders and registries, and which are looked at."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from platformdirs import site_data_dir, user_data_dir

from autotune import project
from autotune.errors import ProfileError, UsageError
from autotune.probes.system import System
from autotune.project import safe_name, with_digest

APPLICATION = "torch-autotune"
VARIABLE = "AUTOTUNE_PROFILES"
FOLDER = "profiles"
START = 4096
PARTIAL = ".partial.yaml"
"""The end of the name of an interrupted run's profile."""
MARKS = {"profile": re.compile(rb"^schema: autotune\.profile", re.MULTILINE), "report": re.compile(rb"\A\s*<")}
"""What every file of ours has: a profile behind its header, a report at its start."""
ADVICE = "Choose another place: --profile OUT.yaml"

Place = Path | str
"""A folder, or the URL of a registry."""
_SCHEME = r"[a-z][a-z0-9+.\-]*://"
_ENTRY = re.compile(rf"\s*{_SCHEME}(?:[^:]|:(?!//)(?![/~.]|{_SCHEME}))*|[^:]+")
"""One entry of the variable. In ``https://host:8000/x:/folder`` only the last colon ends the URL."""


def default_path(machine_key: str, target: str, root: Path) -> Path:
    """Return where the profile of ``target`` on this type of machine belongs."""
    return root / safe_name(machine_key) / file_names(target)[0]


def file_names(target: str) -> tuple[str, ...]:
    """Return the names of files that may hold a profile of ``target``, the best first; last those of old versions."""
    old = re.sub(r"[^A-Za-z0-9._-]+", "-", target[:100]).strip(".-") or "unnamed"
    return tuple(f"{name}{end}" for name in dict.fromkeys((safe_name(target), old)) for end in (".yaml", PARTIAL))


def target_of(name: str) -> str:
    """Return the target of a profile by the name of its file."""
    return re.sub(r"(\.partial)?\.yaml$", "", name.rpartition("/")[2])


def places(script: Path | None = None) -> tuple[Place, ...]:
    """Return all places to look in, nearest first: the project's folders from the training ``script`` upwards, what the
    user's data folder holds for this project, the system's, and what ``AUTOTUNE_PROFILES`` names. Each counts once.

    What the project's ``[tool.torch-autotune]`` names comes after the project's folders.
    """
    here = project.working_folder()
    near = [_shortened(each / FOLDER, here) for each in project.folders(script)]
    usual = [each for each in (user_folder(script), _absolute(site_data_dir)) if each is not None]
    found: dict[str, Place] = {}
    for each in [*near, *stated_places(script), *usual, *named_places()]:
        found.setdefault(each if isinstance(each, str) else os.path.realpath(each), each)
    return tuple(found.values())


def _shortened(path: Path, here: Path | None) -> Path:
    """Return ``path`` as people write it ``here``: relative if it lies below."""
    return path.relative_to(here) if here is not None and path.is_relative_to(here) else path


def stated_places(script: Path | None) -> list[Place]:
    """Return what ``profiles = [...]`` of the project's pyproject.toml names; paths are relative to that file."""
    with contextlib.suppress(ValueError):
        path, table = project.stated(script)
        named = table.get("profiles", [])
        entries = [place(each) for each in named if isinstance(each, str)] if isinstance(named, list) else []
        return [each if isinstance(each, str) else path.parent / each for each in entries]
    return []


def named_places() -> tuple[Place, ...]:
    """Return what ``AUTOTUNE_PROFILES`` names: folders and URLs with ``:`` or ``;`` between them."""
    parts = re.split(r"[;\n]", os.environ.get(VARIABLE, ""))
    entries = (entry.strip() for part in parts for entry in re.findall(_ENTRY, part))
    return tuple(map(place, filter(None, entries)))


def missing_folders(found: Iterable[Place]) -> tuple[Path, ...]:
    """Return the folders of ``found`` that are not there: a share that is not mounted, or a slip."""
    return tuple(each for each in found if isinstance(each, Path) and not each.is_dir())


def place(text: str) -> Place:
    """Return the folder or registry that ``text`` names."""
    if text.startswith("file://"):
        return Path(text.removeprefix("file://"))
    return text.rstrip("/") if is_url(text) else Path(os.path.expanduser(text))


def is_url(text: str) -> bool:
    """Return True if ``text`` is a URL, and no path."""
    return re.match(_SCHEME, text) is not None


def user_folder(script: Path | None = None) -> Path | None:
    """Return the folder of this user's profiles of one project: of the ``script``, or of the working folder.

    None for a user without a home folder.
    """
    top, all_projects = project.root(Path(os.path.realpath(script or "x"))), _absolute(user_data_dir)
    return None if all_projects is None else all_projects / with_digest(safe_name(top.name), str(top))


def temporary_folder() -> Path:
    """Return a new folder for what cannot be kept elsewhere."""
    return Path(tempfile.mkdtemp(prefix="torch-autotune-"))


def _absolute(folder: Callable[..., str]) -> Path | None:
    """Return a folder of platformdirs; None without a home: it raises then, or its path begins with ``~``."""
    try:
        found = Path(folder(APPLICATION, appauthor=False)) / FOLDER
    except (OSError, KeyError, RuntimeError):
        return None
    return found if found.is_absolute() else None


# Where a run may write ------------------------------------------------------------------------------------------------


def checked_place(path: Path, kind: str = "profile") -> Path:
    """Return ``path``: a run finds out before it begins that it cannot write its file. Nothing is made yet.
    Raise `UsageError` if it cannot, or if the first `START` bytes there have no mark of a ``kind`` of ours."""
    try:
        if str(path) == "-":
            raise UsageError(f"-: name a file; a {kind} is not printed")
        if path.is_dir():
            raise UsageError(f"{path}: is a folder. Name the {kind}'s file in it")
        if re.match(r"\w+:/", str(path)):
            url = str(path).replace(":/", "://", 1)  # as it was written: a path has no two slashes
            raise UsageError(f"{url}: is a URL. Name a file: `autotune profiles push` copies a profile to a registry")
        check_replaceable(path)
        _check_folder(path.parent)
        start = read_plain(path, START) if path.is_file() else b""
    except OSError as error:
        raise UsageError(f"{path}: a {kind} cannot be written there ({reason_of(error)}). Name another file") from error
    if start.strip() and not MARKS[kind].search(start):
        raise UsageError(f"{path}: is no {kind}, and is not replaced. Name another file")
    return path


def read_plain(path: Path, most: int) -> bytes:
    """Return at most ``most`` bytes of ``path``; `OSError` if it is no plain file. Opening a pipe does not block."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a plain file")
        return file.read(most)


def own_place(machine_key: str, target: str, script: Path) -> Path:
    """Return where the profile of a run belongs: in the project of the ``script``, or in the user's folder for that
    project if it is read-only.
    """
    folder = _shortened(project.root(Path(os.path.realpath(script))) / FOLDER, project.working_folder())
    path = default_path(machine_key, target, folder)
    try:
        _check_folder(path.parent)
    except OSError:
        path = default_path(machine_key, target, user_folder(script) or folder)
    return checked_place(path)


def journal_of(profile: Path) -> Path:
    """Return the study's journal of the profile in the file ``profile``: in the user's cache folder, a file for each
    path; beside the profile if there is no such folder."""
    cache = System().cache_folder()
    if cache is None:
        return profile.with_suffix(".journal")
    return cache / "journals" / f"{with_digest(safe_name(profile.stem), os.path.abspath(profile))}.journal"


def check_replaceable(path: Path) -> None:
    """Raise `OSError` if something other than a plain file is at ``path``. A link is not followed."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            what = "a symbolic link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
            raise OSError(errno.EINVAL, f"it is {what}, and only plain files are replaced")


def reason_of(error: OSError) -> str:
    """Return what the system says, without the path."""
    return error.strerror or str(error)


def _check_folder(folder: Path) -> None:
    """Raise `OSError` if no file can be made in ``folder``, or in the nearest one above it that is there."""
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    with tempfile.TemporaryFile(dir=there):
        pass


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step: readers see the old file or the new one, never a part.

    Missing folders are made. If writing fails (`ProfileError`) or is interrupted, the old file stays and nothing is
    left behind. A link, device or pipe is never replaced.
    """
    missing = [each for each in (path.parent, *path.absolute().parent.parents) if not os.path.lexists(each)]
    try:
        check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as folder:
            whole = Path(folder, "whole")
            with whole.open("w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            whole.chmod(0o644)
            whole.replace(path)
    except BaseException as error:
        for each in missing:  # the deepest first; one that another process has used meanwhile is not empty
            with contextlib.suppress(OSError):
                each.rmdir()
        if isinstance(error, OSError):
            raise ProfileError(f"{path}: cannot be written ({reason_of(error)})") from error
        raise
