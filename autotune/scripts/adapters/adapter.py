"""What trials need to know of one framework: how to keep it still, where it writes, how it starts processes."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]
"""Changes a module that has just been imported."""


def _nothing(_text: str) -> None:
    """Do nothing, for frameworks that need nothing before they are imported."""


@dataclass(frozen=True)
class Adapter:
    """One framework, or several that are alike.

    Attributes:
        packages: their import names.
        variables: of the environment that trials run in. What the script itself sets wins.
        offline: the same for trials without a network, where a library would wait for an answer.
        caches: variables that name folders which hold more than one run needs -> their place below HOME.
        old_names: older names of such variables, which would win.
        logs: variables that name folders for what a run leaves behind.
        log_uris: variables that hold the ``file://`` address of such a folder -> its name.
        before: called with the script's text in the script's process, before that runs.
        changes: module -> called once it is imported.
        several_processes: what decides, beside the launcher, how many processes the script trains in; empty if nothing.
    """

    packages: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    offline: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)
    old_names: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    log_uris: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[str], None] = _nothing
    changes: Mapping[str, Change] = field(default_factory=dict)
    several_processes: str = ""


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls changes on modules once they are imported, and at once on those that are imported already."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)

    def install(self) -> None:
        """Wait for the modules."""
        for name in set(self._changes) & set(sys.modules):
            self._changes.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what Python itself finds, with the change after it. To look a module up is not to import it yet."""
        if fullname not in self._changes:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._wrap(fullname, spec.loader)
        return spec

    def _wrap(self, name: str, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own is seen again
            original(module)
            if name in self._changes:
                self._changes.pop(name)(module)

        loader.exec_module = exec_module
