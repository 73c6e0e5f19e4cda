"""A machine replayed from a folder tree and a small JSON file: probes are tested on machines nobody here owns."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.probes.system import Finished, System


@dataclass(frozen=True)
class Recording:
    """What a folder tree cannot hold. Commands are keyed by their words joined with blanks."""

    env: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[int, ...] = ()
    spaces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    commands: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, float] = field(default_factory=dict)
    owners: Mapping[str, int] = field(default_factory=dict)
    process_limit: int | None = None
    platform: str = "linux"
    machine: str = "x86_64"
    python: str = "python"
    uid: int = 1000
    pid: int = 4242


class Recorded(System):
    """A machine replayed from ``root`` (its files) and a `Recording` (the rest). Files belong to root unless listed."""

    def __init__(self, root: Path, recording: Recording | None = None, cache: Path | None = None) -> None:
        self.recording = recording or Recording()
        self.prefix = str(root)
        self.env = dict(self.recording.env)
        self.platform = self.recording.platform
        self.machine = self.recording.machine
        self.python = self.recording.python
        self.cache = cache

    def stat(self, path: str) -> os.stat_result | None:
        found = super().stat(path)
        owner = self.recording.owners.get(path, 0)
        return found and os.stat_result((*found[:4], owner, *found[5:10]))

    def space(self, path: str) -> tuple[int, int] | None:
        return self.recording.spaces.get(path)

    def affinity(self) -> frozenset[int]:
        return frozenset(self.recording.affinity or (0,))

    def pid(self) -> int:
        return self.recording.pid

    def uid(self) -> int:
        return self.recording.uid

    def process_limit(self) -> int | None:
        return self.recording.process_limit

    def which(self, name: str) -> str | None:
        return self.recording.programs.get(name)

    def run(self, command: Iterable[str], timeout: float) -> Finished:
        words = list(command)
        code, printed = self.recording.commands.get(" ".join(words), (127, ""))
        return Finished(words, code, printed, "" if code != 127 else "not recorded")

    def installed(self, module: str) -> float | None:
        return self.recording.modules.get(module)

    def cache_folder(self) -> Path | None:
        return self.cache
