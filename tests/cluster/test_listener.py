from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotune.cluster.handshake import connect
from autotune.cluster.listener import Listener, listen
from autotune.cluster.rendezvous import Rendezvous, rendezvous, without_mpi
from autotune.errors import AutotuneError, LaunchError, NothingUsable, UsageError, UserCodeError
from autotune.launch.cluster import Cluster
from autotune.probes.facts import Backend
from autotune.trial.parent.fleet import Fleet
from autotune.trial.parent.tcp_connection import TcpConnection
from tests.launch.records import inventory

OWN = {"name": "one", "machine": "m", "autotune": "1", "torch": "2", "task": "abc"}


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = listen(Rendezvous("127.0.0.1", 0, "127.0.0.1", "lo", here=True), 2)
    assert opened is not None
    port = opened.socket.getsockname()[1]
    yield replace(opened, rendezvous=replace(opened.rendezvous, port=port))
    opened.socket.close()


class Other(threading.Thread):
    """Another machine: connects, then says ``words``."""

    def __init__(self, rendezvous: Rendezvous, own: dict[str, str], *words: dict[str, object]) -> None:
        super().__init__()
        self.rendezvous, self.own, self.words = rendezvous, own, words
        self.connection: TcpConnection | None = None
        self.seed: int | None = None
        self.error: AutotuneError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.connection, self.seed = connect(self.rendezvous, self.own, 5.0)
            for word in self.words:
                self.connection.send(word)
        except AutotuneError as error:
            self.error = error

    def leave(self) -> None:
        """Once all is said."""
        self.join()
        if self.connection is not None:
            self.connection.close()


def meet(listener: Listener, patience: float = 5.0) -> contextlib.AbstractContextManager[tuple[Fleet, tuple[str, ...]]]:
    return listener.gather(OWN, 3, patience)


def test_machines_that_are_alike_meet(listener: Listener) -> None:
    other = Other(listener.rendezvous, {**OWN, "name": "two"}, {"loaded": True})
    with meet(listener) as (fleet, notes):
        other.join()
        assert (fleet.nnodes, fleet.host, notes) == (2, "127.0.0.1", ())
        assert fleet.agents[0].name == "two (127.0.0.1)"
        assert other.seed == 3
    assert other.connection is not None
    assert other.connection.receive(5.0) == {"order": "exit"}
    other.connection.close()


def test_another_type_of_machine_is_noted(listener: Listener) -> None:
    other = Other(listener.rendezvous, {**OWN, "name": "two", "machine": "n"}, {"loaded": True})
    with meet(listener) as (_, notes):
        assert notes == ("not all machines are alike, and the slowest sets the pace: also n",)
    other.leave()


@pytest.mark.parametrize(
    ("name", "words"), [("torch", "PyTorch"), ("task", "the task file"), ("autotune", "this project")]
)
def test_versions_must_be_the_same(listener: Listener, name: str, words: str) -> None:
    other = Other(listener.rendezvous, {**OWN, name: "else"})
    with pytest.raises(UsageError, match=f"{words} must be the same on all machines"), meet(listener):
        pass
    other.leave()
    assert isinstance(other.error, UsageError)
    assert words in str(other.error)


def test_who_cannot_load_the_task_is_named(listener: Listener) -> None:
    other = Other(listener.rendezvous, OWN, {"failed": "model.py: no data", "traceback": "Traceback"})
    with pytest.raises(UserCodeError, match=r"one \(127.0.0.1\): model.py: no data") as caught, meet(listener):
        pass
    other.leave()
    assert caught.value.traceback == "Traceback"


def test_who_leaves_is_named(listener: Listener) -> None:
    def come_and_go() -> None:
        connect(listener.rendezvous, OWN, 5.0)[0].close()

    leaving = threading.Thread(target=come_and_go)
    leaving.start()
    with pytest.raises(LaunchError, match=r"one \(127.0.0.1\) left"), meet(listener):
        pass
    leaving.join()


def test_waiting_has_an_end(listener: Listener) -> None:
    with pytest.raises(NothingUsable, match="not all machines came"), meet(listener, patience=0.01):
        pass


def test_strangers_are_sent_away(listener: Listener) -> None:
    import socket

    with socket.create_connection((listener.rendezvous.host, listener.rendezvous.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        other = Other(listener.rendezvous, OWN, {"loaded": True})
        with meet(listener) as (fleet, _):
            assert fleet.nnodes == 2
        other.leave()


def test_connecting_where_nobody_is(listener: Listener) -> None:
    listener.socket.close()
    with pytest.raises(NothingUsable, match="nobody listens at"):
        connect(listener.rendezvous, OWN, 0.0)


def test_connecting_to_another_service(listener: Listener) -> None:
    def answer() -> None:
        with listener.socket.accept()[0] as mail:
            mail.sendall(b"220 mail.example.org\r\n")

    service = threading.Thread(target=answer)
    service.start()
    with pytest.raises(LaunchError, match="no tuning run"):
        connect(listener.rendezvous, OWN, 5.0)
    service.join()


def test_only_the_first_at_the_place_listens(listener: Listener) -> None:
    assert listen(listener.rendezvous, 2) is None
    assert listen(replace(listener.rendezvous, here=False), 2) is None


def test_mpi_is_tuned_on_one_machine() -> None:
    one = inventory()
    found = (Backend("gloo", True, ""), Backend("mpi", True, ""))
    several = without_mpi(replace(one, software=replace(one.software, backends=found)))
    assert [(b.name, b.usable) for b in several.software.backends] == [("gloo", True), ("mpi", False)]
    with pytest.raises(UsageError, match="--nnodes and --rdzv-endpoint"):
        rendezvous(Cluster(2, hosts=("a", "b")))
