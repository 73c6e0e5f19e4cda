from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.core.errors import LaunchError
from autotune.core.settings import Settings
from autotune.trial.parent.fleet import Agent, Fleet
from autotune.trial.parent.running_trial import Limits, Trial
from autotune.trial.parent.tcp_connection import Wire
from autotune.trial.spec import Meeting, TrialSpec

from .test_tcp_connection import connected

SPEC = TrialSpec(settings=Settings())


@dataclass
class Stage:
    """A fleet of two agents and their far ends."""

    fleet: Fleet
    far: list[Wire]
    selector: selectors.BaseSelector

    def hear(self) -> None:
        for key, _ in self.selector.select(5.0):
            key.data()


@pytest.fixture
def stage() -> Iterator[Stage]:
    ends = [connected() for _ in range(2)]
    agents = [Agent(f"machine{node}", node, wire) for node, (wire, _) in enumerate(ends, 1)]
    selector = selectors.DefaultSelector()
    fleet = Fleet(agents, "127.0.0.1", "eth1")
    fleet.watch(selector)
    yield Stage(fleet, [Wire(other) for _, other in ends], selector)
    for wire, other in ends:
        wire.close()
        other.close()
    selector.close()


def trial(number: int = 7) -> Trial:
    """A trial whose server keeps what it was asked."""
    asked: list[tuple[str, Any]] = []
    server = SimpleNamespace(request=lambda name, **content: asked.append((name, content)), asked=asked)
    return Trial(server, None, 99, Limits(), None, number)  # type: ignore[arg-type]


def begun(stage: Stage) -> Trial:
    own = trial()
    stage.fleet.start(own.number, SPEC, stage.fleet.meeting())
    stage.fleet.started(own)
    return own


def test_no_agents_no_meeting() -> None:
    fleet, own = Fleet(), trial()
    assert fleet.meeting() is None
    assert fleet.nnodes == 1
    fleet.start(own.number, SPEC, None)
    fleet.started(own)
    fleet.stop(own)
    assert fleet.ended(own)


def test_ranks_meet_at_two_free_ports_of_this_machine(stage: Stage) -> None:
    meeting = stage.fleet.meeting()
    assert meeting is not None
    assert (meeting.host, meeting.nnodes, meeting.node, meeting.interface) == ("127.0.0.1", 3, 0, "eth1")
    assert len({*meeting.ports}) == 2
    with socket.create_server((meeting.host, meeting.ports[0])):
        pass


def test_addresses_of_both_kinds() -> None:
    assert Meeting("10.0.0.1", (5, 6), 2).init_method(1) == "tcp://10.0.0.1:6"
    assert Meeting("fe80::1", (5, 6), 2).init_method(0) == "tcp://[fe80::1]:5"


def test_every_agent_hears_of_a_trial_with_its_own_number(stage: Stage) -> None:
    own = begun(stage)
    for node, far in enumerate(stage.far, 1):
        order = far.receive(5.0)
        assert order is not None
        assert (order["order"], order["trial"], order["meeting"]["node"]) == ("start", 7, node)
        assert order["meeting"]["interface"] is None, "each machine knows its own"
        assert TrialSpec.from_dict(order["spec"]) == SPEC
    stage.fleet.signal(own, 19)
    assert stage.far[0].receive(5.0) == {"order": "signal", "trial": 7, "signal": 19}


def test_a_trial_is_over_when_all_say_so(stage: Stage) -> None:
    own = begun(stage)
    for far in stage.far:
        assert not stage.fleet.ended(own)
        far.send({"trial": 7, "event": {"event": "rank-ended", "rank": 1, "code": 0}})
        far.send({"trial": 7, "code": 0, "oom_kills": None, "log": ""})
        while own.elsewhere[-1:] == [] or len(own.elsewhere) < stage.far.index(far) + 1:
            stage.hear()
    assert stage.fleet.ended(own)
    assert own.rank_codes == [0, 0]
    assert own.server.asked == []  # type: ignore[attr-defined]


def test_a_part_that_fails_takes_the_trial_along(stage: Stage) -> None:
    own = begun(stage)
    stage.far[0].send({"trial": 7, "code": 1, "oom_kills": 2, "log": "Killed"})
    stage.hear()
    assert own.server.asked == [("kill", {"pid": 99})]  # type: ignore[attr-defined]
    own.server.tail, own.server.fresh = lambda: "here", ""  # type: ignore[method-assign]
    own.oom_before = 3
    end = own.end(4)
    assert end.oom_kills == 3
    assert end.log == "here\nmachine1:\nKilled"
    stage.fleet.stop(own)
    assert stage.far[1].receive(5.0)
    assert stage.far[1].receive(5.0) == {"order": "stop", "trial": 7}


def test_early_words_wait_for_the_part_here(stage: Stage) -> None:
    own = trial()
    stage.fleet.start(own.number, SPEC, stage.fleet.meeting())
    stage.far[0].send({"trial": 7, "event": {"event": "rank-ended", "rank": 1, "code": -9}})
    stage.hear()
    assert own.rank_codes == []
    stage.fleet.started(own)
    assert own.rank_codes == [-9]


def test_late_words_about_a_forgotten_trial_are_nothing(stage: Stage) -> None:
    own = begun(stage)
    stage.fleet.forget(own)
    stage.far[0].send({"trial": 7, "code": 1, "oom_kills": None, "log": ""})
    stage.hear()
    assert own.elsewhere == []


def test_an_agent_that_is_gone_ends_the_run(stage: Stage) -> None:
    stage.far[1].close()
    with pytest.raises(LaunchError, match="machine2: the agent there is gone"):
        stage.hear()


def test_agents_are_sent_home(stage: Stage) -> None:
    stage.fleet.close()
    assert stage.far[0].receive(5.0) == {"order": "exit"}
    assert stage.far[0].receive(5.0) is None
