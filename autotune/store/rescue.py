"""The last step of a long run: its profile is written somewhere, even where its own place no longer takes it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.core.errors import ProfileError
from autotune.core.profile import Profile
from autotune.store import layout, profiles
from autotune.store.places import user_folder


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
    raise first


def _others(profile: Profile) -> Iterator[Path]:
    target = profile.target
    own = user_folder()
    if own is not None:
        yield layout.default_path(profile.key, target.name, own, target.nnodes)
    yield Path(tempfile.mkdtemp(prefix="torch-autotune-")) / layout.file_name(target.name, target.nnodes)
