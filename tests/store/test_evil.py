"""Files written to harm: each is refused, and nothing in them runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from autotune.core.errors import ProfileError
from autotune.core.match import Here
from autotune.store import layout, profiles, registry

from .records import MACHINE, profile

TEXT = profiles.dump(profile())
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def corpus(canary: Path) -> dict[str, str]:
    """Hostile texts; those that could run something would create ``canary``."""
    run = f"touch {canary}"
    return {
        "apply": f"!!python/object/apply:os.system ['{run}']\n",
        "apply in a value": TEXT.replace("vendor: amd", f"vendor: !!python/object/apply:os.system ['{run}']"),
        "apply in a key": TEXT + f"? !!python/object/apply:os.system ['{run}']\n: 1\n",
        "new": TEXT.replace("vendor: amd", f"vendor: !!python/object/new:subprocess.Popen [['touch', '{canary}']]"),
        "name": TEXT.replace("vendor: amd", "vendor: !!python/name:os.system"),
        "module": TEXT.replace("vendor: amd", "vendor: !!python/module:antigravity"),
        "local tag": TEXT.replace("vendor: amd", "vendor: !env HOME"),
        "standard tag": TEXT.replace("threads: 8", "threads: !!int '8'"),
        "tag directive": "%TAG ! tag:yaml.org,2002:python/\n---\n" + TEXT.replace("vendor: amd", "vendor: !name:os"),
        "preload": TEXT.replace("allocator: default", "allocator: /tmp/evil.so"),
        "preload key": TEXT + f"environment:\n  LD_PRELOAD: {canary}\n",
        "startup": TEXT + f"environment:\n  PYTHONSTARTUP: {canary}\n",
        "software as environment": TEXT.replace("torch: 2.9.0", f"PYTHONSTARTUP: {canary}"),
        "traversal": TEXT.replace("key: amd", "key: ../../etc/amd"),
        "absolute": TEXT.replace("key: amd-epyc-zen4-8c-32g", "key: /etc/passwd"),
        "ten megabytes": TEXT + "#" * 10_000_000,
        "alias bomb": BOMB,
        "alias": TEXT.replace("vendor: amd", "vendor: &v amd").replace("family: epyc-zen4", "family: *v"),
        "anchor alone": TEXT.replace("vendor: amd", "vendor: &v amd"),
        "self reference": "a: &a [*a]\n",
        "merge": TEXT + "<<: {recommended: max}\n",
        "brackets": "[" * 5000,
        "braces": "{a: " * 5000,
        "dashes": "- " * 5000,
        "question marks": "? " * 5000,
        "duplicate key": TEXT.replace("recommended: amp", "recommended: amp\nrecommended: max"),
        "duplicate deep key": TEXT.replace("    allocator: default", "    allocator: default\n    allocator: jemalloc"),
        "sexagesimal": TEXT.replace("threads: 8", "threads: 1:30"),
        "no": TEXT.replace("pin_memory: false", "pin_memory: no"),
        "nan": TEXT.replace("rate: 2010.5", "rate: .nan"),
        "minus": TEXT.replace("threads: 8", "threads: -1"),
        "giant": TEXT.replace("threads: 8", "threads: 1000000000"),
        "octal": TEXT.replace("threads: 8", "threads: 0o10"),
        "underscores": TEXT.replace("threads: 8", "threads: 1_0"),
        "date": TEXT.replace("threads: 8", "threads: 2020-01-01"),
        "escape codes": TEXT.replace("note: ''", 'note: "\\u001b]0;owned\\u0007"'),
        "right to left": TEXT.replace("note: ''", 'note: "\\u202e"'),
        "long note": TEXT.replace("note: ''", f"note: {'x' * 5000}"),
    }


@pytest.mark.parametrize("name", corpus(Path("x")))
def test_each_is_refused_quickly_and_runs_nothing(name: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    text = corpus(canary)[name]
    assert text != TEXT
    path = layout.default_path(MACHINE.key, "resnet", tmp_path)
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    before, start = dict(os.environ), time.process_time()
    with pytest.raises(ProfileError) as caught:
        profiles.read(path)
    assert time.process_time() - start < 2.0
    assert str(caught.value).isprintable() or "\x1b" not in str(caught.value)
    assert registry.find(Here(MACHINE, {}, "resnet"), [tmp_path]) is None
    assert not canary.exists()
    assert dict(os.environ) == before


def test_deep_nesting_never_recurses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the interpreter's stack is nearly used up, the answer is a `ProfileError`."""

    def overflow(_text: str) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("autotune.store.yaml_text.load", overflow)
    with pytest.raises(ProfileError, match="maximum recursion depth"):
        profiles.parse("a: 1", "p.yaml")
