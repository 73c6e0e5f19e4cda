"""The import table of the design, held against the syntax tree of every file. Imports inside functions count too."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_METHODS = 15
WIDE = ("MpiGroup", "System")
"""Classes with more: PyTorch's interface of a process group, and the door to the operating system."""


@dataclass(frozen=True)
class Room:
    """One row: which modules, what they may import of this project and of other libraries, what never.

    Names are relative to ``autotune``. The first names of ``may`` are the room's own where it
    has parts. The standard library is allowed but for what ``never`` names. ``prints``: text may go out from here.
    """

    name: str
    modules: str
    may: str
    libraries: str = ""
    never: str = ""
    prints: bool = False


IMPURE = "os time random subprocess logging"
HOST = "host core launch profiles trial"
LOADER = "runtime.session runtime.choice runtime.slowness"
PROFILE = "profiles.format profiles.machine"
"""What a profile is, as data: the rooms above may hold one."""
"""They pick the profile that the rest of the runtime applies, and look at the machine where training is slow."""

# The first match wins: the more special rows come first.
# fmt: off
TABLE = (
    #    room             modules           may import                    libraries, never, prints
    Room("probes.bench",  "probes.bench*",  "probes.bench probes.system probes.fact_cache", "torch numpy", prints=True),
    Room("probes",        "probes*",        "probes",                     "psutil cpuinfo pynvml platformdirs",
         never="probes.bench"),
    Room("linux",         "linux",          ""),
    Room("core",          "core*",          "core probes.facts",          "numpy", IMPURE),
    Room("profiles, data", f"{PROFILE} profiles.records profiles.match",
         f"{PROFILE} profiles.records core probes.facts", "", IMPURE),
    Room("profiles",      "profiles*",      "profiles core",              "yaml platformdirs fsspec", "subprocess"),
    Room("search",        "search*",        "search core",                "optuna numpy", "subprocess"),
    Room("trial, child",  "trial.child*",   "trial core runtime script",  "torch numpy", "trial.parent", prints=True),
    Room("trial, parent", "trial.parent*",  "trial core",                 "cloudpickle", "trial.child"),
    Room("trial, both",   "trial*",         "trial core linux",           "psutil", "trial.parent trial.child"),
    Room("script",        "script*",        "script runtime core",        "torch numpy", "subprocess"),
    Room("runtime, load", LOADER,           "runtime core profiles probes", "torch", "subprocess"),
    Room("integrations",  "integrations*",  "integrations runtime",       "lightning pytorch_lightning transformers",
         "subprocess"),
    Room("runtime, entry", "runtime.entry*", "runtime core script",       "torch", "subprocess", prints=True),
    Room("runtime",       "runtime*",       "runtime core linux",         "torch numpy mpi4py", "subprocess"),
    Room("launch",        "launch*",        "launch core probes.facts",   "", "subprocess"),
    Room("store",         "store*",         "store core",
         "yaml pydantic filelock platformdirs fsspec minisign"),
    Room("inspect, verdict", "inspect.inspection inspect.verdict", "inspect.inspection core", "", IMPURE),
    Room("inspect, in a trial", "inspect.parts inspect.step_clock", "inspect trial core runtime", "torch",
         "trial.parent"),
    Room("report",        "report*",        "report inspect core probes.facts", "rich plotly", IMPURE),
    Room("export",        "export*",        "export core",                "",    IMPURE),
    # Where rooms meet, lowest first:
    Room("host",          "host*",          f"{HOST} probes", "", "logging trial.child"),
    Room("inspect",       "inspect*", f"inspect tuning.baseline {HOST} probes", "", "subprocess logging trial.child"),
    Room("cluster",       "cluster*",       f"cluster {HOST} probes", "", "subprocess logging trial.child"),
    Room("tuning, run",   "tuning.run",     f"tuning cluster search inspect {HOST} probes", "",
         "subprocess logging trial.child"),
    Room("tuning, from Python", "tuning.from_python", "tuning core trial profiles.format"),
    Room("tuning",        "tuning*",        f"tuning search core {PROFILE}", "", IMPURE),
    Room("commands",      "commands*",
         f"commands tuning cluster search report export {HOST} probes", "rich",
         "subprocess logging trial.child", prints=True),
    Room("cli",           "cli cli_profiles cli_streams cli_target",
         "cli_profiles cli_streams cli_target commands core inspect report tuning.options trial.script autotune",
         "typer click",
         prints=True),
    Room("front door",    "autotune",       "runtime.session tuning.from_python core.version"),
    Room("tune.py",       "tune",           "cli"),
)
# fmt: on
PARENT_SIDE = (
    "autotune core* search* store* report* export* launch* host* cluster* tuning* commands* trial.parent* trial"
    " inspect.diagnose inspect.doctor probes.inventory cli tune"
)


@dataclass(frozen=True)
class Import:
    """One imported module; ``eager`` where importing the file is enough to run it."""

    target: str
    line: int
    eager: bool


def source_files() -> dict[str, Path]:
    """``{module: file}`` of everything that ships."""
    files = [*ROOT.glob("autotune/**/*.py"), *ROOT.glob("tune.py")]
    linked = {f"autotune.{_module(path)}": path for path in sorted(ROOT.glob("probes/**/*.py"))}
    return {_module(path): path for path in sorted(files)} | linked


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = source_files()


@functools.cache
def tree(module: str) -> ast.Module:
    """The syntax tree of ``module``."""
    return ast.parse(FILES[module].read_text("utf-8"))


@functools.cache
def imports(module: str) -> tuple[Import, ...]:
    """Every import statement of ``module``, with names resolved to modules where they are some."""
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


def room(module: str) -> Room:
    """The first row that names ``module``."""
    for row in TABLE:
        if matches(row.modules, module):
            return row
    raise AssertionError(f"{module} belongs to no room: add a row to the table")


def full(names: str) -> list[str]:
    """The table's blank-separated names as real module names."""
    outside = ("tune", "autotune")
    return [name if name.partition(".")[0].rstrip("*") in outside else f"autotune.{name}" for name in names.split()]


def matches(patterns: str, module: str) -> bool:
    """True where ``module`` is one of ``patterns``; ``store*`` is the package with all its modules."""
    names = full(patterns)
    return module in names or any(f"{module}.".startswith(f"{name[:-1]}.") for name in names if name.endswith("*"))


def covers(names: str, target: str) -> bool:
    """True where one of ``names`` is ``target`` or a package above it. ``autotune`` stands for its ``__init__``."""
    return any(target == name or (name != "autotune" and target.startswith(f"{name}.")) for name in full(names))


def complaint(row: Room, target: str) -> str | None:
    """Why a file of ``row`` must not import ``target``."""
    top = target.partition(".")[0]
    if top in row.never.split() or covers(row.never, target):
        return f"{row.name} never imports {target}"
    if top in ("autotune", "tune"):
        return None if covers(row.may, target) else f"{row.name} may import only: {row.may or 'nothing'}"
    if top in sys.stdlib_module_names or top in row.libraries.split():
        return None
    return f"{row.name} may use only these libraries: {row.libraries or 'none'}"


@pytest.mark.parametrize("module", FILES)
def test_imports_follow_the_table(module: str) -> None:
    row = room(module)
    found = [(use, complaint(row, use.target)) for use in imports(module)]
    wrong = [f"{FILES[module]}:{use.line} imports {use.target}: {why}" for use, why in found if why]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("autotune.knobs.space", "torch"),
        ("autotune.knobs.space", "os.path"),
        ("autotune.knobs.space", "autotune.probes.inventory"),
        ("autotune.search.staged", "autotune.trial.parent.runner"),
        ("autotune.search.staged", "subprocess"),
        ("autotune.trial.parent.runner", "torch"),
        ("autotune.trial.parent.runner", "autotune.trial.child.rank"),
        ("autotune.trial.child.rank", "autotune.profiles.file"),
        ("autotune.trial.child.rank", "optuna"),
        ("autotune.runtime.loader", "autotune.profiles"),
        ("autotune.runtime.session", "autotune.cli"),
        ("autotune.launch.command", "autotune.search"),
        ("autotune.profiles.file", "torch"),
        ("autotune.report.final", "autotune.profiles.registry"),
        ("autotune.tuning.search", "autotune.trial.parent.runner"),
        ("autotune.tuning.schedule", "time"),
        ("autotune.tuning.host_runner", "autotune.tuning.state"),
        ("autotune.cli", "torch"),
        ("autotune.cli", "autotune.trial.child.rank"),
        ("autotune.probes.cpu", "autotune.core"),
        ("autotune.probes.cpu", "autotune.probes.bench"),
        ("autotune.probes.system", "torch"),
        ("autotune", "torch"),
    ],
)
def test_the_table_forbids(module: str, target: str) -> None:
    assert complaint(room(module), target)


def test_the_parent_never_loads_torch() -> None:
    """Follows imports that run when a module is loaded, from every module of the parent process."""
    start = [name for name in FILES if matches(PARENT_SIDE, name) and not matches("trial.child*", name)]
    came_from = dict.fromkeys(start, "")
    queue = list(start)
    while queue:
        module = queue.pop()
        for use in imports(module):
            if not use.eager or use.target in came_from:
                continue
            came_from[use.target] = module
            if use.target in FILES:
                queue.append(use.target)
    guilty = [name for name in came_from if name.partition(".")[0] == "torch"]
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


@pytest.mark.parametrize("module", FILES)
def test_only_rooms_with_a_mouth_print(module: str) -> None:
    if room(module).prints:
        return
    calls = [node for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]
    lines = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert not lines, f"{FILES[module]} prints in lines {lines}"


@pytest.mark.parametrize("module", FILES)
def test_files_and_functions_stay_small(module: str) -> None:
    text = FILES[module].read_text("utf-8")
    assert len(text.splitlines()) <= MAX_FILE_LINES, f"{FILES[module]} is too long"
    for node in ast.walk(tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{FILES[module]}:{node.lineno} {node.name} has {length} lines"


@pytest.mark.parametrize("module", FILES)
def test_classes_stay_small(module: str) -> None:
    classes = [node for node in ast.walk(tree(module)) if isinstance(node, ast.ClassDef) and node.name not in WIDE]
    counts = {node.name: sum(isinstance(part, ast.FunctionDef) for part in node.body) for node in classes}
    assert not [name for name, count in counts.items() if count > MAX_METHODS]


def test_there_is_no_kitchen_drawer() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc"}
    assert not [module for module in FILES if module.rpartition(".")[2] in drawers]


def test_the_probes_have_one_name() -> None:
    """They lie at the top of the project and are imported as ``autotune.probes``, by a link (docs/decisions/014)."""
    assert (ROOT / "autotune" / "probes").readlink() == Path("../probes")
    assert not [
        (module, use) for module in FILES for use in imports(module) if use.target.partition(".")[0] == "probes"
    ]
