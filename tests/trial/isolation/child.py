"""What the tests run as a process of its own: isolate, run the part of a script before the fork, then trials.

Its argument is a JSON object: way, scratch, origin, network, room, before, trials.
Prints one JSON object per trial: the error that ended it, and what it put into ``said``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from autotune.trial.isolation import isolate as isolating


def main() -> None:
    task = json.loads(sys.argv[1])
    ways = [way for way in isolating.WAYS if task["way"] in ("", way.NAME)]
    scratch = Path(task["scratch"])
    try:
        found = isolating.isolate(scratch, Path(task["origin"]), network=task["network"], room=task["room"], ways=ways)
    except OSError as error:
        print(json.dumps({"refused": str(error)}))
        return
    names: dict[str, Any] = {"isolation": found, "said": []}
    exec(task["before"], names)
    for number, code in enumerate(task["trials"]):
        sys.stdout.flush()
        if not (pid := os.fork()):
            print(json.dumps(trial(code, names, scratch / f"t{number}")), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


def trial(code: str, names: dict[str, Any], folder: Path) -> dict[str, Any]:
    error = None
    try:
        names["isolation"].nest(folder)
        exec(code, names)
    except BaseException as failure:
        error = [type(failure).__name__, str(failure), traceback.format_exc()]
    return {"error": error, "said": names["said"]}


main()
