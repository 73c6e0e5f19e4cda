"""The only interface from the probes to the operating system.

Probes get files, commands, masks, limits and names from a `System`, and never from the machine itself. A `System`
is the machine we run on; tests replay recorded ones. Files are read and never written, but for the cache of facts that
are slow to find, in a private folder of the user.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

CACHE_ENTRIES = 64
"""Most files in the cache; older ones are deleted."""
ROOT = str(Path(__file__).absolute().parents[2])
"""The folder that holds the package ``autotune``. No link is followed: in a checkout ``autotune/probes`` is one."""
Facts = dict[str, Any]
Finished = subprocess.CompletedProcess[str]


class System:
    """The machine this process runs on."""

    prefix = ""
    """Put in front of every absolute path; a recorded machine lives under a folder."""

    allowed: frozenset[int] = frozenset()
    is_late = False

    def __init__(self, deadline: float = math.inf, allowed: Iterable[int] = ()) -> None:
        """Take this process's environment. Commands end by ``deadline`` on the monotonic clock. ``allowed`` are the
        CPUs to go by, of a process that is bound to some of them; those that this process may use if there are none."""
        self.deadline, self.allowed = deadline, frozenset(allowed)
        self.env: Mapping[str, str] = dict(os.environ)
        self.platform = sys.platform
        self.machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
        self.python = sys.executable

    # Files

    def read(self, path: str) -> str | None:
        """Return the text of a file without surrounding white space, or None if it is absent or unreadable."""
        try:
            with open(self.prefix + path, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return None

    def list(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a folder; none if it is absent or unreadable."""
        try:
            return tuple(sorted(os.listdir(self.prefix + path)))
        except OSError:
            return ()

    def resolve(self, path: str) -> str:
        """Return the path with every symbolic link followed."""
        real = os.path.realpath(self.prefix + path)
        return real[len(os.path.realpath(self.prefix)) :] if self.prefix else real

    def stat(self, path: str) -> os.stat_result | None:
        """Return what `os.stat` reports of what the path leads to, or None."""
        try:
            return os.stat(self.prefix + path)
        except OSError:
            return None

    def space(self, path: str) -> tuple[int, int] | None:
        """Return size and free bytes of the file system under the path, or None."""
        try:
            found = shutil.disk_usage(path)
        except OSError:
            return None
        return found.total, found.free

    # This process and its limits

    def affinity(self) -> frozenset[int]:
        """Return the logical CPUs this process may run on: all of them if the platform has no masks."""
        if not hasattr(os, "sched_getaffinity"):
            return frozenset(range(os.cpu_count() or 1))
        return self.allowed or frozenset(os.sched_getaffinity(0))

    def pid(self) -> int:
        """Return the process id in the current pid namespace."""
        return os.getpid()

    def uid(self) -> int:
        """Return the effective user id; 0 is root."""
        return os.geteuid()

    def process_limit(self) -> int | None:
        """Return RLIMIT_NPROC; None if it is unlimited, and for root, whom it does not bind."""
        soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        return None if self.uid() == 0 or soft == resource.RLIM_INFINITY else soft

    # Commands and software

    def which(self, name: str) -> str | None:
        """Return the path of a program on the user's PATH, or None."""
        return shutil.which(name, path=self.env.get("PATH", os.defpath))

    def run(self, command: Iterable[str], timeout: float) -> Finished:
        """Run a command with the user's environment, but not in the user's folder, and wait for it; never raises.

        The exit code follows the shell: 127 could not be started, 124 ran out of time.
        """
        command, timeout = list(command), min(timeout, max(0.0, self.deadline - time.monotonic()))
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=dict(self.env),
                cwd=ROOT,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired:
            self.is_late = time.monotonic() >= self.deadline
            return subprocess.CompletedProcess(command, 124, "", f"no answer within {timeout:.3g} s")
        except (OSError, ValueError) as error:
            return subprocess.CompletedProcess(command, 127, "", str(error))

    def installed(self, module: str) -> float | None:
        """Return when the file of a Python module was written; None if there is no such module. Nothing is imported."""
        spec = importlib.util.find_spec(module)
        found = self.stat(spec.origin) if spec is not None and spec.origin is not None else None
        return found.st_mtime if found is not None else None

    def boot_id(self) -> str:
        """Return what changes with every boot; it distinguishes machines that share a home folder."""
        found = self.read("/proc/sys/kernel/random/boot_id")
        return found or self.run(["sysctl", "-n", "kern.boottime"], timeout=5).stdout.strip()

    # Facts that are slow to find, by name and key

    def cache_folder(self) -> Path | None:
        """Return a private, writable folder for cached facts: the user's cache folder, else a temporary one."""
        import platformdirs

        folders = list[Path]()
        with contextlib.suppress(RuntimeError):  # the user has no home
            folders.append(platformdirs.user_cache_path("torch-autotune", appauthor=False))
        with contextlib.suppress(OSError):  # there is none
            folders.append(Path(tempfile.gettempdir()) / f"torch-autotune-{os.geteuid()}")
        return next(filter(_is_private, folders), None)

    def remember(self, name: str, key: object, compute: Callable[[], Facts]) -> Facts:
        """Return ``compute()``, or its cached result for an equal ``key``. Nothing is cached after an exception, nor
        once the deadline has cut a command short."""
        folder = self.cache_folder()
        if folder is None:
            return compute()
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
        path = folder / f"{name}-{digest}.json"
        with contextlib.suppress(OSError, ValueError):
            if isinstance(found := json.loads(path.read_text(encoding="utf-8")), dict):
                return found
        facts = compute()
        if not self.is_late:
            _save(path, facts)
        return facts


def _is_private(folder: Path) -> bool:
    """Create the folder if needed; return True if only this user can write to it: others could plant facts."""
    if not folder.is_absolute():  # for a user without a home, some versions of platformdirs begin it with ~
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK)


def _save(path: Path, facts: Facts) -> None:
    """Write atomically. A failure is ignored: the facts are computed again next time."""
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump(facts, file)
        os.replace(file.name, path)
        newest_first = sorted(path.parent.glob("*.json"), key=lambda found: found.stat().st_mtime, reverse=True)
        for old in newest_first[CACHE_ENTRIES:]:
            old.unlink()
