"""Put a real tuning run into the documents.

    autotune tune examples/jpeg_folder.py --profile run.yaml > run.txt
    python docs/render.py run.txt

The final text becomes `docs/images/tune.txt`, the picture `docs/images/tune.svg` and the README's result block. Without
arguments picture and block are made again from `docs/images/tune.txt`. They are never edited by hand.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "docs" / "images" / "tune.txt"
PICTURE = ROOT / "docs" / "images" / "tune.svg"
README = ROOT / "README.md"
HEADINGS = ("Machine", "Baseline", "Level", "Changes", "Left out", "Failed", "Note", "Apply")
FIRST = 10
"""Lines of a run that stand before the fold."""
BLOCK = re.compile(r"(?s)(<!-- result:begin -->\n).*?(<!-- result:end -->)")


def svg(text: str) -> str:
    """``text`` as a terminal picture; the same text always gives the same picture. Fonts are the reader's own."""
    lines = text.splitlines()
    console = Console(
        record=True,
        width=max(map(len, lines)),
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
        legacy_windows=False,
    )
    shown = Text(text.rstrip("\n"), no_wrap=True)
    shown.highlight_regex(rf"(?m)^({'|'.join(HEADINGS)})\b.*?(?=  |$)", "bold")
    shown.highlight_regex(r"(?<![\w.])\d+\.\d\dx", "bold green")
    shown.highlight_regex(r"no gain|cannot tell|not proven", "yellow")
    console.print(shown)
    picture = console.export_svg(title="python tune.py examples/jpeg_folder.py", unique_id="tune")
    picture = re.sub(r"(?s)\s*@font-face \{.*?\}", "", picture)
    return "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"


def block(text: str) -> str:
    """The README's result block for ``text``."""
    first = "\n".join(text.splitlines()[:FIRST])
    return (
        f"```text\n{first}\n```\n\n<details><summary>The rest: what changes and why, what was left out, how to apply it"
        "</summary>\n\n![The whole answer of a tuning run in a terminal](docs/images/tune.svg)\n\n</details>\n"
    )


def filled(readme: str, text: str) -> str:
    """``readme`` with its result block made from ``text``."""
    return BLOCK.sub(lambda found: found[1] + block(text) + found[2], readme)


def final_text(output: str) -> str:
    """The answer at the end of a run's ``output``: from its last line that starts with the tool's name."""
    start = [found.start() for found in re.finditer(r"(?m)^autotune  ", output)][-1]
    return output[start:].rstrip() + "\n"


def main() -> None:
    run = Path(sys.argv[1]) if len(sys.argv) > 1 else TEXT
    text = final_text(run.read_text("utf-8"))
    TEXT.write_text(text, "utf-8")
    PICTURE.write_text(svg(text), "utf-8")
    README.write_text(filled(README.read_text("utf-8"), text), "utf-8")


if __name__ == "__main__":
    main()
