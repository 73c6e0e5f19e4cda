"""Digests of a model, an optimizer and a data loader. Names and values stay out."""

from __future__ import annotations

import dis
import functools
import hashlib
import itertools
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from logging import Logger
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils.data import DataLoader

DIGITS = 16
WRAPPERS = (DistributedDataParallel, nn.DataParallel)
SHAPES = ("kernel_size", "stride", "dilation", "groups", "num_heads", "num_layers", "bidirectional", "output_size")
"""Attributes of PyTorch's own layers that decide speed and that no parameter's shape shows."""
NO_OPTIONS = ("params", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum", "swa_lr")
"""In a parameter group; schedulers add the others."""
MOST_WRAPPED = 9
"""Data sets that hold one another, such as `torch.utils.data.Subset`."""
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
OURS = str(Path(__file__).parents[1])
MOST_OBJECTS = 2000
MOST_ITEMS = 50
"""Of a list or dictionary: its items are mostly alike."""
CODE = (ModuleType, type, FunctionType, staticmethod, classmethod, property)
CONTAINERS = (list, tuple, set, frozenset)
ATOMS = (str, bytes, int, float, complex, bool, type(None), Tensor, nn.Module)


def of_model(model: nn.Module) -> str:
    """Return a digest of the model's layers, and of which parameters share memory.

    Wrappers (DistributedDataParallel, DataParallel, a compiled module) do not count, nor do the user's own names.
    """
    return _digest([list(_layers(model)), _shared(model)])


def of_optimizer(optimizer: Optimizer) -> str:
    """Return a digest of the optimizer's class and of the names of its options, without those that schedulers add."""
    kind = type(optimizer)
    options = [sorted(key for key in group if key not in NO_OPTIONS) for group in optimizer.param_groups]
    return _digest([kind.__module__.startswith("torch."), kind.__qualname__, options])


def of_loader(loader: DataLoader[Any]) -> str:
    """Return a digest of the names of the classes and functions that a batch passes through.

    Code is not looked at: tuning compares the batches that it makes, and whoever changes what a data set does without
    a new name tunes again, as after any change of the training.
    """
    data = [loader.dataset]
    while len(data) < MOST_WRAPPED and (inner := getattr(data[-1], "__dict__", {}).get("dataset")) is not None:
        data.append(inner)
    parts = (*data, loader.collate_fn, loader.worker_init_fn, loader.batch_sampler, loader.sampler, loader)
    return _digest([_name(each) for each in parts])


def _name(value: Any) -> str:
    """Return the name of a function, or of the class of anything else; that of their module differs in a script."""
    while isinstance(value, functools.partial):
        value = value.func
    return str(value.__qualname__ if hasattr(value, "__qualname__") else type(value).__qualname__)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:DIGITS]


def _layers(model: nn.Module) -> Iterator[list[Any]]:
    for module in model.modules():
        if not isinstance(module, WRAPPERS) and not hasattr(module, "_orig_mod"):
            parameters = module.parameters(recurse=False)
            yield [
                _kind(module),
                [f"{name}={getattr(module, name)}" for name in SHAPES if _kind(module) and hasattr(module, name)],
                [[str(p.dtype), *((-1,) if is_lazy(p) else p.shape), p.requires_grad] for p in parameters],
            ]


def _kind(module: nn.Module) -> str:
    kind = type(module)
    return kind.__name__ if kind.__module__.startswith("torch.nn.") else ""


def _shared(model: nn.Module) -> list[list[int]]:
    """Return the numbers of each parameter and of the storage that it lies in; empty if none is shared."""
    every = (parameter for _name, parameter in model.named_parameters(remove_duplicate=False))
    parameters = [p for p in every if not is_lazy(p) and p.numel()]
    storages = _numbered(p.untyped_storage().data_ptr() for p in parameters)
    return [_numbered(map(id, parameters)), storages] if len(set(storages)) < len(storages) else []


def _numbered(values: Iterable[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def objects(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield each object that ``roots`` are made of, functions and classes too, but for `ATOMS`."""
    seen: dict[int, Any] = {}  # holds the objects, so that no number is given twice
    stack = list(roots)
    while stack and len(seen) < MOST_OBJECTS:
        value = stack.pop()
        if isinstance(value, ATOMS) or id(value) in seen:
            continue
        seen[id(value)] = value
        yield value
        stack += _made_of(value)


def _made_of(value: Any) -> Iterable[Any]:
    if isinstance(value, type | Logger):  # handlers hold files, which reading does not write to by itself
        return ()
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        return (*cells, *(value.__defaults__ or ()))
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, Mapping):
        return itertools.islice(value.values(), MOST_ITEMS)
    if isinstance(value, CONTAINERS):
        return itertools.islice(value, MOST_ITEMS)
    return type(value), *getattr(value, "__dict__", {}).values()


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def attributes(value: Any) -> dict[str, Any]:
    """Return what ``value`` holds by name, of a function what it closes over. Nothing of its class is called."""
    if type(value) is FunctionType:
        return {str(number): cell for number, cell in enumerate(value.__closure__ or ())}
    if type(value) is CellType:
        return {"": value.cell_contents} if _is_full(value) else {}
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def is_of_library(file: str) -> bool:
    """Return True if ``file`` is Python's, an installed package's or ours."""
    return file.startswith((*LIBRARIES, OURS, "<")) or any(name in file for name in PACKAGES)


def names_read(roots: Iterable[Any]) -> list[tuple[Mapping[str, Any], str]]:
    """Return what the user's own functions and classes in ``roots`` read by name, as ``(where, name)``: globals, and
    attributes of the classes. Names of modules, functions and classes are left out."""
    functions: list[FunctionType] = []
    names: dict[tuple[int, str], Mapping[str, Any]] = {}
    for each in objects(roots):
        if type(each) is FunctionType:
            functions.append(each)
        for kind in each.__mro__ if issubclass(type(each), type) else ():
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            if kind.__module__ == "builtins" or (file and is_of_library(file)):
                continue
            own = vars(kind)
            functions += [value for value in own.values() if type(value) is FunctionType]
            names |= {(id(own), name): own for name in own if not name.startswith("__")}
    for function in functions:
        if not is_of_library(function.__code__.co_filename):
            names |= {(id(function.__globals__), name): function.__globals__ for name in _globals_of(function.__code__)}
    return [(own, name) for (_, name), own in names.items() if name in own and not isinstance(own[name], CODE)]


@functools.cache
def _globals_of(code: CodeType) -> frozenset[str]:
    """Return the globals that ``code``, and the functions in it, read."""
    own = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(own.union(*map(_globals_of, inner)))
