"""Commands on profiles: show, validate, diff, export, and those of ``autotune profiles``."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.profiles.registry import Registry
from autotune.trial.target import NEW_TASK
from tests.doubles.profiles import MACHINE, profile
from tests.doubles.servers import folder_server
from tests.doubles.simulation.simulator import inventory
from tests.unit.cli.conftest import Say, set_machine


def test_answers_as_objects(say: Say, saved: Path, foreign: Path, machine: Inventory) -> None:
    kind = machine_type(machine)
    place = profiles.write(Path("profiles") / kind.key / "resnet.yaml", profile(kind))
    Path("resnet.py").touch()
    own = {"source": str(place), "target": "resnet", "key": kind.key}
    expected: dict[tuple[object, ...], dict[str, object]] = {
        ("show", saved): {"schema": "autotune.profile", "recommended": "amp"},
        ("validate", saved): {"path": str(saved), "schema": "autotune.profile", "key": kind.key, "target": "resnet"},
        ("validate", "resnet.py"): {"path": str(place)},
        ("validate", "other.py"): {"exit_code": 2},
        ("diff", saved, foreign): {"machine.key": [kind.key, MACHINE.key]},
        ("profiles", "match", "resnet"): {"source": str(place), "verdict": "exact", "notes": []},
        ("profiles", "match", "x"): {"source": None, "verdict": "none"},
        ("profiles", "list"): {"profiles": [own]},
        ("show", "gone.yaml"): {"exit_code": 2, "traceback": None},
    }
    for words, data in expected.items():
        said = say(*map(str, words), "--json")
        assert data.items() <= json.loads(said.out).items(), words
    assert say("validate", foreign).out == f"{foreign}: valid autotune.profile for {MACHINE.key}, target resnet\n"


def test_list_of_nothing_and_of_one(say: Say, foreign: Path, elsewhere: Path) -> None:
    nothing = say("profiles", "list")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err.startswith("no profiles in profiles or ")
    assert nothing.err.endswith("make one: autotune tune train.py\n")
    path = elsewhere / "profiles" / MACHINE.key / "resnet.yaml"
    path.parent.mkdir(parents=True)
    foreign.rename(path)
    (path.parent / "broken.yaml").touch()
    said = say("profiles", "list")
    assert said.code == 0
    own = f"profiles/{MACHINE.key}"
    lines = said.out.splitlines()
    assert lines[0].startswith(f"{own}/broken.yaml: is empty")
    assert lines[1] == f"{own}/resnet.yaml  resnet on {MACHINE.key}"


def test_what_does_not_fit_here_is_said(say: Say, foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_machine(monkeypatch, inventory(2, 2))
    said = say("export", foreign, "--to", "lightning")
    assert "# threads: asked 8, applied 2" in said.out
    assert "\ntorch.set_num_threads(2)\n" in said.out
    for arguments, words in (("torchun", "did you mean torchrun?"), ("env --level fast", "the profile has safe")):
        said = say("export", foreign, "--to", *arguments.split())
        assert (said.code, words in said.err, said.err.count("\n")) == (2, True, 1)


def test_pushed_once_matched_pulled_and_removed(say: Say, saved: Path, machine: Inventory, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    key, shared = machine_type(machine).key, tmp_path / "shared"
    assert say("profiles", "push", saved, "--to", shared)[:2] == (0, f"{shared}/{key}/resnet.yaml\n")
    assert "is there already" in say("profiles", "push", saved, "--to", shared)[1]
    with folder_server(shared) as (url, _asked):
        os.environ["AUTOTUNE_PROFILES"] = url
        try:
            code, out, _err = say("profiles", "match", "resnet")
            assert (code, out) == (0, f"{url}/{key}/resnet.yaml (exact)\n")
            code, out, err = say("profiles", "list")
            assert (code, out) == (0, "")
            assert f"{url}: a web server is not listed; autotune profiles match TARGET looks there" in err
            assert f"or {url}" not in err
            assert say("profiles", "pull", "resnet")[0] == 2  # nobody to ask
            code, out, err = say("profiles", "pull", "resnet", "--yes", "--to", "own")
            assert (code, out) == (0, f"own/{key}/resnet.yaml\n")
            digest = hashlib.sha256((shared / key / "resnet.yaml").read_bytes()).hexdigest()
            assert digest in err
            assert say("profiles", "pull", f"{url}/{key}/resnet.yaml", "--yes", "--sha256", digest)[0] == 0
            refused = say("profiles", "pull", f"{url}/{key}/resnet.yaml", "--yes", "--sha256", "0" * 64)
            assert refused[0] == 2
            assert "nothing was written" in refused[2]
        finally:
            del os.environ["AUTOTUNE_PROFILES"]
    assert profiles.read(Path("own") / key / "resnet.yaml") == profiles.read(saved)
    assert say("profiles", "match", "resnet")[0] == 0  # what was pulled is the user's own now


def test_another_profile_is_replaced_only_on_request(say: Say, saved: Path, tmp_path: Path) -> None:
    say("profiles", "push", saved, "--to", "shared")
    other = profiles.write(tmp_path / "other.yaml", replace(profiles.read(saved), recommended="safe"))
    code, _out, err = say("profiles", "push", other, "--to", "shared")
    assert (code, "give --replace" in err) == (2, True)
    assert say("profiles", "push", other, "--to", "shared", "--replace")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["push", "tuned.yaml"], "no registry: give --to"),
        (["pull"], "name the target"),
        (["pull", "resnet"], "no registry: give --from"),
        (["pull", "resnet", "--from", "nosuchdir"], "nosuchdir: no such folder"),
        (["pull", "resnet", "--from", "shared", "--yes", "--to", "/proc/x"], "Choose another place: --to FOLDER"),
        (["push", "tuned.yaml", "--to", "/proc/x"], "cannot be written (No such file or directory)\n"),
        (["push", "tuned.yaml", "--to", "tuned.yaml"], "tuned.yaml: is no folder. Name the registry's: --to"),
        (["push", "tuned.yaml", "--to", "linked"], "only plain files are replaced"),
        (["push", "tuned.yaml", "--to", "s3://"], "s3://: names no bucket, server or folder"),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], said: str, say: Say, saved: Path) -> None:
    say("profiles", "push", saved, "--to", "shared")
    made = profiles.read(saved)
    Path("linked", made.key).mkdir(parents=True)
    Path("linked", made.key, "resnet.yaml").symlink_to("nowhere.yaml")
    code, _out, err = say("profiles", *words)
    assert code == 2
    assert said in err
    assert "--profile" not in err


@pytest.mark.usefixtures("saved")
def test_where_nothing_fits_nothing_is_usable(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    code, _out, err = say("profiles", "pull", "resnet", "--from", "empty")
    assert (code, "no profile fits" in err) == (4, True)
    monkeypatch.setenv("AUTOTUNE_PROFILES", "empty:nosuchdir")
    code, _out, err = say("profiles", "pull", "resnet")
    assert (code, "nosuchdir: no such folder" in err) == (4, True)
    assert say("profiles", "match", "resnet")[0] == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: replace(one, evidence=replace(one.evidence, partial=True)), "interrupted run"),
        (lambda one: replace(one, evidence=replace(one.evidence, busy=True)), "measured on a busy machine"),
    ],
)
def test_what_others_cannot_rely_on_is_not_shared(change, words, say: Say, saved: Path, tmp_path: Path) -> None:
    path = profiles.write(tmp_path / "other.yaml", change(profiles.read(saved)))
    code, _out, err = say("profiles", "push", path, "--to", "shared")
    assert (code, words in err, Path("shared").exists()) == (2, True, False)
    assert say("profiles", "push", path, "--to", "shared", "--force").code == (0 if "busy" in words else 2)


def test_a_url_of_a_bucket_is_listed_by_name(say: Say, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILES", "memory://bucket/team")
    assert say("profiles", "push", saved).out.startswith("memory://bucket/team/")
    Registry("memory://bucket/team").write("key/\x1b.yaml", "")
    code, out, err = say("profiles", "list")
    key = profiles.read(saved).key
    assert say("validate", f"memory://bucket/team/{key}/resnet.yaml").code == 0
    assert (code, out, err) == (0, f"memory://bucket/team/{key}/resnet.yaml  resnet\n", "")


def test_a_file_that_does_not_fit_is_refused(say: Say, saved: Path) -> None:
    theirs = profiles.read(saved)
    profiles.write(saved, replace(theirs, target=replace(theirs.target, device="cuda")))
    code, out, _err = say("profiles", "match", "tuned.yaml")
    assert (code, "(none)" in out, "device: profile cuda, here cpu" in out) == (4, True, True)


LONG = "n" * 300


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "words",
    [
        *(f"{command} {LONG}.yaml" for command in ("show", "report", "profiles match", "profiles push --to x")),
        *(f"{command} {LONG}.py" for command in ("tune", "run", "init")),
        f"profiles pull {LONG} --from {LONG}",
        f"diff tuned.yaml {LONG}.yaml",
        f"check tuned.yaml {LONG}.py",
        f"export {LONG}.yaml --to env",
        f"tune model.py --profile {LONG}.yaml",
        f"report tuned.yaml --out {LONG}.html",
    ],
)
def test_a_name_of_300_letters_is_one_line(words: str, say: Say) -> None:
    Path("model.py").write_text(NEW_TASK)
    code, out, err = say(*words.split())
    assert (code in (2, 4), out) == (True, "")
    assert err.count("\n") <= 2
    assert LONG[:50] in err


def test_a_working_folder_that_was_deleted_is_one_line(say, tmp_path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    code, out, err = say("profiles", "list", "--json")
    assert (code, err) == (2, "autotune: the working folder was deleted: change to another\n")
    assert json.loads(out)["error"] in err
    monkeypatch.chdir(tmp_path)


def test_a_profile_of_another_target_is_not_replaced(say: Say, saved: Path) -> None:
    Path("model.py").write_text(NEW_TASK)
    before = saved.read_text()
    code, _out, err = say("tune", "--profile", saved, "model.py")
    assert (code, "is the profile of 'resnet', not of 'model'" in err, saved.read_text()) == (2, True, before)
    assert say("tune", "--name", "a/b", "model.py").code == 2
