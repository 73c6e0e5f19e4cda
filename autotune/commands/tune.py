"""``autotune tune``: find, prove and write the fastest settings for a task."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from autotune.cluster.agent import serve
from autotune.cluster.listener import listen
from autotune.cluster.rendezvous import rendezvous
from autotune.commands.live_view import live_view
from autotune.core.cluster import Cluster
from autotune.report import final
from autotune.store.profiles import to_data
from autotune.tuning import run
from autotune.tuning.options import Options


def tune(task: Path, options: Options, cluster: Cluster | None, started: float, as_json: bool) -> None:
    """Tune, or take part in the run that another machine of ``cluster`` controls.

    Args:
        task: the task file.
        options: what the user asked for.
        cluster: the machines that are tuned together; this one alone if None.
        started: when the command started, on the monotonic clock.
        as_json: whether stdout gets one JSON object. People's text goes to stderr.
    """
    place = rendezvous(cluster) if cluster else None
    listener = listen(place, cluster.nodes) if cluster and place else None
    with live_view(options.seconds(), started) as observe:
        if place is not None and listener is None:
            serve(task, place, run.GATHER_SECONDS, observe)
            return
        result = run.run(task, options, observe, started, listener)
    print(final.text(result.profile, result.inventory, result.path, result.load), file=sys.stderr)
    if as_json:
        print(json.dumps({"path": str(result.path.resolve()), **to_data(result.profile)}))
