"""Private names of PyTorch that the product uses: all are listed here, and PyTorch has each of them.

The versions that have them are those on which the tests were run: docs/reliability.md (2.6 to 2.15).
"""

import ast
import importlib
import multiprocessing.process
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

ROOT = Path(__file__).resolve().parents[2]
STANDARD = {"_getframe", "_current_frames", "_exit", "_Environ", "_run_module_as_main"}
"""Python's own: documented, or what ``python -m`` calls."""

MODULES = (
    "torch.utils._pytree",
    "torch._C",
    "torch._C._distributed_c10d",
    "torch._dynamo",
    "torch._dynamo.config",
    "torch._dynamo.exc",
    "torch._dynamo.utils",
    "torch._inductor.codecache",
    "torch.utils.data._utils",
)
NAMES = {
    "torch._C": "_is_tracing",
    "torch.cuda": "_lazy_init _is_in_bad_fork",
    "torch._C._distributed_c10d": "_create_work_from_future",
    "torch.distributed.distributed_c10d": "_get_default_store",
    "torch.nn.modules.batchnorm": "_BatchNorm _NormBase",
    "torch.nn.modules.dropout": "_DropoutNd",
    "torch.nn.modules.module": "_has_any_global_hook",
    "torch.utils.data.dataloader": "_DatasetKind _MultiProcessingDataLoaderIter _SingleProcessDataLoaderIter",
    "torch.utils.data._utils.signal_handling": "_set_worker_pids _remove_worker_pids",
    "torch.utils.data._utils.fetch": "_MapDatasetFetcher _IterableDatasetFetcher",
}
ATTRIBUTES: dict[str, Any] = {
    "_call_impl _modules _compiled_call_impl": lambda: nn.Linear(1, 1),
    "_conv_forward": lambda: nn.Conv2d(1, 1, 1),
    "_orig_mod": lambda: torch.compile(nn.Linear(1, 1)),
    "_optimizer_step_pre_hooks _optimizer_step_post_hooks _need_device_dtype_check_for_fused": lambda: torch.optim.SGD(
        nn.Linear(1, 1).parameters(), 0.1, fused=True
    ),
    "_backward_hooks _post_accumulate_grad_hooks _version": lambda: torch.ones(1, requires_grad=True),
    "_iterator _get_iterator _index_sampler _DataLoader__multiprocessing_context": lambda: DataLoader([1]),
    "_sampler_iter _prefetch_factor _num_workers _reset _try_put_index _next_data": lambda: workers(),
    "_pin_memory _pin_memory_device _workers _next_index _send_idx _rcvd_idx _try_get_data": lambda: workers(),
    "_shutdown_workers _dataset": lambda: workers(),
    "_index_queues": lambda: workers(),
    "_start_thread": multiprocessing.Queue,
    "_children": lambda: multiprocessing.process,
}
"""Of objects, which these functions make."""


def workers() -> object:
    return iter(DataLoader([1], num_workers=1))


def listed() -> set[str]:
    names = [part for module in MODULES for part in module.split(".") if part.startswith("_")]
    return {*names, *" ".join([*NAMES.values(), *ATTRIBUTES]).split(), *STANDARD}


def private(text: object) -> bool:
    return isinstance(text, str) and text.startswith("_") and not text.startswith("__") and text.isidentifier()


def used(path: Path) -> set[str]:
    """The private names in one file that this file does not define itself."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("autotune"):
            found |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("torch._"):
            found |= set(str(node.value).split("."))
    return {name for name in found - own if private(name)}


def test_all_that_is_used_is_listed() -> None:
    files = sorted(ROOT.glob("autotune/**/*.py"))
    missing = {str(path.relative_to(ROOT)): sorted(used(path) - listed()) for path in files}
    assert {path: names for path, names in missing.items() if names} == {}


@pytest.mark.parametrize("module", [*MODULES, *NAMES])
def test_pytorch_has_the_module_and_its_names(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in NAMES.get(module, "").split() if not hasattr(found, name)] == []


@pytest.mark.parametrize("names", ATTRIBUTES)
def test_pytorchs_objects_have_the_attributes(names: str) -> None:
    made = ATTRIBUTES[names]()
    assert [name for name in names.split() if not hasattr(made, name)] == []
