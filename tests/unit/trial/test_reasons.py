"""An error that only a trial has is recognised, an error of the script's own is not."""

from __future__ import annotations

import errno
import os

import pytest

from autotune.trial.isolation import redirected as guard
from autotune.trial.parent.judge import explain

NETWORK = [
    ("socket.gaierror", "[Errno -3] Temporary failure in name resolution"),
    ("urllib.error.URLError", "<urlopen error [Errno -2] Name or service not known>"),
    ("requests.exceptions.ConnectionError", "HTTPSConnectionPool(host='x'): Max retries exceeded with url: /"),
    ("huggingface_hub.errors.OfflineModeIsEnabled", "Cannot reach https://huggingface.co: offline mode is enabled."),
    ("huggingface_hub.errors.LocalEntryNotFoundError", "Cannot find the requested files in the disk cache"),
    ("OSError", "We couldn't connect to 'https://huggingface.co' to load the files"),
    ("ConnectionError", "Couldn't reach 'imdb' on the Hub (OfflineModeIsEnabled)"),
    ("OSError", "[Errno 101] Network is unreachable"),
    ("PermissionError", f"[Errno 13] {guard.NETWORK}: 'example.org'"),
    ("RuntimeError", "curl: (6) Could not resolve host: example.org"),
    ("botocore.exceptions.ProxyConnectionError", "Failed to connect to proxy URL: http://127.0.0.1:9"),
]


@pytest.mark.parametrize(("kind", "text"), NETWORK)
def test_a_script_that_wants_the_network_is_told_how_to_get_it(kind: str, text: str) -> None:
    assert "--allow-network" in (explain(kind, text, network=False, room=2**30) or "")


@pytest.mark.parametrize(
    ("kind", "error", "word"),
    [
        ("OSError", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "1.5 GiB"),
        ("OSError", OSError(errno.EROFS, os.strerror(errno.EROFS), "/run/x"), "only read"),
        ("OSError", OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW), "/data/x"), "another user"),
        ("OSError", OSError(errno.EXDEV, os.strerror(errno.EXDEV), "runs"), "moves a folder"),
        ("PermissionError", PermissionError(errno.EACCES, guard.WRITE, "/data/x"), "outside its working folder"),
    ],
)
def test_what_a_trial_may_not_write_has_its_reason(kind: str, error: OSError, word: str) -> None:
    assert word in (explain(kind, str(error), network=False, room=3 * 2**29) or "")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ValueError", "expected 3 channels, got 4"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'train.csv'"),
        ("PermissionError", "[Errno 13] Permission denied: '/root/x'"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_an_error_of_the_scripts_own_is_left_to_speak_for_itself(kind: str, text: str) -> None:
    assert explain(kind, text, network=False, room=2**30) is None
