"""The user's own launch line: which script it starts, as how many processes, and what the launcher gives each.

``torchrun --standalone --nproc-per-node=2 train.py ARGS``, ``accelerate launch train.py``, ``mpiexec -n 2 python
train.py``, ``python -m package.module``. An option that is not known here may change the training, so it is refused.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.errors import UsageError, did_you_mean
from autotune.trial.target import Script, Target, recognise_target, started_script

PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
MODULES = {"torch.distributed.run": ("torchrun",), "accelerate.commands.launch": ("accelerate", "launch")}
"""Launchers that are started with ``python -m``."""

PREFIXES, ASSIGNED = ("env", "uv"), re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
"""What may stand before the launcher."""
MPI_OPTIONS = ("--oversubscribe --allow-run-as-root", "-n -np --np")
OPTIONS = {
    "python": ("-u -B -m", ""),
    "torchrun": (
        "--standalone -m --module",
        "--nproc-per-node --nnodes --node-rank --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts"
        " --monitor-interval --start-method --role --log-dir -r --redirects -t --tee --master-addr --master-port"
        " --local-addr",
    ),
    "accelerate launch": (
        "--cpu --multi-gpu -m --module -q --quiet",
        "--num-processes --num-machines --machine-rank --mixed-precision --num-cpu-threads-per-process"
        " --main-process-ip --main-process-port --config-file",
    ),
    "mpiexec": MPI_OPTIONS,
    "mpirun": MPI_OPTIONS,
}
"""The options of each launcher: flags, and those that take a value."""
LOCAL = ("NO", "MULTI_CPU", "MULTI_GPU")
"""Accelerate's kinds of training that its options describe in full."""


def is_launcher(word: str) -> bool:
    """Return True if ``word`` is a launcher's name, or a path to it."""
    name = os.path.basename(word)
    return name in LAUNCHERS or PYTHON.fullmatch(name) is not None or _without_prefix([word, "x"])[1] != [word, "x"]


def _without_prefix(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables of ``env A=b`` or ``A=b`` in front of a line, and the line, also without ``uv run``."""
    variables, rest = dict[str, str](), list(words)
    while rest and (rest[0] in PREFIXES or (ASSIGNED.fullmatch(rest[0]) and not os.path.exists(rest[0]))):
        name, equals, value = rest.pop(0).partition("=")
        variables |= {name: value} if equals else {}
        rest = rest[name == "uv" and rest[:1] == ["run"] :]
        if name in PREFIXES and rest and rest[0].startswith("-"):
            advice = "what prepares the environment comes before autotune: uv run --with x autotune ..."
            raise UsageError(f"{name} ... {rest[0]}: {advice}")
    return variables, rest


def parse(words: Sequence[str]) -> Script | None:
    """Return the script that ``words`` start, whether it is there or not; None if they begin with no launcher.
    Raise `UsageError` if an option is not known, a value is missing or wrong, or there is no script."""
    if not words or not is_launcher(words[0]):
        return None
    _variables, rest = _without_prefix(words)
    if not rest:
        raise UsageError(f"{' '.join(words)}: starts no script")
    name = os.path.basename(rest[0])
    return LAUNCHERS.get(name, _python)(name, rest[1:]) if is_launcher(name) else _written(rest, module=False)


def target(written: str, arguments: Sequence[str], *, module: bool = False, network: bool = False) -> Target:
    """Return the task file or script that a command's words name; see `autotune.trial.target.recognise_target`."""
    line = _line(written, arguments, module)
    if line.machines > 1:
        raise UsageError(f"torchrun --nnodes={line.machines}: a training is tuned on one machine")
    found = recognise_target(line.written, line.arguments, module=line.module is not None, network=network)
    if isinstance(found, Script):
        return replace(line, path=found.path, network=found.network)
    if line.launcher is not None:
        raise UsageError(f"{line.written} is a task file: give it without a launcher, autotune tune {line.written}")
    return found


def script(written: str, arguments: Sequence[str], *, module: bool = False) -> Script:
    """Return the script that a command's words start, whatever is in it."""
    line = _line(written, arguments, module)
    return replace(line, path=started_script(line.written, line.arguments, module=line.module is not None).path)


def _line(written: str, arguments: Sequence[str], module: bool) -> Script:
    """Return the script as it was written, with its launcher and the whole line if it has one."""
    words = (written, *arguments)
    first = written.partition(" ")[0]
    if first != written and not os.path.exists(written) and (is_launcher(first) or os.path.isfile(first)):
        raise UsageError(f"{written!r} is one word, and no file: give the line without quotes around it")
    if "://" in written or (written.endswith("/") and os.path.isfile(written[:-1])):
        raise UsageError(f"{written}: {'ends with /' if written.endswith('/') else 'is a URL'}. Name the script's file")
    variables, rest = ({}, words) if module else _without_prefix(words)
    os.environ.update(variables)  # as a shell does: all that is started has them
    folder, name = os.path.split(rest[0]) if rest else ("", "")
    python = PYTHON.fullmatch(name)
    elsewhere = folder and os.path.realpath(folder) != os.path.realpath(os.path.dirname(sys.executable))
    if python and (elsewhere or python[1] not in (None, "3", f"3.{sys.version_info.minor}")):
        advice = "There is no such file" if folder and not os.path.exists(rest[0]) else "Install it there, too"
        raise UsageError(f"{rest[0]}: what starts is autotune's own Python, {sys.executable}. {advice}")
    found = (None if module else parse(words)) or _written(words, module)
    found = replace(found, variables={**variables, **found.variables})
    if found.launcher is None:
        return found
    ranked = found.launcher == "torchrun" or (found.launcher == "accelerate" and found.processes > 1)
    return replace(found, line=words, ranked=ranked)


def _written(words: Sequence[str], module: bool) -> Script:
    """Return the script or module that ``words`` begin with; its arguments follow."""
    return Script(Path(words[0]), tuple(words[1:]), words[0], words[0] if module else None)


def _python(_name: str, words: Sequence[str]) -> Script:
    options, rest = _options("python", words)
    module = "-m" in options
    if module and rest[0] == "torch.distributed.launch":
        raise UsageError(f"python -m {rest[0]} is PyTorch's former launcher: give its torchrun line")
    if module and rest[0] in MODULES:
        name, *first = MODULES[rest[0]]
        return LAUNCHERS[name](name, [*first, *rest[1:]])
    return _written(rest, module)


def _torchrun(name: str, words: Sequence[str]) -> Script:
    options, rest = _options(name, words)
    processes = _count("torchrun --nproc-per-node", options.get("--nproc-per-node", "1"))
    machines = options.get("--nnodes", "1")
    ours = ("--nproc-per-node", "-m", "--module")
    kept = (each for each in options.items() if each[0] not in ours)
    return replace(
        _written(rest, "-m" in options or "--module" in options),
        launcher="torchrun",
        processes=processes,
        threads=1 if processes > 1 else None,
        machines=_count("torchrun --nnodes", "1" if machines == "1:1" else machines),
        options=tuple(word for option in kept for word in option if word),
    )


def _mpiexec(name: str, words: Sequence[str]) -> Script:
    options, rest = _options(name, words)
    if not PYTHON.fullmatch(os.path.basename(rest[0])):
        raise UsageError(f"{name} starts {rest[0]} here: give a line that starts Python, {name} -n 2 python train.py")
    numbers = [_count(f"{name} -n", str(options[each])) for each in ("-n", "-np", "--np") if each in options]
    if not numbers:
        raise UsageError(f"{name}: say how many processes, {name} -n 2 python train.py")
    return replace(_python("python", rest[1:]), launcher="mpiexec", processes=numbers[-1])


def _accelerate(name: str, words: Sequence[str]) -> Script:
    """Read the line as Accelerate does: without ``--multi-gpu`` it starts one process."""
    if list(words[:1]) != ["launch"]:
        line = " ".join((name, *words[:1]))
        raise UsageError(f"{line}: of Accelerate's commands, only accelerate launch starts a training")
    options, rest = _options("accelerate launch", words[1:])
    said = _config(options.get("--config-file"), needed="--cpu" not in options)
    if options.get("--num-machines", said.get("num_machines", "1")) != "1":
        raise UsageError("accelerate launch --num_machines: autotune takes the launch line of one machine")
    cpu = "--cpu" in options or said.get("use_cpu") == "true"
    many = not cpu and ("--multi-gpu" in options or said.get("distributed_type") == "MULTI_GPU")
    number = options.get("--num-processes", said.get("num_processes", "1"))
    threads = options.get("--num-cpu-threads-per-process", None if cpu else "1")
    return replace(
        _written(rest, "-m" in options or "--module" in options),
        launcher="accelerate",
        processes=_count("accelerate launch --num_processes", number) if many else 1,
        threads=None if threads is None else _count("accelerate launch --num_cpu_threads_per_process", threads),
        variables={
            "ACCELERATE_USE_CPU": str(cpu),
            "ACCELERATE_MIXED_PRECISION": options.get("--mixed-precision", said.get("mixed_precision", "no")),
        },
    )


def _config(named: str | None, *, needed: bool) -> dict[str, str]:
    """Return the plain lines of Accelerate's configuration: of the file that is ``named``, else of its default one."""
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    path = Path(named or Path(home) / "accelerate" / "default_config.yaml")
    if named is None and not (needed and path.is_file()):
        return {}
    import yaml

    try:
        said = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(said, dict):
        raise UsageError(f"{path}: cannot be read: it holds no keys")
    kind = said.get("distributed_type", "NO")
    nested = [key for key, value in said.items() if isinstance(value, dict) and value]
    if kind not in LOCAL or nested:
        raise UsageError(f"{path}: autotune does not know how to start {', '.join(nested) or kind}")
    return {key: str(value) for key, value in said.items()}


def _options(name: str, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options of launcher ``name`` by their names in `OPTIONS`, and the words from the script on."""
    found: dict[str, str] = {}
    flags, values = (options.split() for options in OPTIONS[name])
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        option, equals, value = word.partition("=")
        option = "--" + option[2:].replace("_", "-") if option.startswith("--") else option
        if option not in (*flags, *values):
            hint = did_you_mean(option, (*flags, *values))
            why = "autotune does not know this option, which may change the training"
            raise UsageError(f"{name} {word}: {why}{hint}. Leave it out, or give the script alone")
        if option in flags and equals:
            raise UsageError(f"{name} {word}: the option takes no value")
        if option in values and not equals:
            if not rest:
                raise UsageError(f"{name} {word}: a value must follow")
            value = rest.pop(0)
        found[option] = value
        if name == "python" and option == "-m":  # the module comes at once
            break
    if not rest:
        raise UsageError(f"{name}: no script follows its options")
    return found, rest


def _count(option: str, text: str) -> int:
    """Return ``text`` as a number of processes or threads. Raise `UsageError` if it is none."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise UsageError(f"{option} {text}: give a number, 1 or more")
    return int(text)


def _in_front(name: str, _words: Sequence[str]) -> Script:
    raise UsageError(f"{name}: put it in front of autotune, not behind it")


LAUNCHERS: dict[str, Callable[[str, Sequence[str]], Script]] = {
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "mpiexec": _mpiexec,
    "mpirun": _mpiexec,
    **dict.fromkeys(("srun", "nohup", "nice", "taskset", "numactl", "time", "sudo"), _in_front),
}
