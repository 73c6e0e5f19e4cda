"""For shells: variables to export, and torchrun's command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from autotune.export.plain import GLIBC_VARIABLES, variables
from autotune.export.target import Line, Missing, Plan, Row, Target, line
from autotune.knobs.omp_wait_policy import OMP_WAIT_POLICY


def in_environment(*names: str) -> Row:
    """A row of the variables ``names``, as far as the plan has them."""

    def row(plan: Plan) -> tuple[Line | Missing, ...]:
        found = {name: value for name, value in variables(plan).items() if name in names}
        return tuple(Line("environment", f"{name}={_value(name, value)}") for name, value in found.items())

    return row


def _value(name: str, value: str) -> str:
    """Quoted for a shell; libraries that are preloaded already stay."""
    return f'"${{LD_PRELOAD:+$LD_PRELOAD:}}"{shlex.quote(value)}' if name == "LD_PRELOAD" else shlex.quote(value)


def allocator(plan: Plan) -> tuple[Line | Missing, ...]:
    """The library, or why it cannot be preloaded."""
    if "allocator" in plan.missing:
        return (Missing(plan.missing["allocator"]),)
    return in_environment("LD_PRELOAD")(plan)


def network(plan: Plan) -> tuple[Line | Missing, ...]:
    """The interface of processes on one machine; which backend exchanges gradients is said in the script."""
    if plan.settings.backend is None:
        return ()
    return (*in_environment("GLOO_SOCKET_IFNAME")(plan), Missing(why_not_measured_backend(plan)))


def why_not_measured_backend(plan: Plan) -> str:
    """What to say where torchrun cannot start the backend that was measured; empty where it can."""
    if plan.exchange == plan.settings.backend:
        return ""
    return (
        f"torchrun starts {plan.exchange}, whose rate was not measured here;"
        f" autotune run starts {plan.settings.backend} as measured"
    )


def assignments(lines: Mapping[str, list[str]], prefix: str = "") -> str:
    """Variables on one line, in front of ``prefix``."""
    return " ".join([*lines.get("environment", []), prefix]).strip()


VARIABLES: dict[str, Row] = {
    "threads": in_environment("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    "omp_wait_policy": in_environment(OMP_WAIT_POLICY),
    "backend": network,
    "allocator": allocator,
    "malloc": in_environment(*GLIBC_VARIABLES),
}

ENV = Target(
    name="env",
    what="variables of a shell",
    rows=VARIABLES,
    layout=lambda _plan, lines: [f"export {text}" for text in lines.get("environment", [])],
)


def _bound(plan: Plan) -> tuple[Line | Missing, ...]:
    """The binding stands in the command."""
    return () if plan.settings.binding == "none" else line("command", "")


TORCHRUN = Target(
    name="torchrun",
    what="torchrun's command line",
    rows={**VARIABLES, "processes": lambda _plan: line("command", ""), "binding": _bound},
    layout=lambda plan, lines: [assignments(lines, plan.command)],
)
