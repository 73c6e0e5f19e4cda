from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import LaunchError
from autotune.knobs.settings import Settings
from autotune.trial.parent.event_loop import EventLoop
from autotune.trial.parent.fleet import Agent, Fleet
from autotune.trial.parent.running_trial import RunningTrial, Timeouts
from autotune.trial.parent.tcp_connection import TcpConnection
from autotune.trial.spec import Rendezvous, TrialSpec

from .test_tcp_connection import connected

SPEC = TrialSpec(settings=Settings())


@dataclass
class Stage:
    """A fleet of two agents and their far ends."""

    fleet: Fleet
    far: list[TcpConnection]
    loop: EventLoop

    def hear(self) -> None:
        self.loop.wait(5.0)


@pytest.fixture
def stage() -> Iterator[Stage]:
    ends = [connected() for _ in range(2)]
    agents = [Agent(f"machine{node}", node, connection) for node, (connection, _) in enumerate(ends, 1)]
    loop = EventLoop()
    fleet = Fleet(agents, "127.0.0.1", "eth1")
    fleet.listen(loop)
    yield Stage(fleet, [TcpConnection(other) for _, other in ends], loop)
    for connection, other in ends:
        connection.close()
        other.close()
    loop.close()


def trial(number: int = 7) -> RunningTrial:
    """A trial whose zygote keeps what it was asked."""
    asked: list[tuple[str, Any]] = []
    zygote = SimpleNamespace(send=lambda name, **content: asked.append((name, content)), asked=asked)
    return RunningTrial(zygote, None, 99, Timeouts(), number, oom_kills=3)  # type: ignore[arg-type]


def begun(stage: Stage) -> RunningTrial:
    own = trial()
    stage.fleet.start(own.number, SPEC, stage.fleet.rendezvous())
    stage.fleet.started(own)
    return own


def test_no_agents_no_rendezvous() -> None:
    fleet, own = Fleet(), trial()
    assert fleet.rendezvous() is None
    assert fleet.nnodes == 1
    fleet.start(own.number, SPEC, None)
    fleet.started(own)
    fleet.stop(own)
    assert fleet.ended(own)


def test_ranks_meet_at_two_free_ports_of_this_machine(stage: Stage) -> None:
    rendezvous = stage.fleet.rendezvous()
    assert rendezvous is not None
    assert (rendezvous.host, rendezvous.nnodes, rendezvous.node, rendezvous.interface) == ("127.0.0.1", 3, 0, "eth1")
    assert len({*rendezvous.ports}) == 2
    with socket.create_server((rendezvous.host, rendezvous.ports[0])):
        pass


def test_addresses_of_both_kinds() -> None:
    assert Rendezvous("10.0.0.1", (5, 6), 2).init_method(1) == "tcp://10.0.0.1:6"
    assert Rendezvous("fe80::1", (5, 6), 2).init_method(0) == "tcp://[fe80::1]:5"


def test_every_agent_hears_of_a_trial_with_its_own_number(stage: Stage) -> None:
    own = begun(stage)
    for node, far in enumerate(stage.far, 1):
        order = far.receive(5.0)
        assert order is not None
        assert (order["order"], order["trial"], order["rendezvous"]["node"]) == ("start", 7, node)
        assert order["rendezvous"]["interface"] is None, "each machine knows its own"
        assert TrialSpec.from_dict(order["spec"]) == SPEC
    stage.fleet.signal(own, 19)
    assert stage.far[0].receive(5.0) == {"order": "signal", "trial": 7, "signal": 19}


def test_a_trial_is_over_when_all_say_so(stage: Stage) -> None:
    own = begun(stage)
    for far in stage.far:
        assert not stage.fleet.ended(own)
        far.send({"trial": 7, "event": {"event": "rank-ended", "rank": 1, "code": 0}})
        far.send({"trial": 7, "code": 0, "oom_kills": None, "log": ""})
        while own.remote_ends[-1:] == [] or len(own.remote_ends) < stage.far.index(far) + 1:
            stage.hear()
    assert stage.fleet.ended(own)
    assert own.rank_codes == [0, 0]
    assert own.zygote.asked == []  # type: ignore[attr-defined]


def test_a_part_that_fails_takes_the_trial_along(stage: Stage) -> None:
    own = begun(stage)
    stage.far[0].send({"trial": 7, "code": 1, "oom_kills": 2, "log": "Killed"})
    stage.hear()
    assert own.zygote.asked == [("kill", {"pid": 99})]  # type: ignore[attr-defined]
    own.zygote.tail, own.zygote.no_fork_reason = lambda: "here", None  # type: ignore[method-assign]
    end = own.end(4)
    assert end.oom_kills == 3
    assert end.log == "here\nmachine1:\nKilled"
    stage.fleet.stop(own)
    assert stage.far[1].receive(5.0)
    assert stage.far[1].receive(5.0) == {"order": "stop", "trial": 7}


def test_early_words_wait_for_the_part_here(stage: Stage) -> None:
    own = trial()
    stage.fleet.start(own.number, SPEC, stage.fleet.rendezvous())
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
    assert own.remote_ends == []


def test_an_agent_that_is_gone_ends_the_run(stage: Stage) -> None:
    stage.far[1].close()
    with pytest.raises(LaunchError, match="machine2: the agent there is gone"):
        stage.hear()


def test_agents_are_sent_home(stage: Stage) -> None:
    stage.fleet.close()
    assert stage.far[0].receive(5.0) == {"order": "exit"}
    assert stage.far[0].receive(5.0) is None
