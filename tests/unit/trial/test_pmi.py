"""The connection protocol as MPICH speaks it; `test_misbehaving` runs MPI itself over it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from autotune.trial.child.launcher import ProcessManager

PATIENCE = 10.0


class Rank:
    """A rank's end of the conversation."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.socket.settimeout(PATIENCE)
        self.lines = self.socket.makefile("r")

    def ask(self, text: str) -> str:
        """One line there, one line back."""
        self.tell(text)
        return self.hear()

    def tell(self, text: str) -> None:
        self.socket.sendall(f"{text}\n".encode())

    def hear(self) -> str:
        return self.lines.readline().rstrip("\n")

    def leave(self) -> None:
        self.lines.close()
        self.socket.close()


@pytest.fixture
def ranks() -> Iterator[list[Rank]]:
    """Two ranks of one manager, in this very process."""
    manager = ProcessManager(2, "autotune-x")
    found = [Rank(os.dup(pair[1].fileno())) for pair in manager._pairs]
    manager.serve()
    yield found
    for rank in found:
        rank.leave()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"),
        ("cmd=get_appnum", "cmd=appnum appnum=0 rc=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=autotune-x rc=0"),
        ("cmd=get_universe_size", "cmd=universe_size size=2 rc=0"),
        ("cmd=get kvsname=x key=PMI_process_mapping", "cmd=get_result rc=0 value=(vector,(0,1,2))"),
        ("cmd=get kvsname=x key=unknown", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        ("cmd=finalize", "cmd=finalize_ack rc=0"),
        ("cmd=spawn", "cmd=spawn rc=-1 msg=not_supported"),
        ("nonsense", "cmd= rc=-1 msg=not_supported"),
    ],
    ids=lambda text: text.split(" ")[0],
)
def test_answers(ranks: list[Rank], question: str, answer: str) -> None:
    assert ranks[0].ask(question) == answer


def test_what_one_rank_puts_the_other_gets(ranks: list[Rank]) -> None:
    assert ranks[0].ask("cmd=put kvsname=x key=address value=a=b;c") == "cmd=put_result rc=0"
    assert ranks[1].ask("cmd=get kvsname=x key=address") == "cmd=get_result rc=0 value=a=b;c"


def test_a_barrier_opens_when_all_are_there(ranks: list[Rank]) -> None:
    for _ in range(2):
        ranks[0].tell("cmd=barrier_in")
        assert ranks[1].ask("cmd=get_appnum") == "cmd=appnum appnum=0 rc=0", "others are served meanwhile"
        ranks[1].tell("cmd=barrier_in")
        assert [rank.hear() for rank in ranks] == ["cmd=barrier_out rc=0"] * 2


def test_lines_may_come_in_pieces_and_together(ranks: list[Rank]) -> None:
    ranks[0].socket.sendall(b"cmd=get_app")
    assert ranks[1].ask("cmd=get_appnum") == "cmd=appnum appnum=0 rc=0"
    ranks[0].socket.sendall(b"num\ncmd=finalize\n")
    assert [ranks[0].hear(), ranks[0].hear()] == ["cmd=appnum appnum=0 rc=0", "cmd=finalize_ack rc=0"]


def test_a_forked_rank_keeps_only_its_own_end() -> None:
    manager = ProcessManager(2, "autotune-x")
    found = manager.environment(1)
    try:
        assert (found["PMI_RANK"], found["PMI_SIZE"]) == ("1", "2")
        assert os.get_inheritable(int(found["PMI_FD"]))
        assert [end.fileno() for pair in manager._pairs for end in pair] == [-1] * 4
    finally:
        os.close(int(found["PMI_FD"]))
