"""Messages between the tuner and its processes, and exceptions of the user's code in them."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.decoding import decoded
from autotune.trial.messages import MAX_MESSAGE, OURS, UnixConnection, error_report, user_traceback
from autotune.trial.target import Script
from tests.doubles.inspections import facts, inspection
from tests.unit.trial.test_several_processes import ALONE

Ends = tuple[UnixConnection, UnixConnection]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = UnixConnection.pair()
    for end in (ours, theirs):
        end.socket.settimeout(5.0)
    yield ours, theirs
    ours.close()
    theirs.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=st.dictionaries(st.text(max_size=9), PLAIN, max_size=5))
def test_messages_arrive_whole(ends: Ends, message: dict[str, object]) -> None:
    ends[0].send(message)
    assert ends[1].receive() == (message, [])


def test_two_writers_of_one_end_do_not_mix(ends: Ends) -> None:
    second = UnixConnection.from_fd(os.dup(ends[0].fileno()))
    for number in range(10):
        ends[0].send({"from": "first", "number": number, "pad": "a" * 3000})
        second.send({"from": "second", "number": number, "pad": "b" * 3000})
    received = [ends[1].receive()[0] for _ in range(20)]
    for writer in ("first", "second"):
        own = [message["number"] for message in received if message and message["from"] == writer]
        assert own == list(range(10))
    second.close()


@pytest.mark.parametrize("length", [1, MAX_MESSAGE])
def test_descriptors_are_passed(ends: Ends, length: int) -> None:
    read_end, write_end = os.pipe()
    ends[0].send({"request": "x" * length}, (write_end,))
    os.close(write_end)
    message, fds = ends[1].receive()
    assert message == {"request": "x" * length}
    assert len(fds) == 1
    os.write(fds[0], b"through")
    os.close(fds[0])
    assert os.read(read_end, 100) == b"through"
    assert os.read(read_end, 100) == b"", "no other copy of the write end is open"
    os.close(read_end)


def test_nothing_of_a_long_message_is_left_out(ends: Ends) -> None:
    report = {"error": "é" * MAX_MESSAGE, "notes": ["显" * MAX_MESSAGE], "losses": [0.123456789] * MAX_MESSAGE}
    before = len(os.listdir("/dev/fd"))
    ends[0].send({"event": "report", "report": report})
    ends[0].send({"event": "next"})
    assert ends[1].receive() == ({"event": "report", "report": report}, [])
    assert ends[1].receive() == ({"event": "next"}, [])
    assert len(os.listdir("/dev/fd")) == before


SENT = [
    replace(facts(), current={"persistent_workers": True, "prefetch_factor": None}, warnings=("BatchNorm", "é 显")),
    replace(facts(), samples=None, why_not_several="the loss is no mean over samples", optimizer_impls=("fused",)),
    inspection(loop=0.3),
    ALONE,
    Script(Path("train.py"), ("--epochs", "3", "--", "a b", ""), "./train.py", line=("torchrun", "train.py")),
]


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: type(sent).__name__)
def test_what_processes_tell_each_other_comes_back(sent: Any) -> None:
    assert decoded(type(sent), json.loads(json.dumps(asdict(sent), default=os.fspath))) == sent


class TestGone:
    def test_what_was_sent_before_still_arrives(self, ends: Ends) -> None:
        ends[0].send({"event": "last words"})
        ends[0].close()
        assert ends[1].receive()[0] == {"event": "last words"}
        assert ends[1].receive() == (None, [])

    def test_unread_messages_at_the_other_end_are_no_error_here(self, ends: Ends) -> None:
        ends[1].send({"unread": True})
        ends[0].close()
        assert ends[1].receive() == (None, [])


class Custom(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("bad"), "ValueError", "bad"),
        (SystemExit(3), "SystemExit", "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (Custom("mine"), f"{__name__}.Custom", "mine"),
    ],
)
def test_type_and_text(error: BaseException, kind: str, text: str) -> None:
    found = error_report(error)
    assert (found.error_type, found.error) == (kind, text)
    assert found.traceback.strip()


def test_an_error_of_our_own_keeps_its_whole_traceback() -> None:
    ours = compile("raise RuntimeError('ours')", f"{OURS}/trial/imagined.py", "exec")
    with pytest.raises(RuntimeError) as error:
        exec(ours)
    inner = error.value.__traceback__.tb_next if error.value.__traceback__ else None
    error.value.__traceback__ = inner
    assert "imagined.py" in user_traceback(error.value)
