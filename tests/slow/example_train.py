"""Runs examples as scripts, one after the other in this process: PyTorch is imported once. `test_training` starts it.

Reads a list of runs, each ``{"words": [script, *arguments], "variables": {...}}``, and prints a list of what each
printed, or its traceback.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback


def run(words: list[str], variables: dict[str, str]) -> str:
    """What ``python WORDS`` prints; ends in a traceback where it fails."""
    said = io.StringIO()
    sys.argv, before = words, dict(os.environ)
    os.environ.update(variables)
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(words[0], run_name="__main__")
        except BaseException:
            said.write(traceback.format_exc())
    os.environ.clear()
    os.environ.update(before)
    return said.getvalue()


if __name__ == "__main__":
    print(json.dumps([run(**each) for each in json.load(sys.stdin)]))
