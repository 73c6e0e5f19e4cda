"""Loaders that iterate in another way for the time of a session, and stay the user's own objects."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from autotune.knobs.change import Change

WORKERS, ITERATOR, PASSES, ORDER = "_autotune_workers", "_get_iterator", "_autotune_passes", "_autotune_order"
SLOTS = WORKERS, ITERATOR, PASSES, ORDER
"""Attributes of a served loader: its workers, what makes its iterators and its passes, and the order that they read."""


class Served(DataLoader[Any]):
    """The base of the class of a loader whose passes or order are served."""

    def __iter__(self) -> Any:
        passes = vars(self).get(PASSES)
        return super().__iter__() if passes is None else passes(super().__iter__)

    @property
    def _index_sampler(self) -> Any:
        order = vars(self).get(ORDER)
        return super()._index_sampler if order is None else order


def served(loader: DataLoader[Any], **slots: Any) -> Change:
    """Let ``loader`` iterate by what is in ``slots``. It stays the user's own object, and copies are as without; its
    class changes only for what Python looks up there."""
    own, kind = vars(loader), type(loader)
    own.update(slots, __reduce_ex__=partial(_as_users, loader))
    if PASSES in slots and not isinstance(loader, Served):
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        loader.__class__ = type(kind.__name__, (Served, kind), names)

    def undo() -> None:
        for name in slots:
            own.pop(name, None)
        if PASSES not in own:
            loader.__class__ = _users_class(loader)
        if not any(name in own for name in SLOTS):
            own.pop("__reduce_ex__", None)

    return Change(undo)


def _users_class(loader: DataLoader[Any]) -> Any:
    kind = type(loader)
    return kind.__mro__[2] if issubclass(kind, Served) else kind


def _as_users(loader: DataLoader[Any], _protocol: int) -> tuple[Any, ...]:
    """Reduce ``loader`` to the user's own, as it is without a session."""
    state = dict(vars(loader))
    if WORKERS in state:
        state[WORKERS].attributes.put_back(state)
    users = {name: value for name, value in state.items() if name not in (*SLOTS, "__reduce_ex__")}
    return object.__new__, (_users_class(loader),), users


class Attributes(Change):
    """Other values of a loader's attributes. To undo it gives back those that the user has not changed since."""

    def __init__(self, loader: DataLoader[Any], attributes: dict[str, Any]) -> None:
        own = vars(loader)
        self._changed = {name: (new, own[name]) for name, new in attributes.items() if own[name] != new}
        own.update({name: new for name, (new, _before) in self._changed.items()})
        super().__init__(lambda: self.put_back(own))

    def put_back(self, own: dict[str, Any]) -> None:
        """Put the user's values back into the attributes ``own``."""
        own.update({name: before for name, (new, before) in self._changed.items() if own.get(name) is new})
