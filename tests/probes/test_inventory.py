"""All probes together, and the inventory as JSON."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import MACHINES, amd_cpuinfo, host

from autotune.probes.facts import Gpu, Inventory
from autotune.probes.inventory import from_json, probe, to_json

RANGE = st.integers(-(1 << 53), 1 << 53)
SCALARS = {str: st.text(max_size=8), int: RANGE, bool: st.booleans(), float: st.floats(allow_nan=False)}


def values(kind: object) -> st.SearchStrategy[object]:
    """Any value of an annotated type, as the facts use them."""
    arguments = typing.get_args(kind)
    if kind in SCALARS:
        return SCALARS[kind]  # type: ignore[index]
    if typing.get_origin(kind) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values(arguments[0]), max_size=2).map(tuple)
        return st.tuples(*map(values, arguments))
    if arguments:
        return st.one_of(st.none(), values(arguments[0]))
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values(hint) for name, hint in hints.items()})  # type: ignore[arg-type]


def bare(inventory: Inventory) -> Inventory:
    """The inventory as it may be written: without uuids."""
    return dataclasses.replace(inventory, gpus=tuple(dataclasses.replace(g, uuid="") for g in inventory.gpus))


@given(values(Inventory))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
def test_json_round_trip(inventory: Inventory) -> None:
    assert from_json(json.loads(json.dumps(to_json(inventory)))) == bare(inventory)


@pytest.mark.parametrize("name", MACHINES)
def test_recorded_machines(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]()
    found = probe(machine.at(tmp_path), nvml=machine.nvml)
    written = json.dumps(to_json(found))
    assert not [note for note in found.notes if "failed" in note]
    assert from_json(json.loads(written)) == bare(found)
    assert not any(gpu.uuid in written or "uuid" in written for gpu in found.gpus)
    assert not any(word in written for word in (str(tmp_path), "/work", "kubepods", "boot_id"))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda data: data.pop("cpu"), "inventory"),
        (lambda data: data.update(extra=1), "unknown field 'extra'"),
        (lambda data: data["memory"].update(total="much"), r"inventory\.memory\.total"),
        (lambda data: data["memory"].update(total=True), r"inventory\.memory\.total"),
        (lambda data: data["budget"].update(cpus=[0, None]), r"inventory\.budget\.cpus\[1\]"),
        (lambda data: data.update(limits=[]), r"inventory\.limits"),
        (lambda data: data["software"].update(environment=[["a"]]), r"inventory\.software\.environment"),
    ],
)
def test_json_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, change: typing.Callable[[dict[str, typing.Any]], object], where: str
) -> None:
    data = json.loads(json.dumps(to_json(probe(MACHINES["laptop"]().at(tmp_path)))))
    change(data)
    with pytest.raises(ValueError, match=where):
        from_json(data)


@pytest.mark.parametrize("data", [None, 3, [], "x", {}])
def test_json_that_is_no_inventory_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="inventory"):
        from_json(data)


def test_json_may_lack_fields_with_defaults(tmp_path: Path) -> None:
    found = probe(MACHINES["laptop"]().at(tmp_path))
    data = to_json(found)
    del data["notes"]
    assert from_json(data) == dataclasses.replace(found, notes=())


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"/proc/meminfo": "nothing"}, "memory"),
        ({"/sys/devices/system/cpu/online": "all of them"}, "cpu"),
        ({"/sys/fs/cgroup/cpuset.cpus.effective": "x"}, "budget"),
    ],
)
def test_one_failed_probe_is_a_note(tmp_path: Path, files: dict[str, str], name: str) -> None:
    machine = host([(0,), (1,)], cpuinfo=amd_cpuinfo(2, 25, 17, "AMD EPYC")).having(files)
    found = probe(machine.at(tmp_path))
    assert [note for note in found.notes if f"The {name} probe failed" in note]
    assert found.budget.threads >= 1
    assert found.software.torch == "2.7.1+cu126"


def test_an_empty_machine_still_has_an_inventory(tmp_path: Path) -> None:
    found = probe(host([], cpuinfo="").without("/").at(tmp_path))
    assert (found.budget.threads, found.budget.cpus) == (1, (0,))


def test_a_broken_gpu_driver_is_a_note(tmp_path: Path) -> None:
    class Broken:
        NVMLError = NVMLError_LibraryNotFound = NVMLError_DriverNotLoaded = OSError

        def nvmlInit(self) -> None:  # noqa: N802
            raise ValueError("driver/library version mismatch")

    found = probe(MACHINES["laptop"]().at(tmp_path), nvml=Broken())
    assert found.gpus == ()
    assert any("version mismatch" in note for note in found.notes)


def test_a_private_field_in_json_is_not_taken(tmp_path: Path) -> None:
    machine = MACHINES["server"]()
    data = to_json(probe(machine.at(tmp_path), nvml=machine.nvml))
    data["gpus"][0]["uuid"] = "GPU-from-elsewhere"
    assert from_json(data).gpus[0].uuid == ""
    assert "uuid" in {field.name for field in dataclasses.fields(Gpu)}
