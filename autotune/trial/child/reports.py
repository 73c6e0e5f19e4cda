"""How a rank tells the tuner how its trial went."""

from __future__ import annotations

from dataclasses import asdict

from autotune.trial.spec import TrialReport
from autotune.trial.unix_connection import UnixConnection


def send_report(report: TrialReport, connection: UnixConnection, rank: int) -> None:
    """Send the ``report`` of ``rank``."""
    connection.send({"event": "report", "rank": rank, "report": asdict(report)})
