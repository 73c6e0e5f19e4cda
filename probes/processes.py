"""The processes of this machine, with the CPU time that each has used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = ["pid", "ppid", "create_time", "name", "nice", "uids", "cpu_times", "cpu_affinity"]


@dataclass(frozen=True)
class Process:
    """One process at one time.

    Attributes:
        pid, parent: process ids.
        created: seconds since the epoch; with ``pid`` it tells one process from another for good.
        name: the program's; empty where the process belongs to another user.
        niceness: -20 to 19; above 0 it yields to what has less.
        seconds: CPU time used so far.
        cpus: processors that it may run on; empty where that is not known.
    """

    pid: int
    parent: int
    created: float
    name: str
    niceness: int
    seconds: float
    cpus: frozenset[int] = frozenset()


def processes() -> list[Process]:
    """All that can be read."""
    import psutil

    found, mine = [], psutil.Process().uids().real
    for each in psutil.process_iter(FIELDS):
        facts = each.info
        if facts["cpu_times"] is not None and facts["create_time"] is not None:
            own = facts["uids"] is not None and facts["uids"].real == mine
            found.append(
                Process(
                    pid=facts["pid"],
                    parent=facts["ppid"] or 0,
                    created=facts["create_time"],
                    name=(facts["name"] or "") if own else "",
                    niceness=facts["nice"] or 0,
                    seconds=facts["cpu_times"].user + facts["cpu_times"].system,
                    cpus=frozenset(facts.get("cpu_affinity") or ()),
                )
            )
    return found


def below(seen: Sequence[Process], root: int) -> set[int]:
    """Process ids of ``root`` and all below it."""
    children: dict[int, list[int]] = {}
    for each in seen:
        children.setdefault(each.parent, []).append(each.pid)
    found, frontier = {root}, [root]
    while frontier:
        new = [pid for pid in children.get(frontier.pop(), ()) if pid not in found]
        found.update(new)
        frontier += new
    return found
