"""Reading and writing: what is refused, in which words, and what is never lost."""

from __future__ import annotations

import math
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from autotune.core.identity import Identity

from autotune.core.errors import ProfileError
from autotune.core.profile import Failure, NotOffered, Profile, Written
from autotune.core.proof import Proof
from autotune.knobs.knob import Count, Flag, Knob, Word
from autotune.knobs.table import KNOB_NAMES, KNOBS
from autotune.store import profiles, schema

from .records import profile

TEXT = profiles.dump(profile())


def changed(old: str, new: str, after: str = "schema:") -> str:
    """The good text with one value changed: the first one behind ``after``."""
    head, found, tail = TEXT.partition(after)
    assert old in tail
    return head + found + tail.replace(old, new, 1)


def refusal(text: str) -> str:
    """What the reader says about ``text``."""
    with pytest.raises(ProfileError) as caught:
        profiles.parse(text, "p.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            changed("threads: 8", "threads: 1000000000", "  amp:"),
            "levels.amp.settings.threads: 1000000000 is above 4096",
        ),
        (changed("threads: 8", "threads: -1", "  amp:"), "levels.amp.settings.threads: -1 is below 1"),
        (changed("threads: 8", "threads: 1:30", "  amp:"), "levels.amp.settings.threads: '1:30' is not a whole number"),
        (changed("threads: 8", "threads: 010", "  amp:"), "levels.amp.settings.threads: '010' is not a whole number"),
        (changed("threads: 8", "threads: true", "  amp:"), "levels.amp.settings.threads: true is not a whole number"),
        (changed("threads: 8", "threads: 8.0", "  amp:"), "levels.amp.settings.threads: 8.0 is not a whole number"),
        (changed("threads: 8", "threads: '8'", "  amp:"), "levels.amp.settings.threads: '8' is not a whole number"),
        (changed("threads: 8", "threads: [8]", "  amp:"), "levels.amp.settings.threads: a list is not a whole number"),
        (changed("threads: 8", f"threads: {'9' * 6000}", "  amp:"), "levels.amp.settings.threads: '999"),
        (changed("processes: 1", "processes: 1025"), "baseline.settings.processes: 1025 is above 1024"),
        (changed("num_workers: 0", "num_workers: 1025"), "baseline.settings.num_workers: 1025 is above 1024"),
        (changed("batch_size: 64", "batch_size: 16777217"), "baseline.settings.batch_size: 16777217 is above 16777216"),
        (changed("pin_memory: false", "pin_memory: no"), "baseline.settings.pin_memory: 'no' is not true or false"),
        (changed("pin_memory: false", "pin_memory: 0"), "baseline.settings.pin_memory: 0 is not true or false"),
        (
            changed("allocator: default", "allocator: /tmp/x.so"),
            "baseline.settings.allocator: '/tmp/x.so' is not one of",
        ),
        (changed("backend: null", "backend: tpu"), "baseline.settings.backend: 'tpu' is not one of"),
        (changed("processes: 1", "LD_PRELOAD: /tmp/x.so"), "baseline.settings.LD_PRELOAD: is no key of this format"),
        (changed("\n    precision: fp32", "", "baseline"), "baseline.settings.precision: is missing"),
        (changed("rate: 2010.5", "rate: .nan"), "levels.safe.rate: '.nan' is not a number"),
        (changed("rate: 2010.5", "rate: .inf"), "levels.safe.rate: '.inf' is not a number"),
        (changed("rate: 2010.5", "rate: 1e999"), "levels.safe.rate: inf is not a finite number"),
        (changed("rate: 2010.5", "rate: true"), "levels.safe.rate: true is not a number"),
        (changed("low: 1.55", "low: 1.65"), "levels.safe.speedup: 1.62 is not between low 1.65 and high 1.7"),
        (changed("  amp:", "  fast:"), "levels.amp: is missing"),
        (changed("  amp:", "  fast:"), "levels.fast: is no key of this format"),
        (changed("recommended: amp", "recommended: fast"), "recommended: 'fast' is not one of 'safe', 'amp' or 'max'"),
        (
            changed("key: amd", "key: ../../etc/amd"),
            "machine.key: '../../etc/amd-epyc-zen4-8c-32g' is not a plain name",
        ),
        (changed("torch:", "LD_PRELOAD:"), "software.LD_PRELOAD"),
        (changed("note: ''", f"note: {'x' * 501}"), "levels.safe.note: 'xxx"),
        (changed("note: ''", 'note: "\\e[31m"'), "holds control or other unprintable characters"),
        (changed("kind: out", "knd: out"), "evidence.failures.0.knd: is no key of this format"),
        (changed("      batch_size: 512", "      PYTHONSTARTUP: 1"), "evidence.failures.0.changed.PYTHONSTARTUP"),
        (TEXT + "schema: autotune.profile/1\n", "the key 'schema' is there twice"),
        (TEXT + "baseline: {}\n", "the key 'baseline' is there twice"),
        (TEXT + "1: x\n", "a key is not plain text"),
        (TEXT + "<<: {}\n", "<<: is no key of this format"),
        (TEXT + "---\na: 1\n", "but found another document"),
        ("", "is empty"),
        ("- 1\n", "is not a profile"),
        ("\x00", "is not plain YAML"),
        ("a: [1\n", "line 2:"),
        ("{}", "has no key 'schema'"),
        ("schema: autotune.profile/0\n", "schema: 'autotune.profile/0' is not autotune.profile/2"),
        (
            "schema: autotune.profile/3\n",
            "'autotune.profile/3' is newer than autotune.profile/2. Upgrade torch-autotune",
        ),
        ("schema: [1]\n", "schema: a list is not autotune.profile/2"),
        ("schema: something\n", "schema: 'something' is not autotune.profile/2"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    said = refusal(text)
    assert said.startswith("p.yaml: ")
    assert words in said


def older(steps: str, after: str = "schema:") -> str:
    """The good text as version 0.1 wrote it, with another accumulation behind ``after``."""
    text = re.sub(
        r"^( *)(batch_size: \d+)\n( *)channels_last", r"\1\2\n\1accumulation: 1\n\3channels_last", TEXT, flags=re.M
    )
    assert text.count("accumulation: 1") == 4
    head, found, tail = text.partition(after)
    return head + found + tail.replace("accumulation: 1", f"accumulation: {steps}", 1)


def test_one_step_of_accumulation_in_an_older_file_is_nothing() -> None:
    assert profiles.parse(older("1"), "p.yaml") == profile()


@pytest.mark.parametrize("steps", ["2", "0", "true", "'1'", "1.0", "null"])
def test_accumulation_is_no_longer_a_knob(steps: str) -> None:
    said = refusal(older(steps, "  amp:"))
    assert "levels.amp.settings: accumulation is no longer a knob" in said
    assert "tune again" in said


def test_what_failed_in_an_older_file_may_have_accumulated() -> None:
    text = TEXT.replace("batch_size: 512", "accumulation: 2")
    assert profiles.parse(text, "p.yaml").evidence.failures[0].changed == {"accumulation": 2}
    assert "changed" in refusal(TEXT.replace("batch_size: 512", "accumulate: 2"))


def test_many_mistakes_are_cut_short() -> None:
    assert "... and 4 more" in refusal(TEXT.replace("threads: 8", "threads: 0").replace("processes: 1", "processes: 0"))


def test_files_of_version_1_are_read_and_written_as_version_2() -> None:
    old = profiles.parse(TEXT.replace("autotune.profile/2", "autotune.profile/1"), "p.yaml")
    assert (old.written, old.target.identity) == (None, None)
    assert profiles.dump(old) == TEXT


def test_who_made_it_and_for_what_survives() -> None:
    identity = Identity("0123456789abcdef", "AdamW", ("float32 3x224x224", "number"))
    made = profile(written=Written("0.1.0", "2026-11-22"))
    made = replace(made, target=replace(made.target, identity=identity))
    assert profiles.parse(profiles.dump(made), "p.yaml") == made


def test_the_good_text_is_good() -> None:
    assert profiles.parse(TEXT, "p.yaml") == profile()


def test_the_header_says_how_to_apply_it(tmp_path: Path) -> None:
    text = profiles.write(tmp_path / "resnet.yaml", profile()).read_text("utf-8")
    assert "autotune run --profile resnet.yaml train.py" in text
    assert 'autotune.load("resnet.yaml")' in text


def test_the_schema_has_every_knob_in_order() -> None:
    assert tuple(schema.SettingsRecord.model_fields) == KNOB_NAMES


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_a_value_that_a_knob_does_not_have(knob: Knob) -> None:
    wrong = {Flag: "perhaps", Word: "perhaps", Count: 2**40}[type(knob.kind)]
    text = re.sub(rf"(?m)^(\s+{knob.name}:) \S+$", rf"\1 {wrong}", TEXT, count=1)
    assert text != TEXT
    assert knob.name in refusal(text)


def test_an_open_interval_survives() -> None:
    level = replace(profile().level(), speedup=Proof(1.3, 0.0, math.inf, 0.95, 3), proven=False)
    open_ended = profile(levels=dict.fromkeys(("safe", "amp", "max"), level))
    assert "high: null" in profiles.dump(open_ended)
    assert profiles.parse(profiles.dump(open_ended), "p.yaml") == open_ended


def test_long_evidence_is_trimmed_rather_than_lost() -> None:
    crowd = tuple(Failure("crashed", f"{k} " + "ä" * 900, {"threads": k + 1}) for k in range(900))
    long = profile(evidence=replace(profile().evidence, failures=crowd, not_offered=(NotOffered("a", 1, "b"),) * 900))
    text = profiles.dump(long)
    assert len(text.encode()) <= profiles.MAX_BYTES
    assert profiles.parse(text, "p.yaml").levels == profile().levels


def test_a_profile_that_breaks_the_schema_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"baseline\.settings\.threads: 5000 is above 4096"):
        profiles.write(tmp_path / "p.yaml", profile(baseline=profile().baseline.but(threads=5000)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), "is not UTF-8 text"),
        (TEXT.replace("resnet", "r\u00e9snet").encode("latin-1"), "is not UTF-8 text (byte "),
        (os.urandom(2000), "p.yaml: "),
        (TEXT.encode()[:700], "is missing"),
        (b"#" * (64 * 1024 + 1), "is larger than 64 KB"),
        (b"a: " + b"x" * 10_000_000, "is larger than 64 KB"),
    ],
)
def test_files_that_are_no_profiles(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(raw)
    with pytest.raises(ProfileError) as caught:
        profiles.read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_things_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, words in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "cannot be read"),
        (tmp_path / "fifo", "plain"),
    ):
        with pytest.raises(ProfileError, match=words):
            profiles.read(path)


def test_write_makes_folders_and_leaves_no_rubbish(tmp_path: Path) -> None:
    path = profiles.write(tmp_path / "a" / "b" / "p.yaml", profile())
    assert profiles.read(path) == profile()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert {item.name for item in path.parent.iterdir()} <= {"p.yaml", ".p.yaml.lock"}


def test_names_of_any_kind(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s "a"\nfolder' / "p '\n\".yaml"
    assert profiles.read(profiles.write(odd, profile())) == profile()


@pytest.mark.parametrize("place", ["/proc/p.yaml", "/dev/null/p.yaml"])
def test_a_folder_that_cannot_be_written(place: str) -> None:
    with pytest.raises(ProfileError, match=r"cannot be written \(.*\)$") as caught:
        profiles.write(place, profile())
    assert place in str(caught.value)


def test_a_read_only_folder(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write to read-only folders")
    tmp_path.chmod(0o500)
    with pytest.raises(ProfileError, match="cannot be written"):
        profiles.write(tmp_path / "p.yaml", profile())


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = profiles.write(tmp_path / "p.yaml", profile())

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProfileError, match="No space left on device"):
        profiles.write(path, profile(recommended="safe"))
    assert profiles.read(path) == profile()
    assert not list(tmp_path.glob("*.tmp")) + list(tmp_path.glob(".*.tmp"))


def interrupted(rate: float) -> Profile:
    """What an interrupted run writes."""
    return profile(baseline_rate=rate, evidence=replace(profile().evidence, partial=True))


@pytest.mark.parametrize("there", [profiles.dump(profile()), "schema: autotune.profile/9\n", ""])
def test_an_interrupted_run_replaces_nothing_but_its_own_kind(tmp_path: Path, there: str) -> None:
    path, beside = tmp_path / "p.2nodes.yaml", tmp_path / "p.2nodes.partial.yaml"
    path.write_text(there, "utf-8")
    for rate in (1.5, 2.5):
        assert profiles.write(path, interrupted(rate)) == beside
        assert profiles.read(beside) == interrupted(rate)
        assert 'autotune.load("p.2nodes.partial.yaml")' in beside.read_text("utf-8")
    assert path.read_text("utf-8") == there
    beside.write_text(there, "utf-8")
    assert profiles.write(path, interrupted(3.5)).name == "p.2nodes.partial.partial.yaml"
    assert (path.read_text("utf-8"), beside.read_text("utf-8")) == (there, there)


def test_a_complete_run_replaces_an_interrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    for made in (interrupted(1.5), interrupted(2.5), profile()):
        assert profiles.write(path, made) == path
        assert profiles.read(path) == made
    assert {item.name for item in tmp_path.iterdir()} <= {"p.yaml", ".p.yaml.lock"}


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from autotune.store import profiles
one, text = profiles.read(sys.argv[1]), open(sys.argv[3], encoding="utf-8").read()
profiles.dump = lambda *_: text  # renaming is what is raced here, neither YAML nor the disk
os.fsync = lambda _: None
for _ in range(200):
    profiles.write(sys.argv[1], one)
"""


def test_two_writers_never_leave_a_broken_file(tmp_path: Path) -> None:
    root = str(Path(profiles.__file__).parents[2])
    path = profiles.write(tmp_path / "p.yaml", profile())
    texts = [profiles.dump(profile(baseline_rate=rate)) for rate in (1.5, 2.5)]
    writers = []
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / name).write_text(text, "utf-8")
        arguments = [sys.executable, "-c", WRITER, str(path), root, str(tmp_path / name)]
        writers.append(subprocess.Popen(arguments))
    seen = {path.read_text("utf-8")}
    while any(writer.poll() is None for writer in writers):
        seen.add(path.read_text("utf-8"))
    seen.add(path.read_text("utf-8"))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {*texts, profiles.dump(profile(), "p.yaml")}
    assert seen & set(texts)
