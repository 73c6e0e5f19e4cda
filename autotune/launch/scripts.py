"""What starts a profile's settings for an unmodified script."""

from __future__ import annotations

from autotune.environment import SCRIPT_VARIABLE
from autotune.errors import UsageError
from autotune.knobs.settings import Settings
from autotune.profiles.format import Profile
from autotune.scripts.apply import Order, SharedBatch
from autotune.trial.target import Script


def order(profile: Profile, level: str, settings: Settings) -> Order | None:
    """Return what is to be applied to the script; None if it applies settings itself, or nothing is to be applied."""
    if profile.target.script is None or settings == profile.baseline:
        return None
    shared = None
    if settings.processes > 1:
        shared = SharedBatch(profile.baseline.global_batch, settings.batch_size, profile.target.samples or 0)
    return Order(settings, profile.baseline, profile.target.compared, level, profile.target.device, shared)


def variables(order: Order | None) -> dict[str, str]:
    """Return what the entry reads to apply settings from outside."""
    return {} if order is None else {SCRIPT_VARIABLE: order.as_text()}


def why_alone(profile: Profile, script: Script) -> str | None:
    """Return why ``script`` must not be started as several processes; None if it may.

    Processes of a script that neither shares its work nor lets `autotune.load` do so would train side by side.
    """
    name, tuned = script.name, profile.target.name
    if profile.target.script is not None:
        return None if name == tuned else f"{name} is started as one process: the profile is of {tuned}"
    text = script.path.read_text(errors="replace") if script.path.is_file() else ""
    if "autotune" in text:
        return None
    return f"{name} is started as one process: it does not use autotune.load(), which shares its work out"


def check_shares(profile: Profile, settings: Settings, nodes: int) -> None:
    """Several processes of an unmodified script train together only if a trial has shown that they do.

    Args:
        profile: of the script.
        settings: to start it with.
        nodes: how many machines train together.

    Raises:
        UsageError: nothing has shown it, or the processes cannot share the script's batch equally.
    """
    processes = settings.processes * nodes
    if profile.target.script is None or processes == 1:
        return
    refused = (item for item in profile.evidence.not_offered if item.knob == "processes")
    reason = next((item.reason for item in refused if item.value in (2, processes)), None)
    if nodes > 1:
        reason = "an unmodified script is tuned for one machine; several take a task file or autotune.load()"
    elif settings.global_batch != profile.baseline.global_batch:
        reason = reason or f"they cannot share its batch of {profile.baseline.global_batch} equally"
    if reason is not None:
        raise UsageError(f"{profile.target.name} cannot train as {processes} processes: {reason}")
