"""Folders of the trial's own where programs look for theirs, and a stop for what would be written elsewhere.

For systems that forbid namespaces, as most containers do. Where the kernel has Landlock it stops everything; else an
audit hook stops what Python itself does.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from autotune.trial.isolation import descriptors, guard, landlock
from autotune.trial.isolation.mirror import mirror
from autotune.trial.isolation.mounts import below
from autotune.trial.isolation.sandbox import Entered, Sandbox
from autotune.trial.paths import short

NAME = "redirected"
PRIVATE = "private"
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
    "HF_HOME": ".cache/huggingface",
    "HF_HUB_CACHE": ".cache/huggingface/hub",
    "HF_DATASETS_CACHE": ".cache/huggingface/datasets",
    "HF_MODULES_CACHE": ".cache/huggingface/modules",
    "NLTK_DATA": "nltk_data",
}
"""Variables that name folders, and where these are below HOME if a variable is not set."""
OLD_NAMES = ("TRANSFORMERS_CACHE", "HUGGINGFACE_HUB_CACHE", "PYTORCH_TRANSFORMERS_CACHE")
"""Variables that would be taken before the present ones."""
CACHE_LEVELS = 1
"""Folders that deep are real ones, so that there can be new files in them; those inside are links."""
KERNEL = (Path("/dev"), Path("/proc"))
UNSEEN = "what another program or a library in C writes by an absolute path lands there ({reason})"


def enter(sandbox: Sandbox) -> Entered:
    """Take this way. It is always there.

    The folders look like the user's and can be read as theirs: files are links, small ones copies.
    """
    private = sandbox.scratch / PRIVATE
    variables = dict(_folders(private))
    os.environ.update(variables)
    for name in OLD_NAMES:
        os.environ.pop(name, None)
    mirror(sandbox.origin, private / "work")
    os.chdir(private / "work")
    limits = [f"trials share what the script writes by absolute paths below {private}, and /dev/shm"]
    try:
        landlock.forbid_writes((sandbox.scratch, *KERNEL))
    except OSError as error:
        limits.append(UNSEEN.format(reason=error.strerror or error))
    guard.forbid_writes(sandbox.scratch)
    return Entered(lambda folder: _nest(sandbox.scratch, folder), tuple(limits))


def _folders(private: Path) -> dict[str, str]:
    """What the variables must say; makes the folders."""
    home = private / "home"
    found = {"HOME": str(home), "TMPDIR": str(short(private / "tmp"))}
    (private / "tmp").mkdir(parents=True, exist_ok=True)
    for name, default in sorted(FOLDERS.items(), key=lambda each: -each[1].count("/")):
        own, users = home / default, Path(os.environ.get(name) or Path.home() / default)
        if below(str(users), (str(private.parent),)):
            continue  # the study's already
        found[name] = str(own)
        _link(users, own)
    _link(Path.home(), home)
    return found


def _link(users: Path, own: Path) -> None:
    own.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        mirror(users, own, CACHE_LEVELS)


def _nest(scratch: Path, folder: Path) -> None:
    """Work in ``folder``, which looks like what the script has left behind before the fork."""
    before, now = scratch / PRIVATE / "work", folder / "work"
    within = os.path.relpath(os.getcwd(), before)
    mirror(before, now)
    os.chdir(now)
    with contextlib.suppress(OSError):
        os.chdir(within)

    def where(path: str) -> str | None:
        if below(path, (str(before),)):
            return str(now / os.path.relpath(path, before))
        return None if below(path, (str(scratch),)) else path

    descriptors.reopen(where)
