"""Profiles written to harm: one corpus for every way in which a profile is read."""

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.profiles import file

from .profiles import profile

TEXT = file.dump(profile())
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
DANGEROUS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.", "ctypes.", "pty.spawn")
"""Starts of audit events that reading a profile never makes."""
_watched: list[list[str]] = []


def _hook(event: str, arguments: Any) -> None:
    if _watched and (event.startswith(DANGEROUS) or event in ("exec", "import") or _writes(event, arguments)):
        _watched[-1].append(event)


def _writes(event: str, arguments: Any) -> bool:
    return event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+") != set()


sys.addaudithook(_hook)


@contextlib.contextmanager
def canary() -> Iterator[list[str]]:
    """The interpreter's own record of what ran inside: processes, imports, sockets, libraries, files written."""
    events: list[str] = []
    _watched.append(events)
    try:
        yield events
    finally:
        _watched.pop()


def instead(old: str, new: str) -> str:
    """The good profile with one text replaced."""
    assert old in TEXT, old
    return TEXT.replace(old, new, 1)


def corpus(bird: Path) -> dict[str, str]:
    """Hostile texts by name; those that could run something would create ``bird``."""
    return {**_code(bird), **_structure(), **_values(bird), **_unicode(), **_numbers()}


def _code(bird: Path) -> dict[str, str]:
    run = f"touch {bird}"
    calls = {
        "apply": f"!!python/object/apply:os.system ['{run}']",
        "object": "!!python/object:types.SimpleNamespace {a: 1}",
        "name": "!!python/name:os.system",
        "bytes": "!!binary aGVsbG8=",
        "local tag": "!env HOME",
        "long tag": "!<tag:yaml.org,2002:python/name:os.system>",
        "int tag": "!!int '8'",
    }
    found = {f"{name} as value": instead("vendor: amd", f"vendor: {text}") for name, text in calls.items()}
    found |= {f"{name} as document": f"{text}\n" for name, text in calls.items()}
    found |= {f"{name} as key": TEXT + f"? {text}\n: 1\n" for name, text in calls.items()}
    directive = "%TAG ! tag:yaml.org,2002:python/\n---\n"
    return found | {"tag directive": directive + instead("vendor: amd", "vendor: !name:os")}


@functools.cache
def _structure() -> dict[str, str]:
    return {
        "just too large": TEXT + "#" * (file.MAX_BYTES - len(TEXT) + 1),
        "alias bomb": BOMB,
        "alias": instead("vendor: amd", "vendor: &v amd").replace("family: epyc-zen4", "family: *v"),
        "self reference": "a: &a [*a]\n",
        "second document": TEXT + "---\n" + TEXT,
        "merge": TEXT + "<<: {recommended: max}\n",
        "brackets": "[" * 5000,
        "braces": "{a: " * 5000,
        "dashes": "- " * 5000,
        "question marks": "? " * 5000,
        "deep value": instead("vendor: amd", f"vendor: {'[' * 20}{']' * 20}"),
        "deep evidence": instead("value: nccl", f"value: {'{a: ' * 15}1{'}' * 15}"),
        "duplicate deep key": instead("    allocator: default", "    allocator: default\n    allocator: jemalloc"),
        "null": "null\n",
        "list": "- " + TEXT.replace("\n", "\n  "),
        "nul byte": TEXT + "\0",
        "byte order mark": instead("vendor: amd", "vendor: \ufeffamd"),
        "tab": instead("  key:", "\tkey:"),
        "group key": TEXT + "? {a: b}\n: 1\n",
        "null key": TEXT + "null: 1\n",
        "many keys": TEXT + "".join(f"key{number}: 1\n" for number in range(2000)),
        "many failures": instead("  failures:\n", "  failures:\n" + "  - {kind: a, reason: b, changed: {}}\n" * 300),
        "many versions": instead("software:\n", "software:\n" + "".join(f"  k{n}: 1\n" for n in range(300))),
    }


def _values(bird: Path) -> dict[str, str]:
    return {
        "preload key": TEXT + f"environment:\n  LD_PRELOAD: {bird}\n",
        "software as environment": instead("torch: 2.9.0", f"PYTHONSTARTUP: {bird}"),
        "software as list": instead("torch: 2.9.0", "torch: [2, 9]"),
        "script": instead("  device: cpu", f"  device: cpu\n  script: {bird}"),
        "device": instead("device: cpu", "device: file:///etc/passwd"),
        "absolute": instead("key: amd-epyc-zen4-8c-32g", "key: /etc/passwd"),
        "gpu with path": instead("gpus: []", "gpus: [../x]"),
        "feature with blank": instead("- avx2", "- avx2 --option"),
        "architecture": instead("architecture: x86_64", "architecture: x86_64; id"),
        "digest": instead("  device: cpu", "  device: cpu\n  compared: {models: [x], optimizers: [], loaders: []}"),
        "digest of code": instead(
            "  device: cpu", "  device: cpu\n  compared: {models: [], optimizers: [], loaders: [$(id)]}"
        ),
        "a million machines": instead("  device: cpu", "  device: cpu\n  nnodes: 1000000"),
        "date": instead("machine:", "written: {tool: 0.1.0, date: yesterday}\nmachine:"),
        "tool": instead("machine:", "written: {tool: $(id), date: '2026-01-01'}\nmachine:"),
        "template": instead("vendor: amd", "vendor: {{ 7 * 7 }}"),
        "escape codes": instead("note: ''", 'note: "\\u001b]0;owned\\u0007"'),
        "raw escape codes": instead("note: ''", "note: \x1b]0;owned\x07"),
        "escape codes in key": TEXT + '"\\u001b]0;owned\\u0007": 1\n',
        "newlines": instead("note: ''", 'note: "a\\nautotune: all is well"'),
        "long name": instead("name: resnet", f"name: {'x' * 5000}"),
    }


@functools.cache
def _unicode() -> dict[str, str]:
    return {
        "right to left": instead("note: ''", 'note: "\\u202e"'),
        "zero width": instead("name: resnet", "name: res\u200bnet"),
        "cyrillic in key": instead("allocator: default", "\u0430llocator: default"),
        "cyrillic in machine": instead("vendor: amd", "vendor: \u0430md"),
        "cyrillic in level": instead("recommended: amp", "recommended: \u0430mp"),
        "wide digits": instead("threads: 8", "threads: \uff18"),
        "superscript": instead("threads: 8", "threads: 8\u00b2"),
        "surrogate": instead("name: resnet", 'name: "\\ud800"'),
        "private use": instead("name: resnet", "name: \ue000"),
    }


@functools.cache
def _numbers() -> dict[str, str]:
    threads = ("1:30", "2020-01-01", "-1", "0", "9" * 1000, "8e0", "8.0", ".nan", ".inf", "true", "null")
    found = {
        f"{text[:20]} threads": instead("threads: 8\n    interop", f"threads: {text}\n    interop") for text in threads
    }
    rates = (".inf", "1e999", "-0.5", "1e300", "fast")
    found |= {f"{text} rate": instead("rate: 2010.5", f"rate: {text}") for text in rates}
    return found | {
        "huge version": instead("torch: 2.9.0", f"torch: {'9' * 60}"),
        "infinite version": instead("torch: 2.9.0", "torch: 1e999"),
        "huge memory": instead("memory_gib: 32", "memory_gib: 1e300"),
        "samples": instead("samples: 50000", f"samples: {'9' * 90}"),
        "huge value": instead("value: nccl", f"value: {'9' * 90}"),
    }
