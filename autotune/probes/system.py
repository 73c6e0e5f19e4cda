"""The only door from the probes to the operating system.

Probes ask a `System` for files, commands, masks and limits and never touch the machine themselves. `System` is the
machine we run on; `autotune.testing.recorded.Recorded` replays a recorded one.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.probes.fact_cache import FactCache
from autotune.probes.files import Files
from autotune.probes.interfaces import Interfaces

STOPPED_SECONDS = 5.0
"""A command that is stopped for so long, or up to twice that, is given up."""


@dataclass(frozen=True)
class CommandResult:
    """A finished command. ``returncode`` follows the shell: 127 could not be started, 124 ran out of time."""

    returncode: int
    stdout: str = ""
    stderr: str = ""


def _communicate(child: subprocess.Popen[bytes], timeout: float) -> tuple[bytes, bytes]:
    """What ``child`` prints until it ends. Slices of time are counted, so that a clock that jumps ends nothing.

    Raises:
        TimeoutError: it did not end within ``timeout`` seconds, or was stopped at the end of two slices.
    """
    waited, stopped = 0.0, False
    while waited < timeout:
        part = min(STOPPED_SECONDS, timeout - waited)
        try:
            return child.communicate(timeout=part)
        except subprocess.TimeoutExpired:
            waited += part
        before, stopped = stopped, _is_stopped(child.pid)
        if before and stopped:
            raise TimeoutError("it was stopped (SIGSTOP) and did not go on")
    raise TimeoutError(f"no answer within {timeout:g} s")


def _is_stopped(pid: int) -> bool:
    """Whether a child of this process is stopped by a signal; False where it ended, or the platform does not say."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # what has ended cannot be stopped
        return False


class System(Files, Interfaces, FactCache):
    """The machine this process runs on."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.env: Mapping[str, str] = dict(os.environ) if env is None else dict(env)
        self.platform = sys.platform
        self.machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
        self.python = sys.executable

    def cwd(self) -> str:
        """Current folder; ``/`` where it was deleted under us."""
        try:
            return os.getcwd()
        except OSError:
            return "/"

    def affinity(self) -> frozenset[int] | None:
        """Logical CPUs this process may run on, or None where the platform has no masks."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        return frozenset(os.sched_getaffinity(0))

    def cpu_count(self) -> int:
        """Logical CPUs that the operating system reports, at least 1."""
        return os.cpu_count() or 1

    def pid(self) -> int:
        """Process id in the current pid namespace."""
        return os.getpid()

    def uid(self) -> int:
        """Effective user id; 0 is root."""
        return os.geteuid()

    def rlimit(self, name: str) -> tuple[int | None, int | None] | None:
        """Soft and hard value of a limit such as ``RLIMIT_NOFILE``; None inside means unlimited."""
        import resource

        if not hasattr(resource, name):
            return None
        soft, hard = resource.getrlimit(getattr(resource, name))
        return tuple(None if value == resource.RLIM_INFINITY else value for value in (soft, hard))  # type: ignore[return-value]

    def which(self, name: str) -> str | None:
        """Path of a program on the user's PATH, or None."""
        return shutil.which(name, path=self.env.get("PATH", os.defpath))

    def run(self, command: Iterable[str], timeout: float = 60.0, cwd: str | None = None) -> CommandResult:
        """Run a command with the user's environment and wait for it, unless it is stopped; never raises."""
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(self.env),
                cwd=cwd,
            )
        except (OSError, ValueError) as error:
            return CommandResult(127, "", str(error))
        with child:
            try:
                out, err = _communicate(child, timeout)
            except TimeoutError as over:
                return CommandResult(124, "", str(over))
            finally:
                child.kill()
        return CommandResult(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    def package_version(self, name: str) -> str | None:
        """Version of an installed Python distribution, read from its metadata and without importing it."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version(name)
        except PackageNotFoundError:
            return None

    def boot_id(self) -> str:
        """Changes with every boot; tells machines that share a home folder apart."""
        found = self.read("/proc/sys/kernel/random/boot_id")
        return found or self.run(["sysctl", "-n", "kern.boottime"], timeout=5).stdout.strip()
