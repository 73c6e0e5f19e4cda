"""Registries of profiles, in folders and at URLs, and which profile in them fits this machine best.

A registry holds ``<machine key>/<target>.yaml``, so the usual lookup reads one file. Only if nothing there fits is the
registry listed, and the profiles of the few machines whose keys are most like this one's are read. A lookup never
raises: training must start with or without a profile.

URLs go through fsspec, bounded in size and time, and without credentials in any message. fsspec and the packages of its
file systems (s3fs, gcsfs, aiohttp ...) are imported when a URL is used, not before: folders are read without them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from autotune import project
from autotune.decoding import quote
from autotune.errors import ProfileError, did_you_mean
from autotune.probes.system import System
from autotune.profiles import file, match, places
from autotune.profiles.format import Profile
from autotune.profiles.match import Here, Match
from autotune.profiles.places import Place
from autotune.project import safe_name, with_digest

NEIGHBOURS = 6
"""Other machines whose profiles are read, in each registry."""
MOST_NAMED = 6
"""Other tasks that one line names."""
NAMING = 'autotune.load(target="NAME") or autotune.load("profiles/...yaml")'
_PLAIN_NAME = re.compile(r"[\w-][\w.-]{0,199}/[\w-][\w.-]{0,199}\.yaml")
"""Names that may be shown: others' file names can hold anything. Hidden files are no profiles."""
SECONDS = 10.0
"""A request that takes longer is given up: training must start."""
MOST_REDIRECTS = 3
READ_ONLY = ("http", "github", "git")
"""Protocols by which files cannot be written so that others find them."""


class Registry:
    """The profiles in a folder or at a ``url``. What cannot be done there is a `ProfileError`; `notes` has what went
    wrong in lookups. Profiles of other projects than ``project`` are skipped, if one is given."""

    def __init__(self, where: Place, project: str = "") -> None:
        self.project = project
        self.url = where if isinstance(where, str) else ""
        self.shown = shown(self.url) or str(where)
        self.notes: list[str] = []
        self._root = Path(where)
        self._silent = False

    def source(self, name: str) -> str:
        """Return where the file ``name`` is, for people."""
        return f"{self.shown}/{name}"

    def read(self, name: str) -> bytes | None:
        """Return the file ``name``, cut one byte after the most that a profile may have; None if there is none.

        A link that leads out of the folder is not followed: who may write there must not see what its readers may read.
        """
        if self.url:
            return read_url(_joined(self.url, name))
        try:
            inside = os.path.realpath(self._root) + os.sep
            if not os.path.realpath(self._root / name).startswith(inside):
                raise ProfileError(f"{self.source(name)}: is a link that leads out of {self.shown}")
            return places.read_plain(self._root / name, file.MAX_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ProfileError(f"{self.source(name)}: cannot be read ({places.reason_of(error)})") from error

    def check_writable(self) -> None:
        """Raise `ProfileError` if no file that is written there is found by others."""
        if protocol(self.url) in READ_ONLY:
            raise ProfileError(f"{self.shown}: files can only be read there. Name the folder or bucket behind it: --to")

    def write(self, name: str, text: str) -> None:
        """Write the file ``name``. A file in a folder is replaced in one step."""
        self.check_writable()
        if not self.url:
            places.write_whole(self._root / name, text)
        else:
            _remote(_joined(self.url, name), lambda files, path: _write(files, path, text))

    def names(self) -> list[str]:
        """Return the names of all profiles, sorted. A folder that is missing has none."""
        if protocol(self.url) == "http":
            raise ProfileError(f"{self.shown}: a web server is not listed; autotune profiles match TARGET looks there")
        found: list[str] = []
        if self.url:
            paths = _remote(self.url, lambda files, path: _call(files, "glob", f"{path}/*/*.yaml"))
            found = ["/".join(each.split("/")[-2:]) for each in paths or ()]
        else:
            with contextlib.suppress(OSError):
                found = [str(path.relative_to(self._root)) for path in self._root.glob("*/*.yaml")]
        return sorted(filter(_PLAIN_NAME.fullmatch, found))

    def like(self, key: str, wanted: Sequence[str]) -> list[str]:
        """Return files called as one of ``wanted`` of the few other machines whose keys share most words with ``key``.
        What cannot be listed has none. Never raises."""
        if self._silent or not wanted or protocol(self.url) == "http":
            return []
        try:
            found = self.names()
        except ProfileError as error:
            self.notes.append(str(error))
            return []
        others = {name.partition("/")[0] for name in found if name.partition("/")[2] in wanted} - {key}
        words = set(key.split("-"))
        near = sorted(others, key=lambda other: (-len(words.intersection(other.split("-"))), other))[:NEIGHBOURS]
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
        return match.compare(profile, here, self.source(name), content, None if self.url else self._root / name)


Found = TypeVar("Found")


# Which profile fits best ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lookup:
    """The profile that fits best, the reason why it is not applied (empty if it is), and what went wrong."""

    best: Match | None
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def match(self) -> Match | None:
        """Return the best profile if it is applied without being named. One that is only similar is checked first."""
        return None if self.reason else self.best


def read(named: Path | str) -> Profile:
    """Return the profile in the file, or at the URL, that the user names."""
    url = str(named)
    return file.parse(read_named(url), shown(url)) if places.is_url(url) else file.read(named)


def is_kept(target: str, script: Path | None) -> bool:
    """Return True if any place has a profile of ``target``, of whichever machine, or cannot be listed."""
    wanted = places.file_names(target)
    try:
        return any(
            name.partition("/")[2] in wanted for each in places.places(script) for name in Registry(each).names()
        )
    except ProfileError:
        return True


def of_file(named: Path | str, here: Here) -> Match:
    """Return the profile in the file, or at the URL, that the user names, and how well it fits this machine.

    What was read from a URL is kept in the user's cache, and taken from there if the URL cannot be read.
    """
    url = str(named)
    if not places.is_url(url):
        return match.compare(file.read(named), here, url, path=Path(named))
    cache = System().cache_folder()
    own = with_digest("url", url)  # which may hold a password
    kept = cache / "registries" / f"{own}.yaml" if cache is not None else None
    try:
        content = read_named(url)
    except ProfileError:
        if kept is None or not kept.is_file():
            raise
        return match.compare(file.read(kept), here, f"{shown(url)}, as it was read before", path=kept)
    profile = file.parse(content, shown(url))
    if kept is not None:
        with contextlib.suppress(ProfileError):  # a full disk
            places.write_whole(kept, content.decode())
    return match.compare(profile, here, shown(url), content)


def local(found: Match) -> Path:
    """Return the file of a profile. One at a URL is copied to the user's cache, or to a new temporary folder."""
    if found.path is not None:
        return found.path
    cache = System().cache_folder()
    folder = cache / "registries" if cache is not None else places.temporary_folder()
    profile = found.profile
    return file.save(places.default_path(profile.key, profile.target.name, folder), profile)[0]


def search(here: Here, roots: Sequence[Place] | None = None, script: Path | None = None) -> Lookup:
    """Look for a profile of the target that is ``here``: the best verdict first, then the nearest place. The profile of
    an interrupted run is taken only if no other fits as well.

    Places are ``roots``, else those of the training ``script``'s project (`autotune.profiles.places.places`).
    """
    looked = places.places(script) if roots is None else roots
    named = (*places.stated_places(script), *places.named_places()) if roots is None else ()
    # a user who names another task means it
    own = project.called(script) if named and script and here.names == project.names_of(script) else ""
    registries = [Registry(each, own if each in named else "") for each in looked]
    found = at_once(registries, lambda each: list(_candidates(each, here)))
    if not any(_settles(one, here) for one in found):
        found += at_once(registries, lambda each: list(_candidates(each, here, others=True)))
    best = min(found, key=lambda one: _rank(one, here), default=None)
    notes = tuple(dict.fromkeys(note for registry in registries for note in registry.notes))
    if best is not None and best.verdict in match.APPLIED:
        return Lookup(best, notes=notes)
    gone = (f"{folder}: no such folder" for folder in places.missing_folders(named))
    return Lookup(best, _why_none(here, looked, best), (*notes, *gone))


def at_once(registries: Sequence[Registry], work: Callable[[Registry], list[Found]]) -> list[Found]:
    """Return what ``work`` finds in all ``registries``. Servers are waited for together: several may be down."""
    if sum(bool(each.url) for each in registries) < 2:  # a pool takes a while to import
        return [one for each in registries for one in work(each)]
    from concurrent.futures import ThreadPoolExecutor

    with contextlib.suppress(ImportError):  # by one thread: the others would find half of it
        import fsspec.core  # noqa: F401
    with ThreadPoolExecutor(len(registries)) as pool:
        return [one for found in pool.map(work, registries) for one in found]


def _why_none(here: Here, looked: Sequence[Place], best: Match | None) -> str:
    """Return why no profile is applied here; ``best`` is only similar. Other tasks that have one are named."""
    if best is not None:
        return f"{best.source} is not applied by itself (--profile does it): {best.sentence}"
    own = f"{safe_name(here.machine.key)}/"
    files = (name for each in looked if isinstance(each, Path) for name in Registry(each).names())
    others = sorted({places.target_of(name) for name in files if name.startswith(own)} - set(here.names))
    more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
    known = f"; this machine has profiles for: {', '.join(others[:MOST_NAMED])}{more}" if others else ""
    if not here.names:
        return f"no script names the target: write {NAMING}{known}"
    hint = did_you_mean(here.names[0], others)
    return f"no profile fits {here.machine.key} and {here.names[0]}{hint}{known}; make one with autotune tune"


def _candidates(registry: Registry, here: Here, *, others: bool = False) -> Iterator[Match]:
    """Find profiles of the target of this machine, or of the ``others`` that are most like it."""
    key = safe_name(here.machine.key)
    wanted = dict.fromkeys(each for name in here.names for each in places.file_names(name))
    if registry.url:  # profiles of interrupted runs are never pushed
        wanted = dict.fromkeys(each for each in wanted if not each.endswith(places.PARTIAL))
    for name in registry.like(key, [*wanted]) if others else [f"{key}/{each}" for each in wanted]:
        found = registry.look(name, here)
        if found is not None and found.profile.target.name not in here.names:
            made = f"was made for the target {quote(found.profile.target.name)}, not for {quote(here.names[0])}"
            registry.notes.append(f"skipped {found.source}: {made}")
        elif found is not None and registry.project and found.profile.target.project not in ("", registry.project):
            theirs = quote(found.profile.target.project)
            registry.notes.append(f"skipped {found.source}: is of another project, {theirs}; --profile applies it")
        elif found is not None and found.verdict != match.NONE:
            yield found


def _settles(found: Match, here: Here) -> bool:
    """Return True if no other machine's profile can be better."""
    own = found.profile.key == here.machine.key and not found.profile.evidence.partial
    return own and found.verdict in match.APPLIED


def _rank(found: Match, here: Here) -> tuple[bool, bool, int, int, int]:
    """Order the best first. Places come in their order, which `min` keeps."""
    machine = sum(each.field not in match.SOFTWARE for each in found.differing)
    similar, name = found.verdict not in match.APPLIED, here.names.index(found.profile.target.name)
    return similar, found.profile.evidence.partial, machine, match.VERDICTS.index(found.verdict), name


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
    """Return the content of ``url``, cut one byte after the most of a profile; None if there is no such file.
    Raise `ProfileError` if it cannot be read, or not in time."""
    most = file.MAX_BYTES + 1
    if protocol(url) == "http":
        from fsspec.asyn import sync

        found = _remote(url, lambda files, _path: sync(files.loop, _fetch, files, url, most, timeout=SECONDS))
    else:
        found = _remote(url, lambda files, path: _call(files, "cat_file", path, start=0, end=most))
    return bytes(found) if found is not None else None


def read_named(url: str) -> bytes:
    """Return the content of ``url`` as `read_url` does; raises `ProfileError` also if there is no such file."""
    content = read_url(url)
    if content is None:
        raise ProfileError(f"{shown(url)}: no such file")
    return content


def _write(files: Any, path: str, text: str) -> None:
    if not files.async_impl:  # object stores have no folders
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
    _call(files, "pipe_file", path, text.encode())


async def _fetch(remote: Any, url: str, most: int) -> bytes:
    """Return ``most`` bytes of a web server's file: it may send without end, and redirect to where clouds keep secrets.
    Raise `FileNotFoundError` if there is none."""
    import asyncio
    import ipaddress
    from urllib.parse import urljoin, urlsplit

    session, found = await remote.set_session(), b""
    for _ in range(1 + MOST_REDIRECTS):
        async with session.get(url, allow_redirects=False) as answer:
            if answer.status in (404, 410):
                raise FileNotFoundError(url)
            answer.raise_for_status()
            while answer.status < 300 and len(found) < most and (part := await answer.content.read(most - len(found))):
                found += part
            if answer.status < 300:
                return found
            url = urljoin(str(answer.url), answer.headers.get("Location", ""))
        host = urlsplit(url).hostname or ""
        for each in await asyncio.get_running_loop().getaddrinfo(host, None):
            own = ipaddress.ip_address(str(each[4][0]).partition("%")[0])
            if (getattr(own, "ipv4_mapped", None) or own).is_link_local:
                raise ProfileError(f"{shown(url)}: is an address of the machine's own network, which is not followed")
    raise ProfileError(f"{shown(url)}: redirects more than {MOST_REDIRECTS} times")


def _joined(url: str, name: str) -> str:
    """Return the address of the file ``name`` below ``url``. The query of a web server's address stays behind it."""
    base = re.split("[?#]", url, maxsplit=1)[0] if protocol(url) == "http" else url
    return f"{base.rstrip('/')}/{name}{url[len(base) :]}"


def _remote(url: str, work: Callable[[Any, str], Any]) -> Any:
    """Return what ``work`` does with fsspec's file system and path of ``url``; None if it finds no file."""
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import available_protocols, registry

        behind = url.partition("://")[2]
        if not behind or (behind[0] == "/" and protocol(url) in ("http", "s3")):
            raise ProfileError(f"{url.partition(':')[0]}://: names no bucket, server or folder")
        known = {*available_protocols(), *registry}
        if protocol(url) not in known:
            hint = did_you_mean(protocol(url), known)
            raise ProfileError(f"{shown(url)}: {protocol(url)}:// is no scheme that fsspec knows{hint}")
        proxies = {"client_kwargs": {"trust_env": True}} if protocol(url) == "http" else {}
        return work(*url_to_fs(url, **proxies, use_listings_cache=False))
    except FileNotFoundError:
        return None
    except ProfileError:
        raise
    except ImportError as error:
        extra = "pip install 'torch-autotune[remote]' brings those of http and s3"
        raise ProfileError(f"{shown(url)}: a package is missing ({error.name or error}); {extra}") from None
    except Exception as error:
        if "Timeout" in type(error).__name__:
            raise ProfileError(f"{shown(url)}: no answer within {SECONDS:g} s") from None
        status = getattr(error, "status", None)
        why = f"HTTP status {status}" if status else getattr(error, "strerror", None) or type(error).__name__
        raise ProfileError(f"{shown(url)}: cannot be read or written ({why})") from None


def _call(files: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """Return what a method of a file system does. It is given up after `SECONDS` if the system allows that."""
    if not files.async_impl:
        return getattr(files, method)(*arguments, **options)
    from fsspec.asyn import sync

    return sync(files.loop, getattr(files, f"_{method}"), *arguments, timeout=SECONDS, **options)
