"""The house, held against the syntax tree of every file: imports point down. Imports inside functions count too."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES, MOST_FILES, MOST_TEST_LINES, MOST_BENCHMARK_LINES = 27_035, 160, 26_660, 6_000
MOST_FUNCTION_LINES = 50
"""Of a function, with its docstring."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Layer:
    """One layer of the project: it may import itself and the layers below it.

    Names are relative to ``autotune``; that of a folder stands for all files in it. ``libraries`` are those beside
    the standard one; ``never`` is what the layers below would allow. ``prints``: text may go out from here.
    """

    modules: str
    libraries: str = ""
    never: str = ""
    prints: bool = False


IMPURE = "os time random subprocess logging"

# Lowest first: one row a folder; files of no folder are in the first and in the last two.
# fmt: off
LAYERS = (
    Layer("linux errors durations version environment decoding project", "tomli"),
    Layer("devices",  "torch",                                  never="linux"),
    Layer("probes",   "psutil pynvml platformdirs torch numpy", never="linux errors durations", prints=True),
    Layer("knobs",    "torch threadpoolctl",                             never="subprocess logging"),
    Layer("stats",    "",                                       never=f"{IMPURE} probes"),
    Layer("profiles", "yaml platformdirs fsspec",               never="subprocess torch"),
    Layer("runtime",  "torch numpy mpi4py",                     never="subprocess", prints=True),
    Layer("scripts",  "torch numpy",                            never="subprocess profiles", prints=True),
    Layer("trial",    "torch numpy psutil threadpoolctl",       never="profiles", prints=True),
    Layer("search",   "optuna numpy",                           never="subprocess time trial runtime scripts"),
    Layer("launch",   "yaml",                                   never="torch"),
    Layer("tuning",   "filelock",                               never="torch subprocess logging"),
    Layer("inspect",  "torch",                                  never="subprocess logging"),
    Layer("report",   "rich",                                   never="os subprocess logging torch", prints=True),
    Layer("export cli_parsing cli_profiles cli __main__", "typer click rich", never="torch", prints=True),
    Layer("autotune tune", "torch"),
)
# fmt: on
HEAVY = "torch optuna rich fsspec"
"""What no module of the parent process loads when it is imported."""


@dataclass(frozen=True)
class Import:
    """One imported module; ``eager`` if importing the file is enough to run it."""

    target: str
    line: int
    eager: bool


def source_files() -> dict[str, Path]:
    """Return ``{module: file}`` of everything that ships."""
    files = [*ROOT.glob("autotune/**/*.py"), *ROOT.glob("tune.py")]
    return {_module(path): path for path in sorted(files)}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = source_files()


@functools.cache
def tree(module: str) -> ast.Module:
    """Return the syntax tree of ``module``."""
    return ast.parse(FILES[module].read_text("utf-8"))


@functools.cache
def imports(module: str) -> tuple[Import, ...]:
    """Return every import statement of ``module``, with names resolved to modules if they are some."""
    return tuple(_walk(module, tree(module), True))


def _walk(module: str, node: ast.AST, eager: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, eager) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(module, child)
            yield from (Import(_resolve(base, alias.name), child.lineno, eager) for alias in child.names)
        deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _for_types_only(child)
        yield from _walk(module, child, eager and not deferred)


def _absolute(module: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _resolve(base: str, name: str) -> str:
    return f"{base}.{name}" if f"{base}.{name}" in FILES else base


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def short(module: str) -> str:
    """Return ``module`` as the table names it."""
    return module.removeprefix("autotune.")


@functools.cache
def layer(module: str) -> int:
    """Return the number of the row that names the folder of ``module``, or the module itself."""
    folder = short(module).partition(".")[0]
    fitting = [number for number, row in enumerate(LAYERS) if folder in row.modules.split()]
    assert fitting, f"{module} belongs to no layer: add a row to the table"
    return fitting[0]


def complaint(module: str, target: str) -> str | None:
    """Return why ``module`` must not import ``target``; None if it may."""
    row, top = LAYERS[layer(module)], target.partition(".")[0]
    if top not in ("autotune", "tune"):
        allowed = top in sys.stdlib_module_names or top in row.libraries.split()
        return None if allowed and top not in row.never.split() else f"never imports {top}"
    if short(target).partition(".")[0] in row.never.split():
        return f"never imports {target}"
    return None if target not in FILES or layer(target) <= layer(module) else f"{target} lies above it"


def test_imports_point_down() -> None:
    found = [(module, use, complaint(module, use.target)) for module in FILES for use in imports(module)]
    wrong = [f"{FILES[module]}:{use.line} imports {use.target}: {why}" for module, use, why in found if why]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("autotune.stats.proof", "torch"),
        ("autotune.stats.proof", "autotune.search.history"),
        ("autotune.search.planner", "autotune.trial.messages"),
        ("autotune.knobs.space", "autotune.profiles.format"),
        ("autotune.runtime.loaders", "autotune.tuning.run"),
        ("autotune.report.result", "autotune.cli"),
        ("autotune.cli", "torch"),
        ("autotune.probes.cpu", "autotune.knobs.settings"),
    ],
)
def test_the_table_forbids(module: str, target: str) -> None:
    assert complaint(module, target)


def test_the_parent_loads_nothing_heavy() -> None:
    """Follows imports that run when a module is loaded, from every command on."""
    came_from = dict.fromkeys(("autotune.cli", "autotune.tuning.run", "autotune.inspect.diagnose", "tune"), "")
    queue = list(came_from)
    while queue:
        module = queue.pop()
        for use in imports(module):
            if use.eager and use.target not in came_from:
                came_from[use.target] = module
                queue += [use.target] if use.target in FILES else []
    guilty = [name for name in came_from if name.partition(".")[0] in HEAVY.split()]
    assert not guilty, [f"{name} by {came_from[name]}" for name in guilty]


def test_there_are_no_import_circles() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for use in imports(module):
                if use.target in FILES and use.target != module:
                    visit(use.target, (*path, module))
            done.add(module)

    for module in FILES:
        visit(module, ())


def test_only_rooms_with_a_mouth_print() -> None:
    for module in FILES:
        calls = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]
        lines = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
        assert not lines or LAYERS[layer(module)].prints, f"{FILES[module]} prints in lines {lines}"


def test_functions_stay_small() -> None:
    functions = [(module, node) for module in FILES for node in ast.walk(tree(module)) if isinstance(node, FUNCTIONS)]
    long = [(module, node) for module, node in functions if (node.end_lineno or 0) - node.lineno >= MOST_FUNCTION_LINES]
    assert [f"{FILES[module]}:{node.lineno} {node.name}" for module, node in long] == []


def test_the_house_can_be_held_in_the_head() -> None:
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in FILES.values())
    tests, benchmarks = (
        sum(len(path.read_text("utf-8").splitlines()) for path in ROOT.glob(f"{folder}/**/*.py"))
        for folder in ("tests", "benchmarks")
    )
    most = (MOST_LINES, MOST_FILES, MOST_TEST_LINES, MOST_BENCHMARK_LINES)
    found = (lines, len(FILES), tests, benchmarks)
    assert all(each <= limit for each, limit in zip(found, most, strict=True)), (
        f"{lines} product lines in {len(FILES)} files, {tests} lines of tests, {benchmarks} of benchmarks"
    )


def test_there_is_no_kitchen_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc"}
    assert not [module for module in FILES if module.rpartition(".")[2] in drawers]


def test_the_link_at_the_top_is_for_people() -> None:
    """A checkout without links works: nothing imports ``probes``."""
    every = [*FILES.values(), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("docs/*.py")]
    nodes = [(path, node) for path in every for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    named = [(path, node.module or "") for path, node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    named += [(path, alias.name) for path, node in nodes if isinstance(node, ast.Import) for alias in node.names]
    assert not [path for path, name in named if name.partition(".")[0] == "probes"]
