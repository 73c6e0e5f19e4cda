"""Registries at URLs, on real servers and in memory; servers that are down, slow or lie."""

import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import ProfileError
from autotune.probes.system import System
from autotune.profiles import file, registry
from autotune.profiles.match import COMPATIBLE, EXACT
from autotune.profiles.registry import Registry
from tests.doubles.profiles import MACHINE, find, here, profile, put
from tests.doubles.servers import Lying, folder_server, serving

pytest.importorskip("aiohttp")
NEAR = replace(MACHINE, key="amd-epyc-zen4-4c-32g", threads=4, cores=4)
NAME = f"{MACHINE.key}/resnet.yaml"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_web_server_over_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    put(root)
    with folder_server(root) as (url, asked):
        match = find(here(), [url])
        assert (match.verdict, match.source) == (EXACT, f"{url}/{NAME}")
        assert asked == [f"/{NAME}"]
        assert find(here(NEAR), [url]) is None  # it is not listed
        with pytest.raises(ProfileError, match=f"^{url}: a web server is not listed"):
            Registry(url).names()
        assert find(here(), [f"{url}?token=secret-word"]) is not None
        assert asked[-1] == f"/{NAME}?token=secret-word"
    assert registry.local(match) == tmp_path / "cache" / "torch-autotune" / "registries" / NAME
    assert file.read(registry.local(match)) == profile()
    assert registry.search(here(), [url]).match is None  # it is down


def test_registries_that_do_not_answer_are_asked_once_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, together = list[str](), threading.Barrier(2, timeout=60)

    def down(url: str) -> bytes:
        asked.append(url)
        together.wait()
        raise ProfileError(f"down: {url[:9]}")

    monkeypatch.setattr(registry, "read_url", down)
    found = registry.search(here(), ["http://a/x", "http://b/x"])
    assert len(asked) == 2
    assert found.notes == ("skipped down: http://a/", "skipped down: http://b/")


def test_a_profile_at_a_url_is_kept_for_when_it_is_down(tmp_path: Path) -> None:
    put(tmp_path / "shared")
    with folder_server(tmp_path / "shared") as (server, _asked):
        url = f"{server.replace('//', '//me:secret-word@')}/{NAME}?token=secret-word"
        found = registry.of_file(url, here())
        assert (found.profile, found.verdict, found.source) == (profile(), EXACT, f"{server}/{NAME}")
        with pytest.raises(ProfileError, match=r"other\.yaml: no such file$"):
            registry.of_file(f"{server}/other.yaml", here())
    kept = registry.of_file(url, here())
    assert (kept.profile, kept.source) == (profile(), f"{server}/{NAME}, as it was read before")
    assert "secret-word" not in str(kept.path)


@pytest.mark.parametrize("cache", ["none", "read only"])
def test_without_a_cache_it_works_and_leaves_the_working_folder_alone(cache, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    where = Path("/proc/none") if cache == "read only" else None
    monkeypatch.setattr(System, "cache_folder", lambda _system: where)
    put(tmp_path / "shared")
    with folder_server(tmp_path / "shared") as (url, _asked):
        match = find(here(), [url])
    assert file.read(registry.local(match)) == profile()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("torch-autotune-")] == ["shared"]


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that lies, and a time limit that suits a test."""
    monkeypatch.setattr(registry, "SECONDS", 0.5)
    stop = threading.Event()
    with serving(type("Handler", (Lying,), {"stop": stop})) as url:
        yield url
        stop.set()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("garbage", "is not UTF-8 text"),
        ("endless", "is larger than 64 KB"),
        ("slow", "no answer within 0.5 s"),
        ("around", "redirects more than 3 times"),
        ("inside", "is an address of the machine's own network, which is not followed"),
        ("broken", "cannot be read or written (HTTP status 500)"),
        ("short", "cannot be read or written (ClientPayloadError)"),
    ],
)
def test_a_lying_server_is_named_and_skipped(path: str, words: str, liar: str) -> None:
    found = registry.search(here(), [f"{liar}/{path}"])
    assert found.match is None
    assert words in found.notes[0]
    assert f"{liar}/{path}" in found.notes[0] or path == "inside"
    assert "secret-word" not in "".join(found.notes)


def test_no_message_and_no_log_holds_credentials(caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    url = "http://user:secret-word@127.0.0.1:9/profiles?token=secret-word#secret-word"
    found = registry.search(here(), [url])
    with pytest.raises(ProfileError) as error:
        registry.read_url(url)
    said = "".join([*found.notes, str(error.value), Registry(url).shown, *capfd.readouterr()])
    assert "secret-word" not in said
    assert "http://127.0.0.1:9/profiles" in said
    assert "secret-word" not in "".join(record.getMessage() for record in caplog.records if record.name != "asyncio")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.org/p", "https://example.org/p: files can only be read there"),
        ("foo://x", "foo://x/k/t.yaml: foo:// is no scheme that fsspec knows$"),
        ("htp://x", r"htp:// is no scheme that fsspec knows; did you mean http\?$"),
        ("gs://bucket/x", r"gs://bucket/x/k/t.yaml: a package is missing \(.*torch-autotune\[remote\]"),
    ],
)
def test_what_cannot_be_written_is_said(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # type: ignore[arg-type]
    with pytest.raises(ProfileError, match=words):
        Registry(url).write("k/t.yaml", "")


def test_what_fsspec_knows_is_shared_by_machines() -> None:
    shared = "memory://team/profiles"
    one = Registry(shared)
    assert (one.names(), one.read(NAME)) == ([], None)
    one.write(NAME, file.dump(profile(), "resnet.yaml"))
    one.write(f"{NEAR.key}/other.yaml", "x" * 99_999)
    match = find(here(), [shared])
    assert (match.profile, match.verdict, match.source) == (profile(), EXACT, f"{shared}/{NAME}")
    assert one.names() == [f"{NEAR.key}/other.yaml", NAME]
    assert len(one.read(f"{NEAR.key}/other.yaml") or b"") == file.MAX_BYTES + 1
    near = find(here(NEAR), [shared])
    assert (near.verdict, registry.local(near).is_file()) == (COMPATIBLE, True)


def test_what_fails_there_is_named_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_arguments: object, **_options: object) -> None:
        raise PermissionError("secret-word")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.glob", forbidden)
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.cat_file", forbidden)
    found = registry.search(here(), ["memory://x"])
    assert (found.match, found.notes) == (
        None,
        (f"skipped memory://x/{NAME}: cannot be read or written (PermissionError)",),
    )
