"""``autotune profiles push``, ``pull`` and ``rm``, and how ``match`` explains itself."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import cli
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.stats.proof import Proof

from ..doubles.servers import folder_server
from .conftest import Say

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_pushed_once_matched_pulled_and_removed(say: Say, saved: Path, machine: Inventory, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    key, shared = machine_type(machine).key, tmp_path / "shared"
    assert say("push", saved, "--to", shared)[:2] == (0, f"{shared}/{key}/resnet.yaml\n")
    assert "is there already" in say("push", saved, "--to", shared)[1]
    with folder_server(shared) as (url, _asked):
        os.environ["AUTOTUNE_PROFILES"] = url
        try:
            code, out, _err = say("match", "resnet")
            assert (code, out) == (0, f"{url}/{key}/resnet.yaml (exact)\n")
            code, out, err = say("list")
            assert (code, out) == (0, "")
            assert f"{url}: a web server is not listed; autotune profiles match TARGET looks there" in err
            assert f"or {url}" not in err
            assert say("pull", "resnet")[0] == 2  # nobody to ask
            code, out, err = say("pull", "resnet", "--yes", "--to", "own")
            assert (code, out) == (0, f"own/{key}/resnet.yaml\n")
            digest = hashlib.sha256((shared / key / "resnet.yaml").read_bytes()).hexdigest()
            assert digest in err
            assert say("pull", f"{url}/{key}/resnet.yaml", "--yes", "--sha256", digest)[0] == 0
            refused = say("pull", f"{url}/{key}/resnet.yaml", "--yes", "--sha256", "0" * 64)
            assert refused[0] == 2
            assert "nothing was written" in refused[2]
        finally:
            del os.environ["AUTOTUNE_PROFILES"]
    assert profiles.read(Path("own") / key / "resnet.yaml") == profiles.read(saved)
    assert say("match", "resnet")[0] == 0  # what was pulled is the user's own now
    assert say("rm", f"{key}/resnet", "--from", shared, "--yes")[0] == 0
    assert not (shared / key).exists()


def test_another_profile_is_replaced_only_on_request(say: Say, saved: Path, tmp_path: Path) -> None:
    say("push", saved, "--to", "shared")
    other = profiles.write(tmp_path / "other.yaml", replace(profiles.read(saved), recommended="safe"))
    code, _out, err = say("push", other, "--to", "shared")
    assert (code, "give --replace" in err) == (2, True)
    assert say("push", other, "--to", "shared", "--replace")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["push", "tuned.yaml"], "no registry: give --to"),
        (["push", "tuned.yaml", "--to", "https://example.org/p"], "can only be read"),
        (["pull"], "name the target"),
        (["pull", "resnet"], "no registry: give --from"),
        (["pull", "resnet", "--from", "nosuchdir"], "nosuchdir: no such folder"),
        (["pull", "resnet", "--from", "tuned.yaml"], "tuned.yaml: no such folder"),
        (["pull", "resnet", "--from", "shared", "--yes", "--to", "/proc/x"], "Choose another place: --to FOLDER"),
        (["push", "tuned.yaml", "--to", "/proc/x"], "cannot be written (No such file or directory)\n"),
        (["push", "tuned.yaml", "--to", "htp://x"], "htp:// is no scheme that fsspec knows; did you mean http?"),
        (["match", "million.yaml"], "million.yaml: no such file"),
        (["push", "tuned.yaml", "--to", "memory://x"], "can only be read"),
        (["push", "tuned.yaml", "--to", "linked"], "only plain files are replaced"),
        (["rm", "good.py"], "good.py: is no profile. Name a .yaml file, or MACHINE-KEY/TARGET and --from REGISTRY"),
        (["rm", "shared/good.py"], "shared/good.py: is no profile. Name a .yaml file"),
        (["rm", "key/target"], "no registry: give --from"),
        (["rm", "nothing", "--from", "shared"], "is no profile"),
        (["rm", "../x", "--from", "shared"], "is no profile"),
        (["rm", "a/b/c", "--from", "shared", "--yes"], "is no profile"),
        (["rm", "../key/c", "--from", "shared", "--yes"], "is no profile"),
        (["push", "tuned.yaml", "--to", ""], "no registry: give --to"),
        (["pull", "resnet", "--from", " "], "no registry: give --from"),
        (["rm", "none/none.yaml", "--yes"], "none/none.yaml: no such profile"),
        (["rm", "none/none.yaml"], "none/none.yaml: no such profile"),
        (["rm", "none/none", "--from", "shared"], "shared/none/none.yaml: no such profile"),
        (
            ["rm", "none/none", "--from", "https://example.org/p"],
            "https://example.org/p/none/none.yaml: no such profile",
        ),
        (["rm", "tuned.yaml"], "is no profile"),
        (["rm", "shared/some/tuned.yaml"], "There is nobody to ask"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], said: str, say: Say, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("push", saved, "--to", "shared")
    profiles.write("shared/some/tuned.yaml", profiles.read(saved))
    for name in ("good.py", "shared/good.py"):
        Path(name).write_text("print()")
    made = profiles.read(saved)
    Path("linked", made.key).mkdir(parents=True)
    Path("linked", made.key, "resnet.yaml").symlink_to("nowhere.yaml")
    monkeypatch.setattr("autotune.profiles.registry.read_url", lambda *_: None)
    code, _out, err = say(*words)
    assert code == 2
    assert said in err
    assert "--profile" not in err


@pytest.mark.usefixtures("saved")
def test_where_nothing_fits_nothing_is_usable(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    code, _out, err = say("pull", "resnet", "--from", "empty")
    assert (code, "no profile of resnet fits" in err) == (4, True)
    monkeypatch.setenv("AUTOTUNE_PROFILES", "empty:nosuchdir")
    code, _out, err = say("pull", "resnet")
    assert (code, "nosuchdir: no such folder" in err) == (4, True)
    assert say("match", "resnet")[0] == 4


def test_an_interrupted_runs_profile_is_not_shared(say: Say, saved: Path, tmp_path: Path) -> None:
    whole = profiles.read(saved)
    part = profiles.write(tmp_path / "part.yaml", replace(whole, evidence=replace(whole.evidence, partial=True)))
    code, _out, err = say("push", part, "--to", "shared")
    assert (code, "interrupted run" in err) == (2, True)


def test_a_gain_that_is_not_possible_is_not_shared(say: Say, saved: Path) -> None:
    """Seen: 173x of one knob, measured beside a load of 12 on two CPUs, could be shared."""
    one = profiles.read(saved)
    safe = replace(one.levels["safe"], speedup=Proof(173.09, 10.34, 400.0, 0.95, 12), proven=True)
    profiles.write(saved, replace(one, levels={**one.levels, "safe": safe}))
    code, _out, err = say("push", saved, "--to", "shared")
    assert (code, "173x" in err, Path("shared").exists()) == (2, True, False)


def test_a_url_of_a_bucket_is_listed_by_name(say: Say, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILES", "s3://bucket/team")
    monkeypatch.setattr("autotune.profiles.registry.list_url", lambda _url: ["key/resnet.yaml", "key/\x1b.yaml"])
    code, out, err = say("list")
    assert (code, out, err) == (0, "s3://bucket/team/key/resnet.yaml  resnet\n", "")


def test_match_explains_every_field(say: Say, saved: Path) -> None:
    theirs = profiles.read(saved)
    profiles.write(saved, replace(theirs, machine=replace(theirs.machine, threads=16)))
    code, out, _err = say("match", "tuned.yaml", "--explain")
    assert code == 0
    assert "verdict  compatible" in out
    for field in ("family", "threads", "memory_gib", "torch"):
        assert any(line.startswith(field) for line in out.splitlines())


def test_a_file_that_does_not_fit_is_refused(say: Say, saved: Path) -> None:
    theirs = profiles.read(saved)
    profiles.write(saved, replace(theirs, target=replace(theirs.target, device="cuda")))
    code, out, _err = say("match", "tuned.yaml")
    assert (code, "(none)" in out, "device: profile cuda, here cpu" in out) == (4, True, True)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("  device: cpu", "  device: cpu\n  nnodes: 1000000", "target.nnodes: is no key of this format"),
        ("    threads: 8\n    cores", "    threads: 10000000\n    cores", "threads: 10000000 is not between 1 and"),
        ("rounds: 12", "rounds: 0", "proven: true, but nothing was compared"),
        ("low: 1.55", "low: 0.1", "proven: true, but the settings may be slower"),
        ("value: 1.62", "value: 1e6", "is not between low 1.55 and high 1.7"),
    ],
)
def test_a_file_that_nobody_can_have_measured_is_refused_everywhere(
    old: str, new: str, why: str, say: Say, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = saved.read_text()
    assert old in text
    saved.write_text(text.replace(old, new, 1))
    Path("train.py").write_text("import torch")
    code, _out, err = say("match", "tuned.yaml")
    assert (code, why in err) == (2, True)
    for words in (["run", "--profile", "tuned.yaml", "--dry-run", "train.py"], ["validate", "tuned.yaml"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert (ended.value.code, why in capsys.readouterr().err) == (2, True)
