from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.trial.parent.tcp_connection import MAX_LINE, TcpConnection

TEXTS = st.dictionaries(st.text(max_size=5), st.text(max_size=40) | st.integers() | st.none(), max_size=4)


def connected() -> tuple[TcpConnection, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        ours = socket.create_connection(door.getsockname())
        return TcpConnection(ours), door.accept()[0]


@pytest.fixture
def ends() -> Iterator[tuple[TcpConnection, socket.socket]]:
    connection, other = connected()
    yield connection, other
    connection.close()
    other.close()


@given(messages=st.lists(TEXTS, max_size=5))
def test_what_is_sent_arrives_whole_and_in_order(messages: list[dict[str, object]]) -> None:
    connection, other = connected()
    far = TcpConnection(other)
    for message in messages:
        connection.send(message)
    connection.close()
    received = []
    while (message := far.receive(5.0)) is not None:
        received.append(message)
    far.close()
    assert received == messages
    assert far.closed


def test_a_message_may_come_in_pieces(ends: tuple[TcpConnection, socket.socket]) -> None:
    connection, other = ends
    other.sendall(b'{"a"')
    connection.read()
    assert not connection.inbox
    other.sendall(b': 1}\n{"b": 2}\n{"c')
    connection.read()
    assert list(connection.inbox) == [{"a": 1}, {"b": 2}]
    assert not connection.closed


@pytest.mark.parametrize("bytes_", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xfe\n", b"x" * (MAX_LINE + 1)])
def test_other_languages_end_the_conversation(ends: tuple[TcpConnection, socket.socket], bytes_: bytes) -> None:
    connection, other = ends
    other.sendall(bytes_)
    assert connection.receive(5.0) is None
    assert connection.closed or len(bytes_) > MAX_LINE


def test_silence_ends_the_waiting(ends: tuple[TcpConnection, socket.socket]) -> None:
    connection, _other = ends
    assert connection.receive(0.01) is None


def test_an_end_that_is_gone_is_noticed_on_reading(ends: tuple[TcpConnection, socket.socket]) -> None:
    connection, other = ends
    other.close()
    connection.send({"a": 1})
    connection.send({"a": 2})
    assert connection.receive(5.0) is None
    assert connection.closed
