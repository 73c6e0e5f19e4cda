"""The command in front of the program that binds each process: this package's starter, or the system's tools."""

from __future__ import annotations

from autotune.core.binding import Place, Plan, cpu_list

STARTER = "autotune.runtime.bound"


def starter(plan: Plan, python: str) -> list[str]:
    """This package's starter; empty where ``plan`` binds nothing."""
    return [python, "-m", STARTER] if plan.places else []


def system_tools(plan: Plan) -> list[str]:
    """The same with ``taskset`` and ``numactl``, for a machine without this package."""
    tools = [_tool(place) for place in plan.places]
    if len(tools) < 2:
        return tools[0] if tools else []
    cases = " ".join(f'{rank}) set -- {" ".join(tool)} "$@";;' for rank, tool in enumerate(tools))
    return ["sh", "-c", f'case "${{LOCAL_RANK:-$MPI_LOCALRANKID}}" in {cases} esac; exec "$@"', "sh"]


def _tool(place: Place) -> list[str]:
    if not place.memory:
        return ["taskset", "-c", cpu_list(place.cpus)]
    return ["numactl", f"--physcpubind={cpu_list(place.cpus)}", f"--membind={cpu_list(place.memory)}"]
