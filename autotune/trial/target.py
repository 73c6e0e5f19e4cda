"""The target: a task file, or an unmodified training script. Both are recognised without running them."""

from __future__ import annotations

import ast
import os
import shlex
import symtable
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import decode_source
from pathlib import Path

from autotune import project
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
OPTIONAL = {
    "build_optimizer": "def build_optimizer(parameters):\n    return torch.optim.AdamW(parameters, lr=1e-3)",
    "collate_fn": "collate_fn = None",
    "count_items": "def count_items(batch) -> int:  # such as tokens; else samples\n    return batch[0].numel()",
    "CURRENT": "CURRENT = dict(batch_size=64, num_workers=0)",
}
"""The names of a task file, with lines that define them. A function must take as many parameters as there."""
FUNCTIONS = tuple(name for name in (*REQUIRED, *OPTIONAL) if name != "CURRENT")
PACKAGE = Path(__file__).resolve().parents[1]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
OUR_ONE = "01"
"""Trials start with one thread, whatever the user has set: what is another number then was set by the script."""
USERS_THREADS = "AUTOTUNE_USERS_THREADS"
"""In trials: the user's own `THREAD_VARIABLES`, as ``NAME=VALUE NAME=VALUE``."""


def stated_threads(environment: Mapping[str, str]) -> dict[str, int]:
    """Return the `THREAD_VARIABLES` of a trial's ``environment`` as the user's run has them, if they are numbers."""
    users = dict(each.split("=", 1) for each in environment.get(USERS_THREADS, "").split())
    scripts = {name: environment.get(name, OUR_ONE) for name in THREAD_VARIABLES}
    stated = users | {name: value for name, value in scripts.items() if value != OUR_ONE}
    return {name: int(value) for name, value in stated.items() if value.isdigit() and int(value) > 0}


TASK_NAME = "{}: the name of a task file ends with .py"
STARTED = "Give a script, or a line of python, torchrun, accelerate launch or mpiexec that starts one"

NEW_TASK = '''"""Task file for autotune: what to train, so that `autotune tune` can measure it."""

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

# What you run today: the baseline that every gain is measured against. batch_size is the global batch.
CURRENT = dict(batch_size=64, num_workers=0)


def build_model() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10))


def build_dataset() -> Dataset:
    """Return your real dataset: loading and augmentation are part of what is tuned."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4096, 32, generator=generator)
    return TensorDataset(inputs, inputs.argmax(dim=1) % 10)


def compute_loss(model, batch):
    """batch: what the DataLoader yields, already on the device."""
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


# Optional:
''' + "".join(f"#\n{textwrap.indent(lines, '# ')}\n" for name, lines in OPTIONAL.items() if name != "CURRENT")
"""A commented task file to start from: what ``autotune init`` writes."""


@dataclass(frozen=True)
class TaskFile:
    """A file that satisfies the contract as far as syntax shows."""

    loading = "loading the task"
    path: Path

    @property
    def name(self) -> str:
        """Return the target's name: the file's in its project."""
        return project.name_of(self.path)


def recognise(path: Path) -> TaskFile:
    """Check ``path`` against the task-file contract.

    Raises:
        UsageError: the file is missing, not a file, or not Python.
        ContractError: required functions are missing or take the wrong number of parameters; shows the lines to add.
    """
    if path.suffix != ".py":
        raise UsageError(TASK_NAME.format(path))
    tree, names = parse(path)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = [name for name in REQUIRED if name not in names]
    if len(missing) == len(REQUIRED):
        raise ContractError(_not_a_task(path))
    if missing:
        lines = "\n\n".join(REQUIRED[name] for name in missing)
        raise ContractError(f"{path}: the task file lacks {_listed(missing)}. Add:\n\n{lines}\n")
    for name, lines in (REQUIRED | OPTIONAL).items():
        model = ast.parse(lines).body[0]
        if name in functions and isinstance(model, ast.FunctionDef):
            count = len(model.args.args)
            if not _accepts(functions[name], count):
                where = f"{path}:{functions[name].lineno}"
                raise ContractError(f"{where}: {name} must take {count} positional parameter(s). Write:\n\n{lines}\n")
    from autotune.knobs.stated import check_current, written_current  # here: `autotune run` does without

    try:
        check_current(written_current(tree))
    except UsageError as error:
        raise type(error)(f"{path}: {error}") from None
    return TaskFile(path.resolve())


def write_task(path: Path) -> None:
    """Write the file to ``path``; never overwrite one.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    if path.suffix != ".py":
        raise UsageError(TASK_NAME.format(path))
    try:
        with path.open("x") as file:
            try:
                file.write(NEW_TASK)
                file.flush()
            except BaseException:  # a full disk, an interrupt
                path.unlink()
                raise
    except FileExistsError:
        raise UsageError(f"{path} exists already; name another file: autotune init my_model.py") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def parse(path: Path) -> tuple[ast.Module, set[str]]:
    """Return the syntax tree of the file ``path`` and the names that it binds at its top level, by any statement.

    Raises:
        UsageError: it is missing, not a file, or not Python.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file. Give a training script, or a task file: `autotune init` writes one.")
    if not path.is_file():
        raise UsageError(f"{path}: not a file. Give a training script, or a task file such as model.py.")
    _check_suffix(path)
    try:
        source = path.read_bytes()
        tree = ast.parse(source, filename=str(path))
        symbols = symtable.symtable(decode_source(source), str(path), "exec").get_symbols()
        return tree, {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    except (SyntaxError, ValueError) as error:
        where = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{path}{where}: not valid Python: {getattr(error, 'msg', error)}") from error


def _accepts(function: ast.FunctionDef, count: int) -> bool:
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args)
    required = positional - len(arguments.defaults)
    keyword_only = sum(1 for default in arguments.kw_defaults if default is None)
    return required <= count and keyword_only == 0 and (positional >= count or arguments.vararg is not None)


def _not_a_task(path: Path) -> str:
    lines = "\n\n".join(REQUIRED.values())
    return (
        f"{path}: neither a training script, for it only imports and defines, nor a task file, for it defines none of"
        f" {_listed(list(REQUIRED))}.\n"
        f"A task file needs these three functions (`autotune init` writes a commented file):\n\n{lines}\n"
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True)
class Script:
    """A script and how it is started.

    Attributes:
        path: the file.
        arguments: its own, as they were written.
        written: the path as it was written, which the script sees in ``sys.argv[0]``.
        module: the module's name if it is started with ``-m``.
        network: whether its trials may reach other machines.
        ranked: whether it finds the variables that torchrun sets, also as one process.
        line: the user's own launch line, as it was written; empty if Python starts the script.
        launcher: ``torchrun``, ``accelerate`` or ``mpiexec``, that the line begins with; None if Python starts it.
        processes: that the line starts.
        threads: that the line gives each process unless the user's environment says otherwise; None for PyTorch's own.
        variables: that the launcher sets for all processes.
        machines: that the line starts processes on: this one is one of them.
        options: of torchrun, as written, but for the number of processes.
    """

    loading = "running the script until it trains"
    path: Path
    arguments: tuple[str, ...] = ()
    written: str = ""
    module: str | None = None
    network: bool = False
    ranked: bool = False
    line: tuple[str, ...] = ()
    launcher: str | None = None
    processes: int = 1
    threads: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    machines: int = 1
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the target's name: the file's in its project, or the package's for a ``__main__.py``."""
        return project.name_of(self.path)

    @property
    def words(self) -> tuple[str, ...]:
        """Return what follows ``python`` to start it: the file, or ``-m`` and the module, then its arguments."""
        file = f"./{self.written}" if self.written.startswith("-") else self.written  # no option of Python's
        return (*(("-m", self.module) if self.module else (file,)), *self.arguments)

    @property
    def hides_us(self) -> str | None:
        """Return why this package cannot be imported into the script's process; None if it can."""
        folder = Path.cwd() if self.module else self.path.parent
        for own in (folder / "autotune.py", folder / "autotune" / "__init__.py"):
            if own.is_file() and own.resolve() != PACKAGE / "__init__.py":
                return f"{own} is the script's own module of this package's name"
        return None


Target = TaskFile | Script


def recognise_target(
    written: str, arguments: Sequence[str] = (), *, module: bool = False, network: bool = False
) -> Target:
    """Return the task file or script that ``written`` names. It is recognised by its syntax tree; nothing is run.

    Args:
        written: a path, or a module's name.
        arguments: the script's own.
        module: ``written`` is started with ``-m``.
        network: trials of a script may reach other machines.

    Raises:
        UsageError: there is no such file, it is no Python, or a task file was given arguments.
        ContractError: a task file lacks something.
    """
    if module or is_script(Path(written)):
        script = replace(started_script(written, arguments, module=module), network=network)
        if script.hides_us:
            raise UsageError(f"{script.hides_us}, which trials would hide: give it another name to tune the script")
        return script
    if arguments:
        raise UsageError(f"{written} is a task file, which takes no arguments: {' '.join(arguments)}")
    return recognise(Path(written))


def started_script(written: str, arguments: Sequence[str], *, module: bool = False) -> Script:
    """Return the script that ``written`` names, whatever is in it.

    Raises:
        UsageError: there is no such file or module.
    """
    if module:
        return Script(_module_file(written), tuple(arguments), written, written)
    if not Path(written).exists():
        raise UsageError(f"{written}: no such script. {STARTED}")
    _check_suffix(Path(written))
    if not os.access(written, os.R_OK):
        raise UsageError(f"{written}: cannot be read (Permission denied)")
    if Path(written).is_dir() and not Path(written, "__main__.py").is_file():
        raise UsageError(f"{written}: is a folder without a __main__.py. Name the script in it")
    return Script(Path(written).resolve(), tuple(arguments), written)


def _check_suffix(path: Path) -> None:
    """Raise `UsageError` for a notebook or a profile."""
    kinds = {".ipynb": "a notebook: jupyter nbconvert --to script", ".yaml": "a profile: autotune run --profile"}
    if path.suffix in kinds:
        raise UsageError(f"{path}: is {kinds[path.suffix]} {shlex.quote(str(path))}")


def is_script(path: Path) -> bool:
    """Return True if ``path`` does something when it is run, and is no task file.

    Raises:
        UsageError: there is no such file, or it is no Python.
    """
    tree, names = parse(path)
    defined = names & set(REQUIRED)
    if not defined and tree.body and all(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body):
        return True  # what it imports may train
    if len(defined) == len(REQUIRED):
        return any(map(_goes_back, tree.body))  # a script may import them from its task file
    # A task file may keep a result, too: ``DATA = read()``. In a script it may be that of the training.
    calls = (ast.Expr,) if defined else (ast.Expr, ast.Assign)
    return any(_may_train(node, calls) for node in tree.body)


def _goes_back(node: ast.stmt) -> bool:
    """Return True if a loop or block at the top level names a method ``backward``: it trains."""
    inside = ast.walk(node) if isinstance(node, ast.For | ast.While | ast.With) else ()
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in inside)


def _may_train(node: ast.stmt, calls: tuple[type[ast.stmt], ...]) -> bool:
    """Return True for a loop, a call in a statement of one of the kinds ``calls``, or a block with such."""
    if isinstance(node, ast.If | ast.Try):
        return any(_may_train(inner, calls) for inner in node.body)
    if isinstance(node, calls):
        return isinstance(getattr(node, "value", None), ast.Call)
    return isinstance(node, ast.For | ast.While | ast.With | ast.Raise)


def _module_file(name: str) -> Path:
    """Return the file of module ``name``, found without importing anything. Raise `UsageError` if there is none."""
    if "/" in name or name.endswith(".py"):
        raise UsageError(f"-m {name}: is no module's name, such as package.train. Leave out -m to start a file")
    parts = name.split(".")
    for folder in (Path.cwd(), *map(Path, filter(None, sys.path))):
        for candidate in (folder.joinpath(*parts, "__main__.py"), folder.joinpath(*parts).with_suffix(".py")):
            if candidate.is_file():
                return candidate.resolve()
        if folder.joinpath(*parts, "__init__.py").is_file():
            raise UsageError(f"-m {name}: is a package without a __main__.py. Name the module in it")
    raise UsageError(f"-m {name}: no such module below {Path.cwd()} or on the module path")
