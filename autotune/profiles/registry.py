"""Registries of profiles, in folders and at URLs, and which profile in them fits this machine best.

A registry holds ``<machine key>/<target>.yaml``, so the usual lookup reads one file. Only if nothing there fits is the
registry listed, and the profiles of the few machines whose keys are most like this one's are read. A lookup never
raises: training must start with or without a profile.

URLs go through fsspec, bounded in size and time, and without credentials in any message. fsspec and the packages of its
file systems (s3fs, gcsfs, aiohttp ...) are imported when a URL is used, not before: folders are read without them.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import ProfileError, did_you_mean
from autotune.probes.system import System
from autotune.profiles import file, match, places
from autotune.profiles.match import Here, Match
from autotune.profiles.places import Place
from autotune.profiles.records import quote

NEIGHBOURS = 6
"""Other machines whose profiles are read, in each registry."""
NAMING = 'autotune.load(target="NAME") or autotune.load("profiles/...yaml")'
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}\.yaml")
"""Names that may be shown: others' file names can hold anything. Hidden files are no profiles."""
SECONDS = 10.0
"""A request that takes longer is given up: training must start."""
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "http": {"max_redirects": 3, "client_kwargs": {"trust_env": True}},
    "s3": {"config_kwargs": {"connect_timeout": 4, "read_timeout": 4, "retries": {"max_attempts": 1}}},
}
READ_ONLY = ("http", "github", "git", "memory")
"""Protocols by which files cannot be written so that others find them."""


class Registry:
    """The profiles in a folder or at a URL. What cannot be done there is a `ProfileError`.

    Attributes:
        url: the URL; empty for a folder.
        shown: the place, for people.
        notes: what went wrong in lookups.
    """

    def __init__(self, where: Place) -> None:
        self.url = where if isinstance(where, str) else ""
        self.shown = shown(self.url) or str(where)
        self.notes: list[str] = []
        self._root = Path(where)
        self._silent = False

    def source(self, name: str) -> str:
        """Return where the file ``name`` is, for people."""
        return f"{self.shown}/{name}"

    def path(self, name: str) -> Path:
        """Return the file ``name`` of a folder."""
        return self._root / name

    def read(self, name: str) -> bytes | None:
        """Return the file ``name``, cut one byte after the most that a profile may have; None if there is none."""
        if self.url:
            return read_url(_joined(self.url, name))
        try:
            return places.read_plain(self._root / name, file.MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ProfileError(f"{self.source(name)}: cannot be read ({places.reason_of(error)})") from error

    def check_writable(self) -> None:
        """Raise `ProfileError` if others would not find what is written here."""
        if self.url and protocol(self.url) in READ_ONLY:
            raise ProfileError(f"{self.shown}: files can only be read there. Name the folder or bucket behind it: --to")

    def write(self, name: str, text: str) -> None:
        """Write the file ``name``. A file in a folder is replaced in one step."""
        self.check_writable()
        if not self.url:
            file.write_text(self._root / name, text)
            return

        def work(files: Any, path: str) -> None:
            if protocol(self.url) in ("sftp", "ssh", "smb"):
                files.makedirs(path.rpartition("/")[0], exist_ok=True)
            files.pipe_file(path, text.encode())

        _in_time(work, _joined(self.url, name))

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted. A folder that is missing has none."""
        found: list[str] = []
        with contextlib.suppress(OSError):
            own = self._root.glob("*/*.yaml")
            found = list_url(self.url) if self.url else [str(path.relative_to(self._root)) for path in own]
        return sorted(filter(_PLAIN_NAME.fullmatch, found))

    def like(self, key: str, wanted: Sequence[str]) -> list[str]:
        """Return files called as one of ``wanted`` of the few machines whose keys are most like ``key``. What cannot be
        listed has none. Never raises."""
        if self._silent or protocol(self.url) == "http":
            return []
        try:
            found = self.names()
        except ProfileError as error:
            self.notes.append(str(error))
            return []
        others = {name.partition("/")[0] for name in found if name.partition("/")[2] in wanted} - {key}
        near = difflib.get_close_matches(key, sorted(others), n=NEIGHBOURS, cutoff=0.0)
        return [name for other, each in itertools.product(near, wanted) if (name := f"{other}/{each}") in found]

    def look(self, name: str, here: Here) -> Match | None:
        """Compare the profile in the file ``name`` with what is ``here``; None if there is none or it cannot be used.
        `notes` says why. Never raises. A URL that cannot be read is tried once."""
        content = None
        try:
            content = None if self._silent else self.read(name)
            if content is None:
                return None
            profile = file.parse(content, self.source(name))
        except ProfileError as error:
            self._silent = content is None and bool(self.url)
            self.notes.append(f"skipped {str(error).splitlines()[0]}")
            return None
        return match.compare(profile, here, self.source(name), content, None if self.url else self.path(name))


# Which profile fits best ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lookup:
    """The result of a search.

    Attributes:
        best: the profile that fits best; None if none fits.
        reason: why no profile is applied; empty if one is.
        notes: what went wrong, and what is wrong with the places.
    """

    best: Match | None
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def match(self) -> Match | None:
        """Return the best profile if it is applied without being named. One that is only similar is checked first."""
        return None if self.reason else self.best


def of_file(path: Path | str, here: Here) -> Match:
    """Return the profile in the file ``path``, which the user names, and how well it fits this machine.

    Raises:
        ProfileError: there is none.
    """
    return match.compare(file.read(path), here, str(path), path=Path(path))


def local(found: Match) -> Path:
    """Return the file of a profile. One at a URL is copied to the user's cache, or to a new temporary folder."""
    if found.path is not None:
        return found.path
    cache = System().cache_folder()
    folder = cache / "registries" if cache is not None else places.temporary_folder()
    profile = found.profile
    return file.save(places.default_path(profile.key, profile.target.name, folder), profile)[0]


def search(here: Here, roots: Sequence[Place] | None = None, script: Path | None = None) -> Lookup:
    """Look for a profile: the best verdict first, then the nearest place. The profile of an interrupted run is taken
    only if no other fits as well.

    Args:
        here: this machine, and the target. Without one nothing matches: profiles of other tasks do not apply.
        roots: where to look instead of `autotune.profiles.places.places`.
        script: the training script; profiles may lie beside it.
    """
    looked = places.places(script=script) if roots is None else roots
    if here.target is None:
        return Lookup(None, _why_none(here, looked, None))
    registries = [Registry(each) for each in looked]
    found = [one for registry in registries for one in _candidates(registry, here, here.target)]
    if not any(_settles(one, here) for one in found):
        found += [one for registry in registries for one in _candidates(registry, here, here.target, others=True)]
    best = min(found, key=_rank, default=None)
    notes = tuple(dict.fromkeys(note for registry in registries for note in registry.notes))
    if best is not None and best.verdict in match.APPLIED:
        return Lookup(best, notes=notes)
    named = places.named_places() if roots is None else ()
    gone = (f"{places.VARIABLE} names {folder}, which is no folder" for folder in places.missing_folders(named))
    return Lookup(best, _why_none(here, looked, best), (*notes, *gone))


def _why_none(here: Here, looked: Sequence[Place], best: Match | None) -> str:
    """Return why no profile is applied here; ``best`` is only similar. Other tasks that have one are named."""
    if best is not None:
        return f"{best.source} is not applied by itself (--profile does it): {best.sentence}"
    own = f"{places.safe_name(here.machine.key)}/"
    files = (name for each in looked if isinstance(each, Path) for name in Registry(each).names())
    others = sorted({places.target_of(name) for name in files if name.startswith(own)} - {here.target})
    known = f"; this machine has profiles for: {', '.join(others)}" if others else ""
    if here.target is None:
        return f"no script names the target: write {NAMING}{known}"
    hint = did_you_mean(here.target, others)
    return f"no profile fits {here.machine.key} and {here.target}{hint}{known}; make one with autotune tune"


def _candidates(registry: Registry, here: Here, target: str, *, others: bool = False) -> Iterator[Match]:
    """Find profiles of ``target`` of this machine, or of the ``others`` that are most like it."""
    wanted, key = places.file_names(target), places.safe_name(here.machine.key)
    if registry.url:  # profiles of interrupted runs are never pushed
        wanted = wanted[:1]
    for name in registry.like(key, wanted) if others else [f"{key}/{each}" for each in wanted]:
        found = registry.look(name, here)
        if found is not None and found.profile.target.name != target:
            made = f"was made for the target {quote(found.profile.target.name)}, not for {quote(target)}"
            registry.notes.append(f"skipped {found.source}: {made}")
        elif found is not None and found.verdict != match.NONE:
            yield found


def _settles(found: Match, here: Here) -> bool:
    """Return True if no other machine's profile can be better."""
    own = found.profile.key == here.machine.key and not found.profile.evidence.partial
    return own and found.verdict in match.APPLIED


def _rank(found: Match) -> tuple[bool, bool, int, int]:
    """Order the best first. Places come in their order, which `min` keeps."""
    machine = sum(each.field not in match.SOFTWARE for each in found.differing)
    similar = found.verdict not in match.APPLIED
    return similar, found.profile.evidence.partial, machine, match.VERDICTS.index(found.verdict)


# Files at URLs --------------------------------------------------------------------------------------------------------


def protocol(url: str) -> str:
    """Return the protocol of ``url``; ``http`` for ``https`` too."""
    return url.partition("://")[0].replace("https", "http")


def shown(url: str) -> str:
    """Return ``url`` without user, password, query and fragment, for messages."""
    text = re.sub(r"[?#].*", "", url)
    text = re.sub(r"://[^/]*@", "://", text) if not text.startswith(("github:", "git:")) else text
    text = re.sub(r"[^\x21-\x7e]", "?", text)
    return text if len(text) <= 200 else text[:200] + "..."


def read_url(url: str) -> bytes | None:
    """Return the content of ``url``, cut one byte after the most of a profile; None if there is no such file."""
    most = file.MAX_BYTES + 1

    def work(files: Any, path: str) -> bytes | None:
        try:
            if protocol(url) != "http":
                return bytes(files.cat_file(path, start=0, end=most))
            with files.open(path, "rb", block_size=0, size=1) as stream:  # a server may send without end
                found = b""
                while part := stream.read(most - len(found)):
                    found += part
                return found
        except FileNotFoundError:
            return None

    found: bytes | None = _in_time(work, url)
    return found


def list_url(url: str) -> list[str]:
    """Return the names of all YAML files one folder below ``url``, relative to it. A web server cannot be listed."""
    if protocol(url) == "http":
        raise ProfileError(f"{shown(url)}: a web server is not listed; autotune profiles match TARGET looks there")
    found = _in_time(lambda files, path: files.glob(f"{path}/*/*.yaml"), url)
    return ["/".join(str(each).split("/")[-2:]) for each in found]


def _joined(url: str, name: str) -> str:
    """Return the address of the file ``name`` below ``url``. The query of a web server's address stays behind it."""
    base = re.split("[?#]", url, maxsplit=1)[0] if protocol(url) == "http" else url
    return f"{base.rstrip('/')}/{name}{url[len(base) :]}"


def _in_time(work: Callable[[Any, str], Any], url: str) -> Any:
    """Return the result of ``work``. A thread that takes too long is left: nothing can end a stuck request."""
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work(*_open(url)))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="autotune-registry", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        raise ProfileError(f"{shown(url)}: no answer within {SECONDS:g} s")
    if failure:
        raise _without_secrets(failure[0], url)
    return result[0]


def _open(url: str) -> tuple[Any, str]:
    """Return fsspec's file system and path of ``url``."""
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import available_protocols, registry

        known = {*available_protocols(), *registry}
        if protocol(url) not in known:
            hint = did_you_mean(protocol(url), known)
            raise ProfileError(f"{shown(url)}: {protocol(url)}:// is no scheme that fsspec knows{hint}")
        files, path = url_to_fs(url, **OPTIONS.get(protocol(url), {}), use_listings_cache=False)
    except ImportError as error:
        name = error.name or error
        extra = "pip install 'torch-autotune[remote]' brings those of http and s3"
        raise ProfileError(f"{shown(url)}: a package is missing ({name}); {extra}") from None
    return files, path


def _without_secrets(error: BaseException, url: str) -> ProfileError:
    """Return the error by its class and HTTP status alone: texts of libraries quote addresses and keys."""
    if isinstance(error, ProfileError):
        return error
    status = getattr(error, "status", None)
    why = f"HTTP status {status}" if isinstance(status, int) and status >= 400 else type(error).__name__
    return ProfileError(f"{shown(url)}: cannot be read or written ({why})")
