"""The second way: private folders where programs look for theirs, and a stop for what would be written elsewhere.

For systems that forbid namespaces, as most containers do. If the kernel has Landlock (Linux 5.13) it stops everything;
else an audit hook stops what Python itself does.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from autotune import linux
from autotune.scripts import adapters
from autotune.trial.isolation.private import KERNEL, SHARED_MEMORY, Entered, Treatment, below, treatment
from autotune.trial.paths import PRIVATE_PREFIX

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LOCAL_NAMES = (None, "", "localhost", "ip6-localhost", os.uname().nodename)
NETWORK = "a trial has no network: --allow-network permits it"
WRITE = "a trial may not write here: write to a relative path or below $TMPDIR, or make it depend on $AUTOTUNE_TRIAL"
LINK, TARGET = False, True
CHANGES = {
    "os.remove": ((0, 1, LINK),),
    "os.rmdir": ((0, 1, LINK),),
    "os.mkdir": ((0, 2, LINK),),
    "os.rename": ((0, 2, LINK), (1, 3, LINK)),
    "os.link": ((1, 3, LINK),),
    "os.symlink": ((1, 2, LINK),),
    "os.truncate": ((0, None, TARGET),),
    "os.chmod": ((0, 2, TARGET),),
    "os.chown": ((0, 3, TARGET),),
    "os.utime": ((0, 3, TARGET),),
    "os.setxattr": ((0, None, TARGET),),
}
"""Audit event -> the argument with the path that is changed, the argument with the folder that it is relative to (None
if there is none), and True if a link is followed."""
NAME = "redirected"
FOLDERS = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "TORCH_HOME": ".cache/torch",
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/inductor",
    "TRITON_CACHE_DIR": ".triton/cache",
    "NUMBA_CACHE_DIR": ".cache/numba",
    "CUDA_CACHE_PATH": ".nv/ComputeCache",
    "MPLCONFIGDIR": ".config/matplotlib",
    "KERAS_HOME": ".keras",
    "NLTK_DATA": "nltk_data",
    **adapters.CACHES,
}
"""Variables that name folders, and where these are below HOME if a variable is not set."""
MIRROR_ENTRIES, MIRROR_LEVELS, CACHE_LEVELS = 200, 3, 1
"""Folders that deep are real ones, so that there can be new files in them; those inside are links."""
MIRROR_FILE_BYTES, MIRROR_BYTES = 2**20, 8 * 2**20
"""Copied at most, per file and in all: copying must not slow a trial's start."""
UNSEEN = "in trials, what another program or a library in C writes by an absolute path lands there ({})"
VERSION_ONLY, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38
WRITE_FILE, REMOVE_AND_MAKE = 1 << 1, sum(1 << bit for bit in range(4, 13))
SINCE = {2: 1 << 13, 3: 1 << 14}
"""Version of Landlock -> what it can forbid since: to move a file to another folder (before, it always does), and to
truncate one by its name."""


def forbid_writes(inside: Path) -> None:
    """Raise `PermissionError` from now on if this process or its forked children would change a file outside
    ``inside``; new shared memory is permitted. It cannot be taken back."""
    taken = frozenset(os.listdir(SHARED_MEMORY)) if os.path.isdir(SHARED_MEMORY) else frozenset()

    def check(place: str) -> None:
        own = os.path.dirname(place) == SHARED_MEMORY and os.path.basename(place) not in taken
        if not (own or below(place, (str(inside),)) or treatment(place) is Treatment.REAL):
            raise PermissionError(errno.EACCES, WRITE, place)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _mode, flags = arguments
            if flags & WRITES and isinstance(path, (str, bytes)):
                check(os.path.realpath(os.fsdecode(path)))
        for number, folder, follows in CHANGES.get(event, ()):
            if isinstance(path := arguments[number], (str, bytes)):
                check(_absolute(os.fsdecode(path), -1 if folder is None else arguments[folder], follows))

    sys.addaudithook(hook)
    _check_checkpoints(check)


def _absolute(path: str, folder: int, follows: bool) -> str:
    start = os.getcwd()
    if folder >= 0:
        with contextlib.suppress(OSError):
            start = os.readlink(f"/proc/self/fd/{folder}")
    head, tail = os.path.split(os.path.join(start, path).rstrip("/"))
    found = os.path.join(os.path.realpath(head), tail)
    return os.path.realpath(found) if follows else found


def _check_checkpoints(check: Callable[[str], None]) -> None:
    """Check names that `torch.save` is given, too: it opens the file in C++."""
    if (torch := sys.modules.get("torch")) is None:
        return
    write = torch._C.PyTorchFileWriter

    def checked(target: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(target, (str, bytes, os.PathLike)):
            check(os.path.realpath(os.fsdecode(target)))
        return write(target, *arguments, **options)

    torch._C.PyTorchFileWriter = checked


def forbid_network() -> None:
    """Raise `PermissionError` from now on if this process or its forked children would look up or call another
    machine. It cannot be taken back."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        host: Any = None
        if event == "socket.getaddrinfo":
            host = arguments[0]
        elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
            host = arguments[1][0]
        if not _is_local(host):
            raise PermissionError(errno.EACCES, NETWORK, str(host))

    sys.addaudithook(hook)


def _is_local(host: Any) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def enter(scratch: Path, origin: Path) -> Entered:
    """Take this way. It is always there; nothing bounds the size of what is written, and trials share what they write
    by absolute paths below their home and to ``/dev/shm``.

    The folders look like the user's and can be read as theirs: files are links, small ones copies.
    """
    private = Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX, dir=scratch))
    os.environ.update(_folders(private, scratch))
    for name in adapters.OLD_NAMES:
        os.environ.pop(name, None)
    mirror(origin, private / "work")
    os.chdir(private / "work")
    gaps: tuple[str, ...] = ()
    try:
        _forbid_by_landlock(outside=(str(scratch), *KERNEL))
    except OSError as error:
        gaps = (UNSEEN.format(error.strerror or error),)
    forbid_writes(scratch)
    return partial(_nest, scratch, private / "work"), gaps


def _folders(private: Path, scratch: Path) -> dict[str, str]:
    """Make the folders and return the values of their variables."""
    home, users_home = private / "home", Path.home()
    found = {"HOME": str(home), "TMPDIR": str(private / "tmp")}
    (private / "tmp").mkdir()
    for name, default in sorted(FOLDERS.items(), key=lambda each: -each[1].count("/")):
        users = Path(os.environ.get(name) or users_home / default)
        if not below(str(users), (str(scratch),)):  # else the study's already
            found[name] = str(home / default)
            mirror(users, home / default, CACHE_LEVELS)
    mirror(users_home, home, CACHE_LEVELS)
    return found


def _nest(scratch: Path, before: Path, folder: Path) -> Callable[[str], str | None]:
    """Work in ``folder``, which looks like what the script has left in ``before``, its folder up to the fork."""
    now = folder / "work"
    within = os.path.relpath(os.getcwd(), before)
    mirror(before, now)
    os.chdir(now)
    with contextlib.suppress(OSError):
        os.chdir(within)

    def name_of(path: str) -> str | None:
        if below(path, (str(before),)):
            return str(now / os.path.relpath(path, before))
        return None if below(path, (str(scratch),)) else path

    return name_of


def mirror(source: Path, target: Path, levels: int = MIRROR_LEVELS) -> None:
    """Make ``target`` look like ``source`` for reading, while new files land in ``target``.

    Folders are real, small files are copies (a trial may overwrite them), large ones symbolic links. Past ``levels``
    levels or ``MIRROR_ENTRIES`` entries, and for hidden folders, the folder itself is linked: still readable, and
    cheap (a link takes up to 0.2 ms).
    """
    target.mkdir(parents=True, exist_ok=True)
    entries, left = 0, MIRROR_BYTES
    pending = [(source, target, 0)]
    for folder, copy, depth in pending:  # grows on the way
        for entry in _entries(folder):
            destination = copy / entry.name
            if destination.exists() or Path(entry.path) in target.parents:
                continue
            entries += 1
            is_folder = entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "__"))
            if is_folder and depth < levels and entries < MIRROR_ENTRIES:
                destination.mkdir()
                pending.append((Path(entry.path), destination, depth + 1))
            elif (size := _copy(entry, destination, min(MIRROR_FILE_BYTES, left))) is not None:
                left -= size
            else:
                destination.symlink_to(entry.path)


def _copy(entry: os.DirEntry[str], destination: Path, most: int) -> int | None:
    """Copy a regular file of at most so many bytes that may be read; return its bytes, None if it was not copied."""
    with contextlib.suppress(OSError):
        size = entry.stat(follow_symlinks=False).st_size
        if entry.is_file(follow_symlinks=False) and size <= most:
            shutil.copyfile(entry.path, destination)
            return size
    return None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []


def _forbid_by_landlock(outside: tuple[str, ...]) -> None:
    """Let this process and its children change files only in the folders ``outside`` from now on, and gain no
    privileges. Raise `OSError` if this kernel cannot."""
    version = linux.call("landlock_create_ruleset", None, 0, VERSION_ONLY)
    writes = WRITE_FILE | REMOVE_AND_MAKE | sum(right for since, right in SINCE.items() if version >= since)
    attributes = struct.pack("Q", writes)
    ruleset = linux.call("landlock_create_ruleset", attributes, len(attributes), 0)
    try:
        for folder in filter(os.path.isdir, outside):
            fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            linux.call("landlock_add_rule", ruleset, PATH_BENEATH, struct.pack("=Qi", writes, fd), 0)
            os.close(fd)
        linux.call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        linux.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
