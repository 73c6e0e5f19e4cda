"""What starts a profile's settings: for an unmodified script, for one that applies them itself, and for nobody."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.knobs.backend import BACKENDS
from autotune.knobs.task_facts import LeftOut
from autotune.launch.prepare import StartOptions, _check_shares, _order, _rendezvous, _why_alone
from autotune.probes import network
from autotune.probes.facts import Route
from autotune.profiles.format import Profile, Target
from autotune.scripts.apply import Order, SharedBatch
from autotune.trial.target import Script
from tests.doubles.results import BASELINE, profile

SCRIPT = profile(target=Target("train", "samples", "cpu", 100, 1024, script="batches"))
BATCH = BASELINE.global_batch
TWO = BASELINE.but(processes=2, batch_size=BATCH // 2)
APART = replace(SCRIPT, evidence=replace(SCRIPT.evidence, not_offered=(LeftOut("processes", 2, "trains apart"),)))


def test_a_script_is_handed_what_differs_from_its_own() -> None:
    assert _order(SCRIPT, "amp", BASELINE) is None
    found = _order(SCRIPT, "amp", BASELINE.but(threads=1))
    assert (found.changed, found.level, found.shared_batch) == ({"threads"}, "amp", None)
    assert Order.from_text(found.as_text()) == found

    assert _order(SCRIPT, "amp", TWO).shared_batch == SharedBatch(BATCH, BATCH // 2, 1024)


@pytest.mark.parametrize(
    ("saved", "processes", "nodes", "words"),
    [
        (SCRIPT, 2, 1, None),
        (APART, 1, 1, None),
        (profile(), 2, 2, None),
        (APART, 2, 1, "train cannot train as 2 processes: trains apart"),
        (APART, 4, 1, "as 4 processes: trains apart"),
        (SCRIPT, 3, 1, f"cannot share its batch of {BATCH} equally"),
        (SCRIPT, 1, 2, "tuned for one machine"),
    ],
)
def test_processes_start_if_they_train_together(saved: Profile, processes: int, nodes: int, words: str | None) -> None:
    settings = BASELINE.but(processes=processes, batch_size=-(-BATCH // processes))
    with pytest.raises(UsageError, match=words) if words else nullcontext():
        _check_shares(saved, settings, nodes)


def test_a_process_that_the_user_has_numbered_starts_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(Path("train.py"), written="train.py")
    assert _why_alone(SCRIPT, script, None) is None
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert _why_alone(SCRIPT, script, None) == "RANK and WORLD_SIZE are yours"


@pytest.mark.parametrize(
    ("endpoint", "host"), [("a.b:1234", "a.b"), ("10.0.0.1", "10.0.0.1"), ("[fe80::1]:99", "fe80::1")]
)
def test_several_machines_meet_at_an_endpoint(endpoint: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "route", {host: Route("10.0.0.2", "eth0", here=False)}.get)
    meeting = f"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint={endpoint} --rdzv-id=autotune --rdzv-conf=is_host=0"
    options = [*meeting.split(), "--local-addr=10.0.0.2"]
    assert _rendezvous(StartOptions(nodes=2, endpoint=endpoint), BACKENDS["gloo"]) == (options, "eth0")
    assert _rendezvous(StartOptions(), BACKENDS["gloo"]) == ([], None)


@pytest.mark.parametrize(
    ("backend", "endpoint", "words"),
    [
        ("gloo", None, "not an address. Give HOST:PORT"),
        *(("gloo", f"localhost:{port}", "localhost:") for port in (0, 99999, "abc")),
        ("gloo", "::1", "not an address"),
        ("gloo", "nowhere.invalid:1", "has no route there"),
        ("mpi", "localhost:1", "on one machine only"),
    ],
)
def test_machines_that_do_not_meet_are_a_usage_error(backend: str, endpoint: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _rendezvous(StartOptions(nodes=2, endpoint=endpoint), BACKENDS[backend])
