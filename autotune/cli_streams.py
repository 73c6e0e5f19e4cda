"""The standard streams of a command: open, and able to show every path."""

from __future__ import annotations

import io
import os
import sys


def prepare_streams() -> None:
    """Open streams that are closed, and let bytes that are no text be written: paths need not be text."""
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_closed() -> None:
    """Where standard streams are closed, nobody reads what is written: neither in another stream, nor in a file or
    socket that happened to get the descriptor."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # to the end
