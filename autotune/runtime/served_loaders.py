"""Loaders that iterate in another way for the time of a session, and stay the user's own objects."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from autotune.knobs.change import Change

SLOTS = ITERATOR, PASSES, ORDER = "_get_iterator", "_autotune_passes", "_autotune_order"
"""Attributes of a served loader: what makes its iterators and its passes, and the order that they read."""


class Served(DataLoader[Any]):
    """The base of the class of a loader whose passes or order are served."""

    def __iter__(self) -> Any:
        passes = vars(self).get(PASSES)
        return super().__iter__() if passes is None else passes(super().__iter__)

    @property
    def _index_sampler(self) -> Any:
        order = vars(self).get(ORDER)
        return super()._index_sampler if order is None else order


def copied(loader: DataLoader[Any], **attributes: Any) -> DataLoader[Any]:
    """Return another loader of the class, with other ``attributes``. Nothing of the class runs: it may refuse them."""
    made: DataLoader[Any] = object.__new__(type(loader))
    vars(made).update(vars(loader) | attributes)
    return made


def served(loader: DataLoader[Any], **slots: Any) -> Change:
    """Let ``loader`` iterate by what is in ``slots``. It stays the user's own object, and copies are as without; its
    class changes only for what Python looks up there."""
    own, kind = vars(loader), type(loader)
    known = weakref.ref(loader)  # it ends with the script's last reference
    own.update(slots, __reduce_ex__=partial(_as_users, known))
    if PASSES in slots and not isinstance(loader, Served):
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        object.__setattr__(loader, "__class__", type(kind.__name__, (Served, kind), names))

    def undo() -> None:
        if (loader := known()) is None:
            return
        own = vars(loader)
        for name in slots:
            own.pop(name, None)
        if PASSES not in own:
            object.__setattr__(loader, "__class__", _users_class(loader))
        if not any(name in own for name in SLOTS):
            own.pop("__reduce_ex__", None)

    return Change(undo)


def _users_class(loader: DataLoader[Any]) -> Any:
    kind = type(loader)
    return kind.__mro__[2] if issubclass(kind, Served) else kind


def _as_users(known: weakref.ref[DataLoader[Any]], protocol: int) -> tuple[Any, ...]:
    """Reduce a loader as without a session: by its class, which may have a way of its own."""
    loader: Any = known()
    own, kind = vars(loader), type(loader)
    ours = {name: own.pop(name) for name in (*SLOTS, "__reduce_ex__") if name in own}
    object.__setattr__(loader, "__class__", _users_class(loader))
    try:
        found: Any = loader.__reduce_ex__(protocol)
        return tuple(dict(each) if each is own else each for each in found)
    finally:
        object.__setattr__(loader, "__class__", kind)
        own.update(ours)
