"""Where a run writes its profile: known to be writable before it begins, and somewhere else where that changes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.core.errors import ProfileError, UsageError
from autotune.core.profile import Profile
from autotune.store import layout, profiles
from autotune.store.places import user_folder

ADVICE = "Choose another place: --profile OUT.yaml"


def write(path: Path, profile: Profile) -> tuple[Path, str]:
    """Write ``profile`` to ``path``; else to the user's folder, else to the temporary one.

    Returns:
        Where it is, and why it is not at ``path`` (empty where it is).

    Raises:
        ProfileError: it cannot be written anywhere.
    """
    try:
        return profiles.write(path, profile), ""
    except ProfileError as error:
        first = error
    for other in _others(profile):
        try:
            return profiles.write(other, profile), str(first)
        except (ProfileError, OSError):
            continue
    raise ProfileError(f"{first}. {ADVICE}")


def own_place(machine_key: str, target: str, nnodes: int = 1) -> Path:
    """Where the profile of a run belongs: in the project, or in the user's folder where the project is read only.

    Raises:
        UsageError: neither can be written.
    """
    path, own = layout.default_path(machine_key, target, nnodes=nnodes), user_folder()
    try:
        return writable(path)
    except UsageError:
        if own is None:
            raise
    try:
        return writable(layout.default_path(machine_key, target, own, nnodes))
    except UsageError:
        return writable(path)


def _others(profile: Profile) -> Iterator[Path]:
    target = profile.target
    own = user_folder()
    if own is not None:
        yield layout.default_path(profile.key, target.name, own, target.nnodes)
    yield Path(tempfile.mkdtemp(prefix="torch-autotune-")) / layout.file_name(target.name, target.nnodes)


def writable(path: Path) -> Path:
    """``path``, in a folder that is there. Finds out now, not after the run, that the profile cannot be written.

    Raises:
        UsageError: it cannot.
    """
    if path.is_dir():
        raise UsageError(f"{path}: is a folder. Name the profile's file: --profile {path / 'OUT.yaml'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"{path.parent}: profiles cannot be written there ({error.strerror}). {ADVICE}") from error
    return path
