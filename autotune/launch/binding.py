"""The command in front of the program that binds each process: this package's starter, or the system's tools."""

from __future__ import annotations

from autotune.knobs.affinity import Affinity, AffinityPlan, cpu_list

STARTER = "autotune.runtime.bound"


def starter(plan: AffinityPlan, python: str) -> list[str]:
    """This package's starter; empty where ``plan`` binds nothing."""
    return [python, "-m", STARTER] if plan.affinities else []


def system_tools(plan: AffinityPlan) -> list[str]:
    """The same with ``taskset`` and ``numactl``, for a machine without this package."""
    tools = [_tool(affinity) for affinity in plan.affinities]
    if len(tools) < 2:
        return tools[0] if tools else []
    cases = " ".join(f'{rank}) set -- {" ".join(tool)} "$@";;' for rank, tool in enumerate(tools))
    return ["sh", "-c", f'case "${{LOCAL_RANK:-$MPI_LOCALRANKID}}" in {cases} esac; exec "$@"', "sh"]


def _tool(affinity: Affinity) -> list[str]:
    if not affinity.memory:
        return ["taskset", "-c", cpu_list(affinity.cpus)]
    return ["numactl", f"--physcpubind={cpu_list(affinity.cpus)}", f"--membind={cpu_list(affinity.memory)}"]
