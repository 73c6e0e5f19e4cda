"""What hangs on a model, an optimizer or a loader, object by object."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

ATOMS = (str, bytes, int, float, complex, bool, type(None))
MADE_BY_TRAINING = ("grad", "state", "_opt_called", "_iterator")
"""Attributes that a plain training writes."""


class Snapshot:
    """Attributes of ``objects`` and of all that they hold.

    Args:
        objects: models, optimizers, loaders.
        storage: tensors must stay at their place in memory, too.
    """

    def __init__(self, *objects: Any, storage: bool = False) -> None:
        self._objects, self._storage = objects, storage
        self._found = dict(self._walk())

    def changes(self) -> list[str]:
        """Return paths of what has come, gone or become another object since."""
        now = dict(self._walk())
        paths = list(dict.fromkeys([*self._found, *now]))
        return [path for path in paths if not _same(self._found.get(path, Snapshot), now.get(path, Snapshot))]

    def _walk(self) -> Iterator[tuple[str, Any]]:
        stack = [(f"{type(item).__name__}", item) for item in self._objects]
        seen: set[int] = set()
        while stack:
            path, value = stack.pop()
            yield path, value
            if isinstance(value, ATOMS) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, Tensor):
                yield f"{path} lies", (value.shape, value.stride(), value.dtype)
                if self._storage:
                    yield f"{path} at", value.data_ptr()
                continue
            if isinstance(value, dict):
                stack += [
                    (f"{path}[{key if isinstance(key, ATOMS) else id(key)}]", item) for key, item in value.items()
                ]
            elif isinstance(value, list | tuple | set):
                stack += [(f"{path}[{number}]", item) for number, item in enumerate(value)]
            elif (hasattr(value, "__dict__") and not callable(value)) or hasattr(value, "_parameters"):
                yield f"class of {path}", type(value)
                own = vars(value).items()
                stack += [(f"{path}.{name}", item) for name, item in own if name not in MADE_BY_TRAINING]


def _same(before: Any, after: Any) -> bool:
    return before is after or (isinstance(before, (*ATOMS, tuple)) and before == after)
