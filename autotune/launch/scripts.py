"""What starts a profile's settings for an unmodified script."""

from __future__ import annotations

from autotune.core.backends import SCRIPT_VARIABLE
from autotune.core.errors import UsageError
from autotune.core.settings import Settings
from autotune.profiles.format import Profile


def need_our_entry(profile: Profile, settings: Settings) -> bool:
    """Whether the script is unmodified. Nothing to apply needs nobody to apply it."""
    return profile.target.script is not None and settings != profile.baseline


def variables(profile: Profile, settings: Settings) -> dict[str, str]:
    """What the entry reads to apply ``settings`` from outside; nothing where the script applies them itself."""
    if not need_our_entry(profile, settings):
        return {}
    words = [profile.target.script, profile.target.skip]
    if settings.processes > 1:
        words += [profile.baseline.global_batch, settings.batch_size, profile.target.samples]
    return {SCRIPT_VARIABLE: ":".join(map(str, words))}


def check_shares(profile: Profile, settings: Settings, nodes: int) -> None:
    """Several processes of an unmodified script train together only where a trial has shown that they do.

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
