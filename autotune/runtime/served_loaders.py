"""Loaders that iterate in another way for the time of a session, and stay the user's own objects."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from autotune.knobs.change import Change

SLOTS = WORKERS, PASSES, ORDER = "_autotune_workers", "_autotune_passes", "_autotune_order"
"""Attributes of a served loader: what makes its iterators, its passes, and the order that they read."""


class Served(DataLoader[Any]):
    """The base of a loader's class in a session: the loader stays the user's own object, and copies are as without."""

    def __iter__(self) -> Any:
        passes = vars(self).get(PASSES)
        return super().__iter__() if passes is None else passes(super().__iter__)

    def _get_iterator(self) -> Any:
        workers = vars(self).get(WORKERS)
        return super()._get_iterator() if workers is None else workers.iterator(self)

    @property
    def _index_sampler(self) -> Any:
        order = vars(self).get(ORDER)
        return super()._index_sampler if order is None else order

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Reduce to the user's own loader, as it is without a session."""
        state = dict(vars(self))
        if WORKERS in state:
            state[WORKERS].attributes.put_back(state)
        return object.__new__, (type(self).__mro__[2],), {n: value for n, value in state.items() if n not in SLOTS}


def served(loader: DataLoader[Any], **slots: Any) -> Change:
    """Let ``loader`` iterate by what is in ``slots``."""
    own, kind = vars(loader), type(loader)
    own.update(slots)
    if not isinstance(loader, Served):
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        loader.__class__ = type(kind.__name__, (Served, kind), names)

    def undo() -> None:
        for name in slots:
            own.pop(name, None)
        if isinstance(loader, Served) and not any(name in own for name in SLOTS):
            loader.__class__ = type(loader).__mro__[2]

    return Change(undo)


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
