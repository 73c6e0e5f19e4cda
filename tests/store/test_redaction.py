"""An exported profile tells nothing about who made it and where."""

from __future__ import annotations

import getpass
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.profile import Failure, NotOffered
from autotune.store import profiles, redaction

from .records import profile

HOST, USER = "gpu-box-17", "grace"
UUID = "GPU-1b2c3d4e-1111-2222-3333-444455556666"


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host and a user with names of their own."""
    monkeypatch.setattr(platform, "node", lambda: f"{HOST}.corp.example")
    monkeypatch.setattr(getpass, "getuser", lambda: USER)


@pytest.mark.usefixtures("identity")
def test_no_host_user_path_or_uuid_is_exported(tmp_path: Path) -> None:
    talk = f"{USER}@{HOST} ({HOST}.corp.example): {tmp_path}/model.py, ~/secret.py and C:\\Users\\x failed on {UUID}"
    level = replace(profile().level(), note=talk)
    evidence = replace(
        profile().evidence,
        failures=(Failure("crashed", talk, {"threads": talk}),),
        not_offered=(NotOffered("compile", talk, talk),),
        warnings=(talk,),
    )
    told = profile(evidence=evidence, levels={"safe": level, "amp": level, "max": level}, software={"blas": talk})
    text = profiles.write(tmp_path / "p.yaml", told).read_text("utf-8")
    for secret in (HOST, USER, UUID, UUID[4:], str(tmp_path), "model.py", "secret.py", "Users", str(Path.home()) + "/"):
        assert secret not in text, secret
    assert "<name>@<name>" in text


@pytest.mark.parametrize(
    "text",
    ["/dev/shm has 64 MiB free", "1240 samples/s", "fp32/bf16", "2 x 4 threads: a/b", "see /proc/meminfo", "n/a"],
)
def test_honest_reasons_stay_whole(text: str) -> None:
    assert redaction.redact(text, (), 500) == text


def test_texts_become_one_printable_line() -> None:
    assert redaction.redact(" a\n\tb\x1b[31m\u202e ", (), 500) == "a b?[31m?"
    assert redaction.redact("x" * 600, (), 500) == "x" * 497 + "..."


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.setattr(platform, "node", lambda: HOST)
    assert redaction.private_names() == (HOST,)
