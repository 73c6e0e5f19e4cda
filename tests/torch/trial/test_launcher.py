"""Ranks that meet through MPI ask the launcher what they would ask mpiexec."""

import socket

from autotune.trial.child.launcher import ProcessManager


def test_ranks_meet_and_find_what_the_other_has_put() -> None:
    manager = ProcessManager(2, "job")
    first, second = (socket.socket(fileno=int(manager.environment(rank)["PMI_FD"])) for rank in range(2))
    manager.serve()
    with first, second, first.makefile("rw") as one, second.makefile("rw") as other:

        def ask(stream, question: str) -> str:
            stream.write(question + "\n")
            stream.flush()
            return stream.readline().strip() if question != "cmd=barrier_in" else ""

        assert ask(one, "cmd=put kvsname=job key=card value=port#1=2") == "cmd=put_result rc=0"
        for stream in (one, other):
            ask(stream, "cmd=barrier_in")
        assert [stream.readline().strip() for stream in (one, other)] == ["cmd=barrier_out rc=0"] * 2
        assert ask(other, "cmd=get key=card").endswith("value=port#1=2")
        assert "not_supported" in ask(other, "cmd=spawn")
