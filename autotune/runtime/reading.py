"""What reading a batch looks at: what a data set and its collate function are made of, and the names that the user's
own code mentions. None of that code runs."""

from __future__ import annotations

import dis
import functools
import itertools
import os
import sys
import sysconfig
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from logging import Logger
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
OURS = str(Path(__file__).parents[1])
MOST_OBJECTS = 2000
MOST_ITEMS = 50
"""Of a list or dictionary: its items are mostly alike."""
MOST_HELD, MOST_OF_EACH, MOST_OF_LIST = 128, 16, 4096
"""Objects that are held, and items of each container, that are looked into for each batch; and the items of containers
that are compared with what they were."""
CONTAINERS, SCALARS = (list, tuple, set, frozenset, deque, dict), (int, float, bool, str)
ATOMS = (str, bytes, int, float, complex, bool, type(None), Tensor)
CALLED: tuple[type, ...] = (MethodType, staticmethod, classmethod, property)
CALLED += (functools.cached_property, functools.partial, functools.partialmethod)
INNER = ("__func__", "__self__", "fget", "func", "args", "keywords")
"""What one of these is made of."""
UNCALLED = {f"__{name}__" for name in "init repr eq hash lt le gt ge setattr delattr del".split()}
"""Special methods that reading does not call without their names; it calls the others."""
BARE, BASES = ("", "builtins", "types", "argparse", "typing", "abc", "enum"), (Dataset, IterableDataset, nn.Module)
"""The user's own modules, others whose classes look at no attributes but their own, and such classes."""
HOLDERS, PRIVATE = ("_parameters", "_buffers", "_modules"), frozenset(vars(nn.Module())) - {"training"}
"""Where a `torch.nn.Module` holds what its `__getattr__` finds, and all that PyTorch itself puts into it."""
PYTHONS = sys.stdlib_module_names
LOOK_AT_NONE = {"torch", "torchvision", "torchaudio", "numpy", "scipy", "pandas", "PIL", "cv2", *PYTHONS}
"""Libraries whose functions look at no attributes of the user's objects, but for these."""
LOOK_AT_ALL = {"vars", "getattr", "eval", "exec", "dataclasses", "asdict", "copy", "deepcopy", "pickle", "operator"}
READS = (
    ("LOAD_GLOBAL", "LOAD_NAME"),
    ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"),
    ("IMPORT_NAME",),
)
"""Operations that read globals, attributes and modules."""


def is_of_library(file: str) -> bool:
    """Return True if ``file`` is Python's, an installed package's or ours."""
    return file.startswith((*LIBRARIES, OURS, "<")) or any(name in file for name in PACKAGES)


def attributes(value: Any) -> dict[str, Any]:
    """Return what ``value`` holds by name. Nothing of its class is called."""
    if issubclass(type(value), Logger | ModuleType):  # handlers hold files, which reading does not write to by itself
        return {}
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {} if _library(type(value)) else _slots(value)
    if issubclass(type(value), nn.Module):
        found = {name: each for place in HOLDERS for name, each in list(own.get(place, {}).items())}
        return found | {name: each for name, each in list(own.items()) if name not in PRIVATE}
    return own if type(own) is dict else {}


def _slots(value: Any) -> dict[str, Any]:
    """Return what the slots of ``value`` hold, by name."""
    members = (each for base in type(value).__mro__ for each in vars(base).items())
    return {name: _content(each, value) for name, each in members if type(each) is MemberDescriptorType}


def parts(value: Any) -> Iterable[Any]:
    """Return what ``value`` is made of; of a function what it closes over."""
    kind = type(value)
    if issubclass(kind, CALLED):
        return [getattr(value, name) for name in INNER if hasattr(value, name)]
    if kind is FunctionType:
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return (*(_content(each) for each in value.__closure__ or ()), *defaults, *attributes(value).values())
    if kind is weakref.ref:
        return (value(),)
    return (*attributes(value).values(), *_items(value))


def _content(cell: Any, owner: Any = None) -> Any:
    """Return what is in a cell of a function, or in a slot of its ``owner``; None if it is empty."""
    try:
        return cell.cell_contents if owner is None else cell.__get__(owner)
    except (ValueError, AttributeError):
        return None


def _items(value: Any) -> Iterable[Any]:
    kind = type(value)
    base: Any = next((each for each in CONTAINERS if issubclass(kind, each)), None)
    if base is None:
        return ()
    return itertools.islice(dict.values(value) if base is dict else base.__iter__(value), MOST_ITEMS)


def objects(roots: Iterable[Any], parts: Callable[[Any], Iterable[Any]] = parts) -> Iterator[Any]:
    """Yield each object that ``roots`` are made of, functions too, but for `ATOMS`."""
    seen: dict[int, Any] = {}  # holds the objects, so that no number is given twice
    stack = list(roots)
    while stack and len(seen) < MOST_OBJECTS:
        value = stack.pop()
        if not issubclass(type(value), ATOMS) and id(value) not in seen:
            seen[id(value)] = value
            yield value
            stack += parts(value)


def held(roots: Sequence[Any], parts: Callable[[Any], Iterable[Any]] = parts) -> list[tuple[Any, Any]]:
    """Return what the ``roots`` hold, level by level, as far as `MOST_HELD`, with lengths and versions of tensors."""
    found: list[tuple[Any, Any]] = []
    first, later, seen = deque(roots), deque[Any](), set[int]()
    items, most = MOST_OF_LIST, MOST_HELD
    while first or later:
        each = first.popleft() if first else later.popleft()
        kind = type(each)
        if kind in SCALARS:
            found.append((kind, each))
            continue
        short = kind in CONTAINERS and len(each) <= items
        if short:
            items -= len(each)
            found += [(item, None) for item in list(each.values() if kind is dict else each)]  # threads may change it
        found.append((each, _mark(each)))
        if most > 0 and id(each) not in seen:
            seen.add(id(each))
            inner = (part for part in parts(each) if not (short and type(part) in SCALARS))
            more = list(itertools.islice(inner, MOST_OF_EACH if kind in CONTAINERS else most))
            most -= len(more)
            (later if kind in CONTAINERS else first).extend(more)
    return found


def _mark(value: Any) -> int | None:
    """Return the length of a container, and how often a tensor was written to."""
    if type(value) in CONTAINERS:
        return len(value)
    return value._version if issubclass(type(value), Tensor) and not value.is_inference() else None


def same(before: Sequence[tuple[Any, Any]], now: Sequence[tuple[Any, Any]]) -> bool:
    """Return True if nothing that is `held` was exchanged, lengthened or, if it is a tensor, written to."""
    pairs = zip(before, now, strict=False)
    return len(before) == len(now) and all(one is other and (a is b or a == b) for (one, a), (other, b) in pairs)


class Reading:
    """What reading by ``roots`` looks at, as far as code shows it: objects, and globals and attributes by name.

    Of objects of the user's own classes those attributes count that the user's own code mentions; all of them where a
    library may look at others.
    """

    def __init__(self, *roots: Any) -> None:
        self._roots, self._looks_at_all, self._names = roots, False, {"forward"}
        self._named: dict[tuple[int, str], Mapping[str, Any]] = {}
        """Where each name is looked up: in globals, and in the user's classes and modules."""
        self._functions, self._bare = dict[int, FunctionType](), dict[int, bool]()
        known = -1
        while known < (known := len(self._names) + len(self._functions) + len(self._named) + self._looks_at_all):
            self._look_at(list(self.objects()))
        named = [each for each in self._named_now() if not issubclass(type(each), type)]
        self._holders = [each for each in named if issubclass(type(each), CONTAINERS) or [*self.parts(each)]]
        """What is named and may hold something."""

    def objects(self) -> Iterator[Any]:
        """Yield each object that reading looks at."""
        return objects([*self._roots, *self._named_now()], self.parts)

    def held(self) -> list[tuple[Any, Any]]:
        """Return what is `held` now, and what the names stand for."""
        return held([*self._roots, *self._holders], self.parts) + [(each, _mark(each)) for each in self._named_now()]

    def _named_now(self) -> list[Any]:
        return [where.get(name) for (_place, name), where in self._named.items()]

    def parts(self, value: Any) -> Iterable[Any]:
        """Return what of ``value`` is looked at."""
        own, kind = attributes(value), type(value)
        if self._looks_at_all or not own or issubclass(kind, (FunctionType, *CALLED)) or not self._is_bare(kind):
            return parts(value)
        return (*(each for name, each in list(own.items()) if name in self._names), *_items(value))

    def _is_bare(self, kind: type) -> bool:
        """Return True if the user's own code alone looks at attributes of such objects."""
        if id(kind) not in self._bare:
            bases = (each for each in kind.__mro__ if each not in BASES)
            self._bare[id(kind)] = all(_library(each) in BARE for each in bases)
        return self._bare[id(kind)]

    def _look_at(self, found: Iterable[Any]) -> None:
        """Look at the functions that were ``found``, and at what modules and classes hold."""
        classes = dict[int, tuple[Any, set[str]]]()
        for each in found:
            kind = type(each)
            if kind is FunctionType and id(each) not in self._functions:
                self._read(each)
            made = issubclass(kind, type)
            for where in (each,) if issubclass(kind, ModuleType) else (each if made else kind).__mro__:
                classes[id(where)] = where, self._names | ({"__init__"} if made else set())
        for where, names in classes.values():
            self._look_in(where, names)

    def _look_in(self, where: Any, names: set[str]) -> None:
        """Note what a module or class of the user's holds under ``names``."""
        if self._is_of_library(where):
            return
        for name, value in list(vars(where).items()):
            is_called = name.startswith("__") and name not in UNCALLED and type(value) in (FunctionType, *CALLED)
            if name in names or (is_called and issubclass(type(where), type)):
                self._named[id(where), name] = vars(where)

    def _is_of_library(self, value: Any) -> bool:
        library = _library(value)
        self._looks_at_all |= bool(library) and library not in LOOK_AT_NONE
        return bool(library)

    def _read(self, function: FunctionType) -> None:
        self._functions[id(function)], known = function, function.__globals__
        if self._is_of_library(function):
            return
        found, names, modules = _mentioned(function.__code__)
        self._names |= names
        self._looks_at_all |= bool(found & LOOK_AT_ALL) or "__dict__" in names
        self._named |= {(id(known), name): known for name in found if name in known}
        self._named |= {(id(sys), name): sys.modules for name in modules if name in sys.modules}


def _library(value: Any) -> str:
    """Return the package of a module, class or function; empty if it is the user's, in a file or at a prompt."""
    name = str(value.__name__ if issubclass(type(value), ModuleType) else value.__module__)
    package, file = name.partition(".")[0], getattr(sys.modules.get(name), "__file__", None)
    return package if package in PYTHONS or (file and is_of_library(file)) else ""


@functools.cache
def _mentioned(code: CodeType) -> tuple[frozenset[str], ...]:
    """Return the globals, the attributes and the modules that ``code`` and the functions in it read."""
    read = [(each.opname, str(each.argval)) for each in dis.get_instructions(code)]
    inner = [_mentioned(each) for each in code.co_consts if isinstance(each, CodeType)]
    own = (frozenset(name for operation, name in read if operation in each) for each in READS)
    return tuple(each.union(*others) for each, *others in zip(own, *inner, strict=True))
