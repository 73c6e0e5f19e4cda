"""Writes ``docs/api.md`` from the docstrings of what `autotune` exports, without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "api.md"
EXPORTED = {
    "tune": "tuning/run.py",
    "load": "runtime/session.py",
    "Session": "runtime/session.py",
    "Profile": "profiles/format.py",
    "AutotuneError": "errors.py",
    "UserCodeError": "errors.py",
}
"""In the order of the page, with the file of each."""
HEAD = """\
# Python API

Made from docstrings by `python docs/api.py`. `import autotune` imports no PyTorch; `load` and `Session` do.
"""
SHOWN = {"Profile": ("key", "level", "unproven", "saved_seconds")}
"""Of a class with members that are there for the tuner alone."""


def definition(name: str) -> ast.FunctionDef | ast.ClassDef:
    """Return the syntax tree of an exported name."""
    tree = ast.parse((DOCS.parent / "autotune" / EXPORTED[name]).read_text("utf-8"))
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)


def text_of(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a docstring as Markdown: sections become lists."""
    doc = ast.get_docstring(node) or ""
    doc = re.sub(r"``?([^`]+)``?", r"`\1`", doc)
    doc = re.sub(r"(?m)^(Args|Attributes|Raises|Returns):$", r"\n*\1*\n", doc)
    doc = re.sub(r"(?m)^ {4}(\w[\w, ]*): ", r"- `\1`: ", doc)
    doc = re.sub(r"(?m)^ {8}", "  ", doc)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?m)^ {4}(?=\S)", "", doc)).strip()


def signature(node: ast.FunctionDef, name: str) -> str:
    """Return a call with its types and defaults, an argument on each line if it is long."""
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    line = f"{name}({arguments}){result}"
    if len(line) <= 100:
        return line
    parts = re.split(r", (?=[\w*]+[:,]|\*)", arguments)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def members(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Yield the public methods and properties of a class."""
    return (each for each in node.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"))


def chapter(name: str) -> str:
    """Return what the page says about one exported name."""
    node = definition(name)
    if isinstance(node, ast.FunctionDef):
        return f"## {name}\n\n```text\n{signature(node, f'autotune.{name}')}\n```\n\n{text_of(node)}\n"
    text = re.sub(
        r"(?s)\*Args\*.*?(?=\*Attributes\*)", "", text_of(node)
    )  # `load` makes sessions, and nobody a profile
    parts = [f"## {name}\n\n{text}\n"]
    for each in members(node):
        if each.name not in SHOWN.get(name, (each.name,)):
            continue
        property_ = any(ast.unparse(mark) == "property" for mark in each.decorator_list)
        head = f"{each.name}: {ast.unparse(each.returns)}" if property_ and each.returns else signature(each, each.name)
        parts.append(f"**`{head}`** " + text_of(each) + "\n")
    return "\n".join(parts)


def page() -> str:
    """Return the whole page."""
    return HEAD + "\n" + "\n".join(chapter(name) for name in EXPORTED)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
