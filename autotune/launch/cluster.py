"""Several machines that train together: how many, and their rendezvous. From options or from Slurm's variables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotune.errors import UsageError

PORT = 29400
"""torchrun's own default for its rendezvous."""
_PART = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Cluster:
    """The machines of one job.

    Attributes:
        nodes: how many, this one included.
        host, port: torchrun's rendezvous; the host is one of the machines.
        job: the rendezvous id, unique among the jobs that use this endpoint.
        hosts: names of the machines, for mpiexec, which starts all of them; empty for torchrun, which starts on each.
    """

    nodes: int
    host: str = ""
    port: int = PORT
    job: str = "autotune"
    hosts: tuple[str, ...] = ()


def from_options(nodes: int | None, endpoint: str | None, hosts: str | None) -> Cluster | None:
    """The cluster that the command line describes; None for one machine.

    Args:
        nodes: how many machines.
        endpoint: ``HOST[:PORT]`` of the rendezvous.
        hosts: names of the machines with commas between them, for mpiexec.

    Raises:
        UsageError: the options contradict each other.
    """
    if hosts is not None:
        names = tuple(name.strip() for name in hosts.split(","))
        if not all(names) or (nodes is not None and nodes != len(names)):
            raise UsageError(f"--hosts {hosts}: give one name for each of the machines, with commas between them")
        return Cluster(len(names), hosts=names) if len(names) > 1 else None
    if nodes is not None and nodes < 1:
        raise UsageError(f"--nnodes {nodes}: must be at least 1")
    if nodes is None or nodes == 1:
        if endpoint is not None:
            raise UsageError("--rdzv-endpoint: say also how many machines meet there, with --nnodes")
        return None
    if endpoint is None:
        raise UsageError(
            f"--nnodes {nodes}: say where the machines meet: --rdzv-endpoint HOST:PORT (one of them, the same on all)"
        )
    host, port = _split(endpoint)
    return Cluster(nodes, host, port)


def from_slurm(environment: Mapping[str, str]) -> Cluster | None:
    """The machines of this process's Slurm step, one task on each; None for one machine.

    Raises:
        UsageError: a machine has several tasks: each would start the whole machine's processes.
    """
    nodes = environment.get("SLURM_STEP_NUM_NODES", "")
    if not nodes.isdecimal():
        return None
    tasks = environment.get("SLURM_STEP_NUM_TASKS", nodes)
    if tasks != nodes:
        place = "one machine" if nodes == "1" else f"{nodes} machines"
        raise UsageError(
            f"srun started {tasks} tasks on {place}; one on each starts its own processes:"
            " srun --ntasks-per-node=1 autotune run ..."
        )
    if int(nodes) < 2:
        return None
    names = tuple(host_names(environment.get("SLURM_STEP_NODELIST", "")))
    if len(names) != int(nodes):
        raise UsageError("SLURM_STEP_NODELIST does not name the machines; give --nnodes and --rdzv-endpoint")
    number = environment.get("SLURM_JOB_ID", "")
    # Jobs that share a machine need different ports.
    port = PORT + (int(number) % 1000 if number.isdecimal() else 0)
    return Cluster(len(names), names[0], port, f"slurm-{number}-{environment.get('SLURM_STEP_ID', '0')}")


def check_one_machine(environment: Mapping[str, str]) -> None:
    """Refuse to tune in a Slurm step of several tasks: each of them would tune by itself.

    Raises:
        UsageError: with the line that starts one.
    """
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks.isdecimal() and int(tasks) > 1:
        raise UsageError(f"srun started {tasks} tasks; tune works on one machine: srun --ntasks=1 autotune tune ...")


def idle_machines(environment: Mapping[str, str]) -> str | None:
    """A note where a Slurm job has several machines but this process was started on only one of them."""
    nodes = environment.get("SLURM_JOB_NUM_NODES", "")
    if not nodes.isdecimal() or int(nodes) < 2 or "SLURM_STEP_NUM_NODES" in environment:
        return None
    return (
        f"this Slurm job has {nodes} machines, and only this one is used; all of them:"
        " srun --ntasks-per-node=1 autotune run ..."
    )


def host_names(hostlist: str) -> Iterator[str]:
    """The host names of a Slurm host list: ``gpu[01-03,7],login`` is gpu01, gpu02, gpu03, gpu7 and login.

    (python-hostlist does the same, but its license is the GPL.)
    """
    for part in _PART.findall(hostlist):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [[piece] if k % 2 == 0 else list(_numbers(piece)) for k, piece in enumerate(pieces)]
        if part:
            yield from ("".join(words) for words in itertools.product(*choices))


def _numbers(ranges: str) -> Iterator[str]:
    for first, last in (found.groups() for found in map(_RANGE.fullmatch, ranges.split(",")) if found):
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def endpoint(host: str, port: int) -> str:
    """``HOST:PORT``, the inverse of `_split`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def no_route(host: str) -> UsageError:
    """The error for a ``host`` that cannot be reached."""
    return UsageError(f"{host}: this machine has no route there. Give a name or an address that all can reach")


def _split(endpoint: str) -> tuple[str, int]:
    """``HOST:PORT``, ``HOST`` or ``[IPv6]:PORT``."""
    found = re.fullmatch(r"(\[[^\]]+\]|[^:]+)(?::(\d{1,5}))?", endpoint)
    if found is None or int(found[2] or PORT) > 65535:
        raise UsageError(f"--rdzv-endpoint {endpoint}: not HOST:PORT")
    return found[1].strip("[]"), int(found[2] or PORT)
