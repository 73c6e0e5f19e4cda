"""Files: what is no profile, what is never lost, what is never replaced, and what is never shared."""

import getpass
import os
import platform
import resource
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import ProfileError, UsageError
from autotune.knobs.task_facts import LeftOut
from autotune.profiles import file, places
from autotune.profiles.format import Failure, Profile
from tests.doubles.profiles import profile

TEXT = file.dump(profile())
HOST, USER = "gpu-box-17", "grace"
UUID = "GPU-1b2c3d4e-1111-2222-3333-444455556666"


# Reading --------------------------------------------------------------------------------------------------------------


def test_things_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, words in (
        (tmp_path / "none", "no such file"),
        (Path(__file__), "is a script, not a profile"),
        (tmp_path, "cannot be read"),
        (tmp_path / "fifo", "plain"),
    ):
        with pytest.raises(ProfileError, match=words):
            file.read(path)


# Writing --------------------------------------------------------------------------------------------------------------


def test_write_makes_folders_of_any_name_and_leaves_no_rubbish(tmp_path: Path) -> None:
    path = tmp_path / 'it\'s "a"\nfolder' / "b" / os.fsdecode(b"p '\n\"\xe9.yaml")
    assert file.read(file.write(path, profile())) == profile()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_long_evidence_is_trimmed_rather_than_lost() -> None:
    crowd = tuple(Failure("crashed", f"{k} " + "ä" * 900, {"threads": k + 1}) for k in range(900))
    long = profile(evidence=replace(profile().evidence, failures=crowd, not_offered=(LeftOut("a", 1, "b"),) * 900))
    text = file.dump(long)
    assert len(text.encode()) <= file.MAX_BYTES
    assert file.parse(text, "p.yaml").levels == profile().levels


def test_a_profile_that_breaks_the_format_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"baseline\.settings\.threads: 5000 is not a whole number"):
        file.write(tmp_path / "p.yaml", profile(baseline=profile().baseline.but(threads=5000)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["/proc/p.yaml", "/dev/null/p.yaml"])
def test_a_folder_that_cannot_be_written(place: str) -> None:
    with pytest.raises(ProfileError, match=r"cannot be written \(.*\)$") as caught:
        file.write(place, profile())
    assert place in str(caught.value)
    with pytest.raises(UsageError, match="a profile cannot be written there"):
        places.checked_place(Path(place))
    with pytest.raises(UsageError, match=r"^s3://bucket/p\.yaml: is a URL\. Name a file: `autotune profiles push`"):
        places.checked_place(Path("s3://bucket/p.yaml"))


def full(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_keeps_the_old_file_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file.write(tmp_path / "p.yaml", profile())
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ProfileError, match="No space left on device"):
            file.write(path, profile(recommended="safe"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ProfileError, match="File too large"):
            file.write(path, profile(recommended="safe"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read(path) == profile()
    assert [item.name for item in tmp_path.iterdir()] == ["p.yaml"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ProfileError):
            file.write(tmp_path / "new" / "folders" / "p.yaml", profile())
    assert not (tmp_path / "new").exists()


def interrupted(rate: float) -> Profile:
    """What an interrupted run writes."""
    return profile(baseline_rate=rate, evidence=replace(profile().evidence, partial=True))


@pytest.mark.parametrize("there", [TEXT, "schema: another\n", ""])
def test_an_interrupted_run_replaces_nothing_but_its_own_kind(tmp_path: Path, there: str) -> None:
    path, beside = tmp_path / "p.v2.yaml", tmp_path / "p.v2.partial.yaml"
    path.write_text(there, "utf-8")
    for rate in (1.5, 2.5):
        assert file.write(path, interrupted(rate)) == beside
        assert file.read(beside) == interrupted(rate)
        header = beside.read_text("utf-8")
        assert 'autotune.load("p.v2.partial.yaml")' in header
        assert "autotune run --profile p.v2.partial.yaml train.py" in header
    assert path.read_text("utf-8") == there
    beside.write_text(there, "utf-8")
    assert file.write(path, interrupted(3.5)).name == "p.v2.partial.partial.yaml"
    assert (path.read_text("utf-8"), beside.read_text("utf-8")) == (there, there)


def test_a_complete_run_replaces_an_interrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    for made in (interrupted(1.5), interrupted(2.5), profile()):
        assert file.write(path, made) == path
        assert file.read(path) == made


# What is never replaced -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["device", "pipe", "link", "dangling link", "loop", "folder"])
def test_only_plain_files_are_replaced(kind: str, tmp_path: Path) -> None:
    """Before, a device became a file: root in a container lost its ``/dev/null``."""
    path, own = tmp_path / "out.yaml", tmp_path / "own.yaml"
    own.write_text("precious")
    if kind == "device":
        path = Path("/dev/null")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"link": own, "dangling link": tmp_path / "none", "loop": path}[kind])
    mode = path.lstat().st_mode
    with pytest.raises(UsageError, match="is a folder" if kind == "folder" else "only plain files are replaced"):
        places.checked_place(path)
    if kind != "device":  # of which another test would be left without, if this one failed
        assert file.write(path, interrupted(1.5)) == tmp_path / "out.partial.yaml"
        with pytest.raises(ProfileError, match="only plain files are replaced"):
            file.write(path, profile())
    assert path.lstat().st_mode == mode
    assert own.read_text() == "precious"


def test_a_finished_run_that_cannot_be_written_is_written_elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert file.save(tmp_path / "own.yaml", profile()) == (tmp_path / "own.yaml", "")
    for there in ("data", "temporary"):
        (tmp_path / there).mkdir()
        place, why = file.save(Path("/proc/none/own.yaml"), profile())
        assert file.read(place) == profile()
        assert place.is_relative_to(tmp_path / there)
        assert "/proc/none" in why
        monkeypatch.setattr(places, "user_folder", lambda _script: None)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProfileError, match=r"own\.yaml.*No space left"):
        file.save(Path("own.yaml"), profile())


def test_one_script_with_other_arguments_replaces_its_profile_with_a_word(tmp_path: Path) -> None:
    path, small = tmp_path / "train.yaml", profile()
    large = replace(small, target=replace(small.target, parameters=10**9))
    assert [file.save(path, each)[1] for each in (small, small)] == ["", ""]
    partial = replace(large, evidence=replace(large.evidence, partial=True))
    assert file.save(path, partial) == (tmp_path / "train.partial.yaml", "")
    assert "--name keeps both" in file.save(path, large)[1]
    assert file.read(path) == large


def test_a_proven_profile_that_another_run_replaces_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a short run on a busy machine proved nothing, and the proven profile was gone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found, path = profile(), tmp_path / "train.yaml"
    unproven = {name: replace(own, proven=False) for name, own in found.levels.items()}
    file.save(path, found)
    _where, said = file.save(path, replace(found, levels=unproven))
    (kept,) = tmp_path.glob("cache/**/*.before.yaml")
    assert str(kept) in said
    assert file.read(kept) == found


# What is never shared -------------------------------------------------------------------------------------------------


def test_no_host_user_path_or_uuid_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: f"{HOST}.corp.example")
    monkeypatch.setattr(getpass, "getuser", lambda: USER)
    talk = f"{USER}@{HOST} ({HOST}.corp.example): {tmp_path}/model.py, ~/secret.py and C:\\Users\\x failed on {UUID}"
    level = replace(profile().level(), note=talk)
    evidence = replace(
        profile().evidence,
        failures=(Failure("crashed", talk, {"threads": talk}),),
        not_offered=(LeftOut("compile", talk, talk),),
        warnings=(talk,),
    )
    told = profile(evidence=evidence, levels={"amp": level, "max": level}, software={"blas": talk})
    text = file.write(tmp_path / "p.yaml", told).read_text("utf-8")
    for secret in (HOST, USER, UUID, UUID[4:], str(tmp_path), "model.py", "secret.py", "Users", str(Path.home()) + "/"):
        assert secret not in text, secret
    assert "<name>@<name>" in text


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        *(
            (each, each)
            for each in ("/dev/shm has 64 MiB free", "fp32/bf16", "2 x 4 threads: a/b", "see /proc/meminfo")
        ),
        (" a\n\tb\x1b[31m\u202e ", "a b?[31m?"),
        ("x" * 600, "x" * 497 + "..."),
    ],
)
def test_texts_become_one_printable_line_and_honest_reasons_stay_whole(text: str, shared: str) -> None:
    assert file.public(text, ()) == shared


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4242")

    monkeypatch.setattr(getpass, "getuser", nameless)
    monkeypatch.setattr(platform, "node", lambda: HOST)
    assert file.private_names() == (HOST,)
