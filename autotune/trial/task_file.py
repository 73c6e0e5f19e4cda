"""Recognise a task file by its syntax tree, without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import ContractError, UsageError

REQUIRED = {
    "build_model": "def build_model() -> torch.nn.Module:\n    return MyModel()",
    "build_dataset": "def build_dataset() -> torch.utils.data.Dataset:\n    return MyDataset()",
    "compute_loss": (
        "def compute_loss(model, batch):  # batch: what the DataLoader yields, already on the device\n"
        "    inputs, targets = batch\n"
        "    return torch.nn.functional.cross_entropy(model(inputs), targets)"
    ),
}
OPTIONAL = ("build_optimizer", "collate_fn", "count_items", "CURRENT")
PARAMETERS = {"build_model": 0, "build_dataset": 0, "compute_loss": 2, "build_optimizer": 1, "count_items": 1}


@dataclass(frozen=True)
class TaskFile:
    """A file that satisfies the contract as far as syntax shows."""

    path: Path
    defines: tuple[str, ...]

    @property
    def name(self) -> str:
        """The target's name: the file's stem."""
        return self.path.stem


def recognise(path: Path) -> TaskFile:
    """Check ``path`` against the task-file contract.

    Raises:
        UsageError: the file is missing, not a file, or not Python.
        ContractError: required functions are missing or take the wrong number of parameters; shows the lines to add.
    """
    tree = parse(path)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names = top_level_names(tree)
    missing = [name for name in REQUIRED if name not in names]
    if len(missing) == len(REQUIRED):
        raise ContractError(_not_a_task(path))
    if missing:
        lines = "\n\n".join(REQUIRED[name] for name in missing)
        raise ContractError(f"{path}: the task file lacks {_listed(missing)}. Add:\n\n{lines}\n")
    for name, count in PARAMETERS.items():
        if name in functions and not _accepts(functions[name], count):
            raise ContractError(
                f"{path}:{functions[name].lineno}: {name} must take {count} positional parameter(s). Write:\n\n"
                f"{REQUIRED.get(name, _optional_lines(name))}\n"
            )
    return TaskFile(path.resolve(), tuple(name for name in (*REQUIRED, *OPTIONAL) if name in names))


def parse(path: Path) -> ast.Module:
    """The syntax tree of the file ``path``.

    Raises:
        UsageError: it is missing, not a file, or not Python.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file. Give a training script, or a task file: `autotune init` writes one.")
    if not path.is_file():
        raise UsageError(f"{path}: not a file. Give a training script, or a task file such as model.py.")
    no_source = f"{path}: not a Python source file. Give a training script, or a task file such as model.py."
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        if error.lineno is None:
            raise UsageError(no_source) from error
        raise UsageError(f"{path}:{error.lineno}: not valid Python: {error.msg}") from error
    except ValueError as error:
        raise UsageError(no_source) from error


def top_level_names(tree: ast.Module) -> set[str]:
    """Names bound at the top level, also inside top-level ``if`` and ``try``, by any statement that binds."""
    names: set[str] = set()
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                pending += getattr(node, block, [])
            pending += [stmt for handler in getattr(node, "handlers", []) for stmt in handler.body]
    return names


def _accepts(function: ast.FunctionDef, count: int) -> bool:
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    keyword_only = sum(1 for default in arguments.kw_defaults if default is None)
    return required <= count and keyword_only == 0 and (positional >= count or arguments.vararg is not None)


def _optional_lines(name: str) -> str:
    if name == "build_optimizer":
        return "def build_optimizer(parameters):\n    return torch.optim.AdamW(parameters, lr=1e-3)"
    return "def count_items(batch) -> int:\n    return batch[0].numel()"


def _not_a_task(path: Path) -> str:
    lines = "\n\n".join(REQUIRED.values())
    return (
        f"{path}: neither a training script, for nothing happens in it, nor a task file, for it defines none of"
        f" {_listed(list(REQUIRED))}.\n"
        f"A task file needs these three functions (`autotune init` writes a commented file):\n\n{lines}\n"
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
