"""The probes on the machine the tests run on, with real masks, control groups and mounts."""

import contextlib
import errno
import getpass
import json
import os
import platform
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.decoding import as_data
from autotune.probes.budget import ancestors
from autotune.probes.inventory import probe
from autotune.probes.system import System
from autotune.profiles.format import machine_type, versions

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import dataclasses, json
from autotune.probes import budget, cpu, memory
from autotune.probes.system import System
s = System()
facts = budget.probe(s, cpu.probe(s)), memory.probe(s), budget.resource_limits(s)
print(json.dumps([*map(dataclasses.asdict, facts), memory.oom_kills(s)]))
"""


def probed(join: Callable[[], object]) -> Any:
    """Return budget, memory, limits and OOM kills as a child sees them that has joined a control group."""
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, cwd=ROOT, preexec_fn=join, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def group(controller: str, files: dict[int, dict[str, str]]) -> Iterator[Callable[[], object]]:
    """Make a control group below our own with limits by version; skip, naming the errno, if that is not permitted.

    Gives what a child calls to join it.
    """
    folder: Path | None = None
    try:
        own = next(iter(ancestors(System(), controller)), None)
        if own is None:
            pytest.skip(f"no {controller} group is visible")
        folder = Path(own.folder) / f"probe-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        for name, text in files[own.version].items():
            (folder / name).write_text(text, encoding="ascii")
        processes = folder / "cgroup.procs"
        yield lambda: processes.write_text(str(os.getpid()), encoding="ascii")
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.EROFS, errno.EBUSY, errno.ENOENT, errno.ENOSPC):
            pytest.skip(f"control groups cannot be made here: {errno.errorcode[error.errno]}")
        raise
    finally:
        if folder is not None and folder.exists():
            folder.rmdir()


def test_this_machine() -> None:
    found = probe()
    assert 1 <= found.budget.threads <= len(found.cpu.logical)
    assert set(found.budget.cpus) <= {c.id for c in found.cpu.logical}
    assert 0 < found.memory.available <= found.memory.limit <= found.memory.total
    assert not [note for note in found.notes if "failed" in note]


@pytest.mark.root
def test_half_a_cpu_is_a_budget_of_one() -> None:
    files = {1: {"cpu.cfs_quota_us": "50000"}, 2: {"cpu.max": "50000 100000"}}
    with group("cpu", files) as join:
        found = probed(join)[0]
    assert (found["threads"], found["quota"], found["limit"]) == (1, 0.5, "cgroup CPU quota 0.5")


@pytest.mark.root
def test_memory_limit_and_kills() -> None:
    files = {1: {"memory.limit_in_bytes": str(256 << 20)}, 2: {"memory.max": str(256 << 20)}}
    with group("memory", files) as join:
        _, found, _, before = probed(join)
        hog = [sys.executable, "-c", "x = bytearray(600 << 20)"]
        killed = subprocess.run(hog, preexec_fn=join, stderr=subprocess.DEVNULL, check=False).returncode
        after = probed(join)[3]
    assert found["limit"] == 256 << 20
    assert found["available"] <= 256 << 20
    assert killed == -signal.SIGKILL
    assert after > before


def test_commands_never_raise() -> None:
    system = System()
    assert system.run([sys.executable, "-c", "print('hello')"], 60).stdout == "hello\n"
    assert system.run([sys.executable, "-c", "raise SystemExit(3)"], 60).returncode == 3
    assert system.run(["/no/such/program"], 60).returncode == 127
    assert system.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.1).returncode == 124


def test_the_type_of_this_machine_holds_no_host_or_user() -> None:
    text = json.dumps(as_data(machine_type(probe()))).lower()
    host = platform.node().lower()
    for name in {host, host.split(".")[0], str(Path.home()).lower()}:
        assert not re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text) or len(name) < 3
    user = getpass.getuser()
    assert user == "root" or user not in text
    assert "/" not in text.replace("n/a", "")


def test_a_quick_look_starts_nothing_and_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    full = probe()
    monkeypatch.setattr(System, "run", None)
    quick = probe(quick=True)
    assert (quick.software.torch, quick.software.cuda) == (full.software.torch, full.software.cuda)
    assert (machine_type(quick), versions(quick), quick.device) == (machine_type(full), versions(full), full.device)
