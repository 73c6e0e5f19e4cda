"""Registries of profiles, in folders and at URLs, and which profile in them fits this machine best.

A registry holds ``<machine key>/<target>.yaml``, so the usual lookup reads one file. Only if nothing there fits is the
registry listed, and the profiles of the few machines whose keys are most like this one's are read. A lookup never
raises: training must start with or without a profile.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import ProfileError
from autotune.profiles import file, match, remote
from autotune.profiles.format import Profile
from autotune.profiles.match import Comparison, Here
from autotune.profiles.places import Place, cache_folder, file_names, places, safe_name, target_of
from autotune.profiles.records import quote

NEIGHBOURS = 6
"""Other machines whose profiles are read, in each registry."""
NAMED = 20
"""Targets that a message names."""
NAMING = 'autotune.load(target="NAME") or autotune.load("profiles/...yaml")'
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\.yaml")
"""Names that may be shown: others' file names can hold anything. Hidden files are no profiles."""


class Registry:
    """The profiles in a folder or at a URL. What cannot be done there is a `ProfileError`.

    What `look` reads at a URL is copied for this user alone. The copy is used if the registry does not answer.

    Attributes:
        url: the URL; empty for a folder.
        shown: the place, for people.
        notes: what went wrong in lookups.
    """

    def __init__(self, where: Place) -> None:
        self.url, self.shown, self.notes = "", str(where), list[str]()
        self._root, self._copies, self._down = Path(where), None, False
        if isinstance(where, str):
            self.url, self.shown, root = where, remote.shown(where), cache_folder()
            name = hashlib.sha256(where.encode(errors="surrogateescape")).hexdigest()[:16]
            self._copies = Registry(root / name if root else _new_folder())
        elif str(where).startswith("~"):
            self._root = where.expanduser()

    def source(self, name: str) -> str:
        """Return where the file ``name`` is, for people."""
        return f"{self.shown}/{name}"

    def path(self, name: str) -> Path:
        """Return the file ``name`` on this machine: of a URL, its copy."""
        return self._copies.path(name) if self._copies else self._root / name

    def read(self, name: str) -> bytes | None:
        """Return the file ``name``, cut one byte after the most that a profile may have; None if there is none."""
        if self.url:
            return remote.read(remote.joined(self.url, name), file.MAX_BYTES)
        try:
            return file.read_plain(self._root / name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ProfileError(f"{self.source(name)}: cannot be read ({file.reason_of(error)})") from error

    def write(self, name: str, text: str) -> None:
        """Write the file ``name``. A file in a folder is replaced in one step."""
        if self.url:
            remote.write(remote.joined(self.url, name), text.encode())
        else:
            file.write_text(self._root / name, text)

    def remove(self, name: str) -> None:
        """Remove the file ``name``, and the folder of its machine if that is empty then."""
        if self.url:
            remote.remove(remote.joined(self.url, name))
            return
        try:
            self.path(name).unlink()
        except OSError as error:
            raise ProfileError(f"{self.source(name)}: cannot be removed ({file.reason_of(error)})") from error
        with contextlib.suppress(OSError):
            self.path(name).parent.rmdir()

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted. A folder that is missing has none."""
        found: list[str] = []
        with contextlib.suppress(OSError):
            own = self._root.glob("*/*.yaml")
            found = remote.names(self.url) if self.url else [str(path.relative_to(self._root)) for path in own]
        return sorted(filter(_PLAIN_NAME.fullmatch, found))

    def like(self, key: str, wanted: Sequence[str]) -> list[str]:
        """Return the names of files called as one of ``wanted`` of other machines than ``key``, of those few whose keys
        are most like it. What cannot be listed has none. Never raises."""
        found: list[str] = []
        try:
            found = (self._copies if self._copies and self._down else self).names()
        except remote.Unreachable as error:
            self.notes.append(str(error))
        except ProfileError:  # a web server
            pass
        others = {name.partition("/")[0] for name in found if name.partition("/")[2] in wanted} - {key}
        near = difflib.get_close_matches(key, sorted(others), n=NEIGHBOURS, cutoff=0.0)
        return [name for other, each in itertools.product(near, wanted) if (name := f"{other}/{each}") in found]

    def look(self, name: str) -> Profile | None:
        """Return the profile in the file ``name``; None if there is none or it cannot be used. `notes` says why. Never
        raises."""
        try:
            content = self._copied(name, self._copies) if self._copies else self.read(name)
            return file.parse(content, self.source(name)) if content is not None else None
        except ProfileError as error:
            self.notes.append(f"skipped {str(error).splitlines()[0]}")
            return None

    def _copied(self, name: str, copies: Registry) -> bytes | None:
        """Return the content of the file ``name``, and copy it. A registry that does not answer is asked once."""
        try:
            content = copies.read(name) if self._down else self.read(name)
        except remote.Unreachable as error:
            self._down = True
            self.notes.append(f"{error}; only copies of what was read before are used")
            return copies.read(name)
        if content is None:
            with contextlib.suppress(OSError):
                copies.path(name).unlink()
        elif not self._down:
            file.parse(content, self.source(name))  # what is no profile replaces no copy
            try:
                file.write_text(copies.path(name), content.decode(), private=True)
            except ProfileError:
                self._copies = Registry(_new_folder())
                file.write_text(self._copies.path(name), content.decode(), private=True)
        return content


@dataclass(frozen=True)
class Match:
    """A profile for this target, and how well it fits."""

    profile: Profile
    path: Path
    """The file, or the copy of one at a URL."""
    source: str
    """Where it comes from, for people."""
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """One of `autotune.profiles.match.VERDICTS`."""
        return self.comparison.verdict


@dataclass(frozen=True)
class Lookup:
    """What was found."""

    match: Match | None
    """The best profile, to be applied; None if none is exact or compatible."""
    notes: tuple[str, ...] = ()
    """Files that were skipped, registries that were not reached, or how to name the target."""
    similar: Match | None = None
    """If there is no ``match``: the best that is only similar, to be checked before it is applied."""


def search(here: Here, roots: Sequence[Place] | None = None) -> Lookup:
    """Look for a profile: the best verdict first, then the nearest place. The profile of an interrupted run, or of
    one machine if several train together, is taken only if no other fits as well.

    Args:
        here: this machine, and the target. Without one nothing matches: profiles of other tasks do not apply.
        roots: where to look instead of `autotune.profiles.places.places`.
    """
    if here.target is None:
        return Lookup(None, (_how_to_name_the_target(targets(here, roots)),))
    registries = [Registry(place) for place in (places() if roots is None else roots)]
    found = [one for registry in registries for one in _candidates(registry, here, here.target)]
    if not any(_settles(one, here) for one in found):
        found += [one for registry in registries for one in _candidates(registry, here, here.target, others=True)]
    best = min(found, key=_rank, default=None)
    notes = tuple(dict.fromkeys(note for registry in registries for note in registry.notes))
    if best is None or best.verdict in match.APPLIED:
        return Lookup(best, notes)
    return Lookup(None, notes, similar=best)


def targets(here: Here, roots: Sequence[Place] | None = None) -> list[str]:
    """Return the names of tasks that have a profile for this type of machine in a folder."""
    folders = [Registry(place) for place in (places() if roots is None else roots) if isinstance(place, Path)]
    names = (name for folder in folders for name in folder.names())
    return sorted({target_of(name) for name in names if name.startswith(f"{safe_name(here.machine.key)}/")})


def _candidates(registry: Registry, here: Here, target: str, *, others: bool = False) -> Iterator[Match]:
    """Find profiles of ``target`` of this machine, or of the ``others`` that are most like it."""
    wanted, key = file_names(target), safe_name(here.machine.key)
    if registry.url:  # profiles of interrupted runs are never pushed
        wanted = tuple(name for name in wanted if not name.endswith(".partial.yaml"))
    for name in registry.like(key, wanted) if others else [f"{key}/{each}" for each in wanted]:
        profile = registry.look(name)
        if profile is None:
            continue
        if profile.target.name != target:
            made = f"was made for the target {quote(profile.target.name)}, not for {quote(target)}"
            registry.notes.append(f"skipped {registry.source(name)}: {made}")
            continue
        comparison = match.compare(profile, here)
        if comparison.verdict != match.NONE:
            yield Match(profile, registry.path(name), registry.source(name), comparison)


def _settles(found: Match, here: Here) -> bool:
    """Return True if no other machine's profile can be better."""
    own = found.profile.key == here.machine.key and not found.profile.evidence.partial
    return own and found.verdict in match.APPLIED


def _rank(found: Match) -> tuple[int, bool, int, int]:
    """Order the best first. Places come in their order, which `min` keeps."""
    profile, comparison = found.profile, found.comparison
    applied = match.APPLIED.index(found.verdict) if found.verdict in match.APPLIED else len(match.APPLIED)
    machine = sum(row.field not in ("torch", "cuda", "driver") for row in comparison.differing)
    return (int(applied == len(match.APPLIED)), profile.evidence.partial, machine, applied)


def _how_to_name_the_target(known: Sequence[str]) -> str:
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    names = f"; this machine has profiles for: {', '.join(known[:NAMED])}{more}" if known else ""
    return f"no script names the target: write {NAMING}{names}"


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="torch-autotune-"))
