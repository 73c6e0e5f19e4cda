"""What can be reached from a dataset and its collate function: a bounded walk that calls none of the user's code.

The walk goes through attributes, containers, closures, defaults, and the globals that the user's own functions read.
Functions and classes of libraries end it: what those keep for themselves is theirs.
"""

from __future__ import annotations

import dis
import enum
import functools
import io
import logging
import os
import random
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader

MOST = 10_000
"""Objects looked at."""
EDGE = 32
"""Items looked at, at the beginning, in the middle and at the end of a large container."""
PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None), range, enum.Enum)
ENDS = (*PLAIN, Tensor, ModuleType, CodeType, logging.Logger, logging.Handler, threading.Thread)
SEQUENCES = (list, tuple, set, frozenset, deque)
GENERATORS = (torch.Generator, numpy.random.RandomState, numpy.random.Generator, random.Random)
ANYBODYS: tuple[type, ...] = (dict, *SEQUENCES, Tensor, numpy.ndarray, *GENERATORS, io.BytesIO, io.StringIO, MethodType)
ANYBODYS += (BuiltinFunctionType, functools.partial, functools._lru_cache_wrapper)
"""Classes of libraries whose objects belong to whoever holds them."""
STDLIB = sysconfig.get_path("stdlib") + os.sep
LOADS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"})
Inside = dict[str, Any]


@dataclass(frozen=True)
class Reached:
    """One object.

    Attributes:
        path: how to get there, such as ``Photos.transform.count``.
        value: the object.
        inside: what it holds directly, by the end of the path.
        library: whether it belongs to an object of a library, which may fill caches of its own when it is first used.
    """

    path: str
    value: Any
    inside: Inside
    library: bool


def roots_of(loader: DataLoader[Any]) -> dict[str, Any]:
    """What loader workers have copies of."""
    return {type(loader.dataset).__name__: loader.dataset, "collate_fn": loader.collate_fn}


def walk(roots: Mapping[str, Any]) -> Iterator[Reached]:
    """Everything reachable from ``roots``, the nearest first; plain values only as what others hold."""
    waiting = deque((path, value, False) for path, value in roots.items())
    seen: dict[int, Any] = {}
    while waiting and len(seen) < MOST:
        path, value, library = waiting.popleft()
        if id(value) in seen or isinstance(value, PLAIN):
            continue
        seen[id(value)] = value
        library = _of_library(value, library)
        inside = _inside(value)
        yield Reached(path, value, inside, library)
        waiting.extend((path + end if end[0] in ".[" else end, item, library) for end, item in inside.items())


def is_library(module: str) -> bool:
    """True for the standard library and for installed packages."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or top in ("torch", "numpy"):  # built in, or a folder of the user's without __init__.py
        return top in ("torch", "numpy") or top in sys.stdlib_module_names
    return file.startswith(STDLIB) or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _of_library(value: Any, holder: bool) -> bool:
    """Whether a library's object has made ``value``; what anybody may make belongs to its ``holder``."""
    if isinstance(value, FunctionType | type):
        return is_library(module_of(value))
    module = module_of(type(value))
    return holder if isinstance(value, ANYBODYS) or module in sys.builtin_module_names else is_library(module)


def module_of(value: Any) -> str:
    """The module that a function or class says it comes from."""
    module = getattr(value, "__module__", None)
    return module if isinstance(module, str) else "builtins"


def _inside(value: Any) -> Inside:
    if isinstance(value, ENDS) or any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return {}
    for kinds, parts in INSIDE:
        if isinstance(value, kinds):
            return parts(value)
    return _of_object(value)


def _of_dict(value: dict[Any, Any]) -> Inside:
    items = list(islice(dict.items(value), EDGE))
    if len(value) > EDGE:
        items += islice(reversed(dict.items(value)), EDGE)
    named = {(f"[{key!r}]" if type(key) in PLAIN else f"[#{k}]"): item for k, (key, item) in enumerate(items)}
    return _attributes(value) | named


def _of_sequence(value: Any) -> Inside:
    known = next(kind for kind in SEQUENCES if isinstance(value, kind))
    items = value if type(value) in (list, tuple) else list(known.__iter__(value))
    middle, size = len(items) // 2, len(items)
    places = [*range(EDGE), *range(middle - EDGE // 2, middle + EDGE // 2), *range(size - EDGE, size)]
    return _attributes(value) | {f"[{k}]": items[k] for k in (places if size > 3 * EDGE else range(size))}


def _of_array(value: Any) -> Inside:
    items = _of_sequence(value.reshape(-1).tolist()) if value.dtype == object else {}
    return items if value.base is None else items | {".base": value.base}


def _of_function(function: FunctionType) -> Inside:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    found = {f".{name}": cell.cell_contents for name, cell in cells if _is_full(cell)}
    found |= {f".defaults[{k}]": value for k, value in enumerate(function.__defaults__ or ())}
    found |= {f".defaults[{name!r}]": value for name, value in (function.__kwdefaults__ or {}).items()}
    return found | _attributes(function) | ({} if is_library(module_of(function)) else _globals(function))


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a variable that is not assigned yet
        return False


def _globals(function: FunctionType) -> Inside:
    """The globals that a function reads or assigns; of the user's own modules, what it may name of them."""
    known, found = function.__globals__, Inside()
    for code in codes(function.__code__):
        for name in {str(i.argval) for i in dis.get_instructions(code) if i.opname in LOADS_GLOBAL} & set(known):
            value = known[name]
            if isinstance(value, ModuleType):
                own = {} if is_library(value.__name__) else vars(value)
                found |= {f"{name}.{part}": own[part] for part in code.co_names if part in own}
            else:
                found[name] = value
    return found


def codes(code: CodeType) -> Iterator[CodeType]:
    """``code`` and all code inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes(inner)


def _of_class(kind: type) -> Inside:
    if is_library(module_of(kind)):
        return {}
    skipped = (GetSetDescriptorType, MemberDescriptorType)
    own = {f".{name}": value for name, value in vars(kind).items() if name not in CLASS_NAMES}
    own = {name: value for name, value in own.items() if not isinstance(value, skipped)}
    return own | {base.__name__: base for base in kind.__bases__}


CLASS_NAMES = (
    "__module__",
    "__qualname__",
    "__dict__",
    "__weakref__",
    "__annotations__",
    "__parameters__",
    "_abc_impl",
)


def _of_object(value: Any) -> Inside:
    kind = type(value)
    slots = [slot for owner in kind.__mro__ for slot in vars(owner).values() if isinstance(slot, MemberDescriptorType)]
    held = {f".{slot.__name__}": slot.__get__(value) for slot in slots if _is_set(slot, value)}
    return held | _attributes(value) | {kind.__name__: kind}


def _is_set(slot: Any, value: Any) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def _attributes(value: Any) -> Inside:
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return {f".{name}": item for name, item in list(held.items())} if isinstance(held, dict) else {}


def _of(*names: str) -> Callable[[Any], Inside]:
    def parts(value: Any) -> Inside:
        return {f".{name.strip('_')}": getattr(value, name) for name in names if hasattr(value, name)}

    return parts


INSIDE: tuple[tuple[Any, Callable[[Any], Inside]], ...] = (
    (dict, _of_dict),
    (SEQUENCES, _of_sequence),
    (numpy.ndarray, _of_array),
    (FunctionType, _of_function),
    (BuiltinFunctionType, _of("__self__")),
    (MethodType, _of("__self__", "__func__")),
    (functools.partial, _of("func", "args", "keywords")),
    (functools._lru_cache_wrapper, _of("__wrapped__")),
    (property, _of("fget")),
    ((staticmethod, classmethod), _of("__func__")),
    (type, _of_class),
)
