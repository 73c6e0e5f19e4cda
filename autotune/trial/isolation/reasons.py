"""What it means when a script fails because of what a trial does not give it."""

from __future__ import annotations

import re

NETWORK_TYPES = re.compile(
    r"gaierror|URLError|OfflineModeIsEnabled|LocalEntryNotFoundError|EndpointConnectionError|NewConnectionError"
    r"|MaxRetryError|ConnectTimeout|ConnectError|ClientConnector\w*Error|Proxy\w*Error|CommError|SSLError"
)
NETWORK_TEXTS = re.compile(
    r"Network is unreachable|Temporary failure in name resolution|Name or service not known|nodename nor servname"
    r"|No address associated with hostname|Failed to resolve|Max retries exceeded|Failed to establish a new connection"
    r"|offline mode|HF_HUB_OFFLINE|--allow-network|couldn't connect to|Couldn't reach|Could not resolve host"
    r"|Connection error|unable to connect to",
    re.IGNORECASE,
)
NO_INPUT = re.compile(r"EOF when reading a line")
NO_SPACE = re.compile(r"\[Errno 28\]|No space left on device|os error 28|ENOSPC")
READ_ONLY = re.compile(r"\[Errno 30\]|Read-only file system")
FOREIGN = re.compile(r"\[Errno 75\]|Value too large for defined data type")
RENAMED_FOLDER = re.compile(r"\[Errno 18\]|Invalid cross-device link")
STOPPED = re.compile(r"a trial may not write here")


def explain(error_type: str, text: str, *, network: bool, room: int) -> str | None:
    """Why a script that runs elsewhere fails in a trial, and what to do; None where a trial is not the reason.

    Args:
        error_type: of the exception that ended it, as `autotune.trial.spec.TrialReport` names it.
        text: of the exception, or the end of the log.
        network: whether the trial had the network.
        room: bytes that it might write.
    """
    if not network and (NETWORK_TYPES.search(error_type) or NETWORK_TEXTS.search(text)):
        return "the script wants the network, which trials do not have: pass --allow-network, or run it once by itself"
    if error_type == "EOFError" and NO_INPUT.search(text):
        return "the script asks for input, which trials do not have: let it take that from its arguments"
    if NO_SPACE.search(text):
        return f"the script wrote more than the {room / 2**30:.1f} GiB that a trial may write, which are kept in memory"
    if STOPPED.search(text):
        return "the script writes outside its working folder, and this system cannot undo that after a trial"
    if READ_ONLY.search(text):
        return "the script writes to a filesystem that a trial can only read"
    if FOREIGN.search(text):
        return "the script changes files of another user, which a trial without privileges cannot copy"
    if RENAMED_FOLDER.search(text):
        return "the script moves a folder that was there before, or a file to another folder, which a trial here cannot"
    return None
