from __future__ import annotations

import json

import pytest

from autotune.core.profile import SCHEMA, Evidence, Failure, LevelResult, NotOffered, Profile, Target
from autotune.core.proof import IDENTITY, Proof
from autotune.knobs.settings import Settings
from autotune.knobs.table import KNOB_NAMES

OWN = Settings(threads=2, batch_size=32)
AMP = OWN.but(precision="bf16")
PROFILE = Profile(
    machine={"key": "amd-epyc-zen4-2c-8g", "facts": {"threads": 2}},
    software={"python": "3.12", "torch": "2.9", "cuda": None},
    target=Target("resnet", "samples", "cpu", 11_000_000, None),
    recommended="amp",
    baseline=OWN,
    baseline_rate=100.0,
    levels={
        "safe": LevelResult(OWN, 100.0, IDENTITY, proven=False, note="no gain"),
        "amp": LevelResult(AMP, 150.0, Proof(1.5, 1.4, 1.6, 0.95, 12), proven=True),
    },
    evidence=Evidence(
        trials=9,
        seconds=60.5,
        failures=(Failure("crashed", "SIGSEGV", {"compile": "default"}),),
        not_offered=(NotOffered("precision", "fp16", "slow on CPUs"),),
        warnings=("busy",),
        partial=True,
    ),
)


def test_says_its_key_and_schema() -> None:
    assert PROFILE.key == "amd-epyc-zen4-2c-8g"
    assert PROFILE.schema == SCHEMA


@pytest.mark.parametrize(("asked", "settings"), [(None, AMP), ("amp", AMP), ("safe", OWN)])
def test_gives_a_level_or_the_recommended_one(asked: str | None, settings: Settings) -> None:
    assert PROFILE.level(asked).settings == settings


def test_an_unknown_level_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="max"):
        PROFILE.level("max")


def test_as_dict_is_plain_data_in_the_order_of_the_file() -> None:
    data = PROFILE.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert list(data) == [
        "schema",
        "machine",
        "software",
        "target",
        "recommended",
        "baseline",
        "levels",
        "evidence",
    ]
    assert list(data["baseline"]["settings"]) == list(KNOB_NAMES)
    assert data["levels"]["amp"] == {
        "settings": AMP.as_dict(),
        "rate": 150.0,
        "speedup": {"value": 1.5, "low": 1.4, "high": 1.6, "confidence": 0.95, "rounds": 12},
        "proven": True,
        "note": "",
    }
    assert data["target"] == {
        "name": "resnet",
        "unit": "samples",
        "device": "cpu",
        "parameters": 11_000_000,
        "samples": None,
    }
    evidence = {
        "trials": 9,
        "seconds": 60.5,
        "partial": True,
        "failures": [{"kind": "crashed", "reason": "SIGSEGV", "changed": {"compile": "default"}}],
        "not_offered": [{"knob": "precision", "value": "fp16", "reason": "slow on CPUs"}],
        "warnings": ["busy"],
    }
    assert {name: data["evidence"][name] for name in evidence} == evidence


def test_as_dict_shares_nothing_with_the_profile() -> None:
    data = PROFILE.as_dict()
    data["machine"]["key"] = "other"
    data["evidence"]["failures"][0]["changed"]["compile"] = "off"
    assert PROFILE.key == "amd-epyc-zen4-2c-8g"
    assert PROFILE.evidence.failures[0].changed == {"compile": "default"}
