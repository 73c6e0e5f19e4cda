"""The parent's end of one zygote: the process, its answers, and the tail of everything that its trials print."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.core.errors import LaunchError
from autotune.trial import process_tree
from autotune.trial.child_command import child_command
from autotune.trial.unix_connection import Channel

LOG_BYTES = 2**20
TAIL_BYTES = 4096
EXIT_SECONDS = 5.0


class Server:
    """One living zygote."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, log_fd: int) -> None:
        self.process, self.channel, self.log_fd = process, channel, log_fd
        self.answers: deque[dict[str, Any]] = deque()
        self.gone = False
        self.fresh = ""
        self._log = bytearray()

    @classmethod
    def launch(cls, environment: Mapping[str, str], folder: Path) -> Server:
        """Start a zygote in ``folder``, in a session of its own.

        Raises:
            LaunchError: the process could not be started.
        """
        ours, theirs = Channel.pair()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            process = subprocess.Popen(
                child_command("zygote", str(theirs.fileno())),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"could not start a Python process for trials: {error}") from error
        finally:
            theirs.close()
            os.close(write_end)
        return cls(process, ours, read_end)

    def request(self, name: str, fds: tuple[int, ...] = (), **content: Any) -> None:
        """Send one request; a zygote that is gone is noticed by its silence."""
        with contextlib.suppress(OSError):
            self.channel.send({"request": name, **content}, fds)

    def read_log(self) -> bool:
        """Move what was printed into the ring; False at the end of the stream."""
        try:
            data = os.read(self.log_fd, 65536)
        except BlockingIOError:
            return True
        self._log += data
        if len(self._log) > LOG_BYTES:
            del self._log[: -LOG_BYTES // 2]
        return bool(data)

    def forget_log(self) -> None:
        """Start a new log: what follows belongs to the next trial."""
        self._log.clear()

    def tail(self) -> str:
        """The last lines printed."""
        return bytes(self._log[-TAIL_BYTES:]).decode(errors="replace")

    def close(self) -> None:
        """Ask the zygote to end everything below it and itself; insist after a few seconds."""
        self.request("exit")
        try:
            self.process.wait(timeout=EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process_tree.kill_tree(self.process.pid)
            self.process.wait()
        self.channel.close()
        os.close(self.log_fd)
