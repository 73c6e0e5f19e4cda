"""`probe`, `show` and `diff`, and the words for figures they share."""

import math
from dataclasses import replace

from autotune.knobs.settings import KNOB_NAMES
from autotune.probes.facts import Gpu
from autotune.report import formatting, machine
from autotune.report import profile as views
from tests.doubles import results as records


def flat(text: str) -> str:
    """All white space as single blanks."""
    return " ".join(text.split())


def test_the_machine_table_names_limits_reasons_and_hints() -> None:
    shown = machine.text(records.inventory(notes=("power: no sensor",)))
    for words in (
        "AMD EPYC 9B14 [96-Core]",
        "cgroup CPU quota 8.0 (of 16 online CPUs)",
        "32.0 GiB (cgroup memory.max)",
        "64 MiB free of 64 MiB",
        "training runs on the CPU",
        "none: no C++ compiler found",
        "nccl no: no CUDA device",
        "gloo usable",
        "OMP_NUM_THREADS=8",
        "power: no sensor",
    ):
        assert words in flat(shown), words
    assert max(map(len, shown.splitlines())) <= 80
    gpu = Gpu(0, "A100", 2**35, 2**34, (8, 0), False, None, (), 2)
    assert "other processes on it (2)" in flat(machine.text(records.inventory(gpus=(gpu,))))


def test_unknown_facts_are_said_to_be_unknown() -> None:
    inventory = records.inventory()
    software = replace(inventory.software, torch=None, backends=(), allocators=())
    memory = replace(inventory.memory, shm_total=None, shm_free=None, transparent_hugepages=None)
    gpu = Gpu(0, "GB10", 0, 0, (12, 1), False, None, (), 0)
    shown = flat(machine.text(replace(inventory, software=software, memory=memory, gpus=(gpu,))))
    for words in ("not installed", "/dev/shm none", "transparent: unknown", "only the system's", "memory unknown"):
        assert words in shown


def test_show_holds_every_knob_and_level() -> None:
    profile = records.profile()
    shown = views.show(profile)
    for knob in KNOB_NAMES:
        values = [profile.baseline, *(level.settings for level in profile.levels.values())]
        assert flat(f"{knob} {' '.join(formatting.value(getattr(s, knob)) for s in values)}") in flat(shown)
    assert "2 x out-of-memory: host memory ran out" in shown
    assert "the machine was busy during 2 of 31 trials" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_diff_shows_differing_knobs_and_gains_only() -> None:
    other = records.profile()
    level = replace(other.levels["amp"], settings=other.levels["amp"].settings.but(num_workers=2))
    other = replace(other, levels={**other.levels, "amp": level}, software={"torch": "2.8.0"})
    shown = flat(views.diff(records.profile(), other))
    assert shown == "left right software.python 3.11.9 - software.torch 2.9.0 2.8.0 levels.amp.settings.num_workers 4 2"


def test_diff_of_two_machines_warns_and_names_facts() -> None:
    left, right = records.profile(), records.no_gain()
    right = replace(right, machine=replace(right.machine, key="other", threads=2, gpus=("h200",)))
    shown = flat(views.diff(left, right, ("a.yaml", "b.yaml")))
    assert "a.yaml b.yaml" in shown
    assert "machine.facts.threads 8 2" in shown
    assert "machine.facts.gpus none h200" in shown
    assert "levels.safe.speedup.value 1.62" in shown
    assert "rates do not compare" in shown


DURATIONS = {0: "0 s", 59.4: "59 s", 59.6: "1 min 00 s", 72: "1 min 12 s", 7500: "2 h 05 min", -3: "0 s"}
RATES = {1240.4: "1240 x/s", 999.4: "999 x/s", 0.01234: "0.0123 x/s", math.inf: "unknown x/s"}


def test_durations_and_rates() -> None:
    assert {seconds: formatting.duration(seconds) for seconds in DURATIONS} == DURATIONS
    assert {rate: formatting.rate(rate, "x") for rate in RATES} == RATES
