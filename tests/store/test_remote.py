"""Registries at URLs, on real servers: http, S3 and git; copies for offline; servers that are down, slow or lie."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.errors import ProfileError
from autotune.core.machine import MachineType
from autotune.core.match import COMPATIBLE, EXACT, Here
from autotune.store import fetch, layout, profiles, registry
from autotune.store.folder import Folder
from autotune.store.places import Signed
from autotune.store.remote import Remote

from .records import MACHINE, find, profile
from .servers import Lying, folder_server, serving

pytest.importorskip("aiohttp")
NEAR = replace(MACHINE, key="amd-epyc-zen4-4c-32g", threads=4, cores=4)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def here(machine: MachineType = MACHINE, target: str = "resnet") -> Here:
    return Here(machine, profile().software, target)


def put(root: Path, machine: MachineType = MACHINE, target: str = "resnet") -> None:
    Folder(root).put(machine.key, f"{target}.yaml", profiles.dump(profile(machine, target), f"{target}.yaml"))


def test_a_web_server_over_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    put(root)
    put(root, replace(MACHINE, key="intel-other-2c-4g", family="other"))
    with folder_server(root) as (url, asked):
        found = registry.search(here(), [url])
        assert found.match is not None
        assert (found.match.verdict, found.match.source) == (EXACT, f"{url}/{MACHINE.key}/resnet.yaml")
        assert asked == [f"/{MACHINE.key}/resnet.yaml"]
        asked.clear()
        near = registry.search(here(NEAR), [url]).match
        assert near is not None
        assert near.verdict == COMPATIBLE
        assert len(asked) == 4  # the own file, the index, two machines
    again = registry.search(here(), [url])
    assert again.match is not None
    assert again.match.profile == profile()
    assert "copies of what was read before are used" in again.notes[0]
    assert registry.search(here(NEAR), [url]).match == near
    assert registry.search(here(target="other"), [url]).match is None


def test_copies_are_this_users_alone(tmp_path: Path) -> None:
    put(tmp_path / "shared")
    with folder_server(tmp_path / "shared") as (url, _asked):
        match = registry.search(here(), [url]).match
    assert match is not None
    assert match.path.is_relative_to(tmp_path / "cache")
    assert stat.S_IMODE(match.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(match.path.parent.stat().st_mode) == 0o700


def test_nothing_of_it_is_imported_without_a_url() -> None:
    code = "import sys, autotune.store.registry; print({'fsspec', 'aiohttp', 's3fs', 'torch'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(Path(profiles.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_registry_that_is_not_reached_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def down(url: str, _most: int = 0) -> bytes:
        asked.append(url)
        raise fetch.Unreachable("down")

    monkeypatch.setattr(fetch, "read", down)
    found = registry.search(here(), ["http://127.0.0.1:9"])
    assert (found.match, len(asked)) == (None, 1)
    assert found.notes == ("down: no copy can be used",)


def test_what_is_gone_there_is_forgotten_here(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    put(root)
    with folder_server(root) as (url, _asked):
        assert find(here(), [url]) is not None
        Folder(root).take_away(MACHINE.key, "resnet.yaml")
        assert find(here(), [url]) is None
    assert find(here(), [url]) is None


def test_a_poisoned_file_replaces_no_copy(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    put(root)
    with folder_server(root) as (url, _asked):
        assert find(here(), [url]) is not None
        layout.default_path(MACHINE.key, "resnet", root).write_text("!!python/object/apply:os.system [exit]")
        found = registry.search(here(), [url])
        assert found.match is None
        assert "tags are not allowed" in found.notes[0]
    assert find(here(), [url]) is not None


def test_without_a_cache_it_works_and_leaves_the_working_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("autotune.store.places.cache_folder", lambda: None)
    root = tmp_path / "shared"
    put(root)
    with folder_server(root) as (url, _asked):
        assert find(here(), [url]) is not None


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that lies, and time limits that suit a test."""
    monkeypatch.setattr(fetch, "SECONDS", 0.5)
    stop = threading.Event()
    before = set(threading.enumerate())
    with serving(type("Handler", (Lying,), {"stop": stop})) as url:
        yield url
        stop.set()
        for thread in set(threading.enumerate()) - before:
            if thread.name == "autotune-registry":
                thread.join(5)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("garbage", "is not UTF-8 text"),
        ("endless", "is larger than 64 KB"),
        ("slow", "no answer within 0.5 s"),
        ("around", "cannot be read or written (TooManyRedirects)"),
        ("broken", "cannot be read or written (HTTP status 500)"),
        ("short", "cannot be read or written (ClientPayloadError)"),
    ],
)
def test_a_lying_server_is_named_and_skipped(path: str, words: str, liar: str) -> None:
    found = registry.search(here(), [f"{liar}/{path}"])
    assert found.match is None
    assert words in found.notes[0]
    assert f"{liar}/{path}" in found.notes[0]
    assert "secret-word" not in "".join(found.notes)


def test_no_message_and_no_log_holds_credentials(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    url = "http://user:secret-word@127.0.0.1:9/profiles?token=secret-word#secret-word"
    found = registry.search(here(), [url])
    with pytest.raises(ProfileError) as error:
        fetch.read(url)
    said = "".join([*found.notes, str(error.value), Remote(url).shown, *capfd.readouterr()])
    assert "secret-word" not in said
    assert "http://127.0.0.1:9/profiles" in said
    assert "secret-word" not in "".join(record.getMessage() for record in caplog.records if record.name != "asyncio")


def test_a_web_server_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="only be read"):
        Remote("https://example.org/p").put(MACHINE.key, "resnet.yaml", "")
    with pytest.raises(ProfileError, match="only be read"):
        fetch.remove("http://example.org/p")


def test_what_only_this_process_could_read_is_not_written() -> None:
    with pytest.raises(ProfileError, match="nobody else could read it"):
        fetch.write("memory://profiles/x", b"")


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ProfileError, match=r"^foo://x: foo:// is no scheme that fsspec knows$"):
        fetch.read("foo://x")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
    with pytest.raises(ProfileError, match="a package is missing"):
        fetch.read("gs://bucket/x")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket on a real S3 server, as the environment names it."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    address, port = running.get_host_and_port()
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret-word",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{address}:{port}",
    }.items():
        patch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="profiles")
    yield "s3://profiles/team"
    patch.undo()
    running.stop()


def test_a_bucket_is_shared_by_machines(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = profiles.dump(profile(), "resnet.yaml")
    assert Remote(bucket).put(MACHINE.key, "resnet.yaml", text) == f"{bucket}/{MACHINE.key}/resnet.yaml"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another machine"))
    match = find(here(), [bucket])
    assert match is not None
    assert (match.profile, match.verdict) == (profile(), EXACT)
    near = find(here(NEAR), [bucket])
    assert near is not None
    assert near.verdict == COMPATIBLE
    Remote(bucket).take_away(MACHINE.key, "resnet.yaml")
    assert find(here(), [bucket]) is None
    with pytest.raises(ProfileError, match="no such profile"):
        Remote(bucket).take_away(MACHINE.key, "resnet.yaml")


def test_a_bucket_with_signed_profiles(bucket: str) -> None:
    pytest.importorskip("minisign")
    from .signing import make_key

    text, file = profiles.dump(profile(target="signed"), "signed.yaml"), "signed.yaml"
    with tempfile.TemporaryDirectory() as folder:
        key = make_key(Path(folder))
        Remote(bucket).put(MACHINE.key, file, text, key.signature(text.encode(), file))
    place = Signed(bucket, key.keys)
    assert find(here(target="signed"), [place]) is not None
    Remote(bucket).put(MACHINE.key, file, text.replace("recommended: amp", "recommended: safe"))
    assert "is not signed" in registry.search(here(target="signed"), [place]).notes[0]
    Remote(bucket).take_away(MACHINE.key, file)
    assert registry.search(here(target="signed"), [place]).notes == ()


def test_writers_at_once_lose_no_place_in_the_index(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    keys = [f"amd-epyc-zen4-{cores}c-8g" for cores in range(1, 7)]
    text = profiles.dump(profile(target="crowd"), "crowd.yaml")
    threads = [threading.Thread(target=Remote(bucket).put, args=(key, "crowd.yaml", text)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for key in keys:  # whoever was overwritten is named again by the next push
        Remote(bucket).put(key, "crowd.yaml", text)
    assert set(Remote(bucket).keys("crowd")) == set(keys)


def test_a_git_repository(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], check=True, timeout=60)

    origin, mine, yours = (tmp_path / name for name in ("origin.git", "mine", "yours"))
    git("init", "-q", "--bare", str(origin))
    git("clone", "-q", str(origin), str(mine))
    put(mine)
    git("-C", str(mine), "add", "-A")
    git("-C", str(mine), "commit", "-q", "-m", "a profile")
    git("-C", str(mine), "push", "-q", "origin", "HEAD")
    git("clone", "-q", str(origin), str(yours))
    match = find(here(), [yours])
    assert match is not None
    assert match.profile == profile()
    tracked = subprocess.run(["git", "-C", str(mine), "ls-files"], capture_output=True, text=True, check=True).stdout
    assert tracked.split() == [f"{MACHINE.key}/resnet.yaml", "index/resnet.txt"]
