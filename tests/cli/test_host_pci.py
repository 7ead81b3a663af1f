"""The PCI devices of a host: facts, what rules make of them, what is kept; and syncing them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil

import pytest

from resource_objects.host import pci_ids
from resource_objects.host.machine import (
    MIB,
    Core,
    DeviceKind,
    Machine,
    MediatedType,
    NetworkInterface,
    PCIDevice,
)

GPUS = tuple(
    PCIDevice(f"0000:{bus}:00.0", "10de", "2330", "030200", numa_node=0, driver="nvidia")
    for bus in ("3b", "86")
)
PF = PCIDevice(
    "0000:60:00.0",
    "8086",
    "37d2",
    "020000",
    kind=DeviceKind.PF,
    sriov_totalvfs=64,
    sriov_numvfs=2,
    numa_node=1,
    driver="i40e",
    interfaces=(NetworkInterface("eth0", "3c:ec:ef:01:02:03"),),
)
VFS = tuple(
    PCIDevice(
        f"0000:60:{slot}.0",
        "8086",
        "154c",
        "020000",
        numa_node=1,
        kind=DeviceKind.VF,
        parent_address=PF.address,
    )
    for slot in ("02", "0a")
)
BETWEEN = PCIDevice("0000:60:01.0", "8086", "2030", "060400")  # a bridge
VMD = PCIDevice("10000:01:00.0", "144d", "a808", "010802")
RULES = (
    *("--rule", "10de:*=PGPU+CUSTOM_H100"),
    *("--rule", "8086:37d2=CUSTOM_NIC"),
    *("--rule", "8086:154c=SRIOV_NET_VF;physnet=net1"),
    *("--rule", "144d:*=CUSTOM_NVME"),
)
SKIPPED = "its domain has more than 16 bits"


@pytest.fixture
def machine() -> Machine:
    """Two GPUs, a network card of which two functions were split off, a disk that has no name."""
    return Machine(
        hostname="box",
        cpus=(0, 1, 2, 3),
        cores=(Core(0, 0, (0, 2)), Core(0, 1, (1, 3))),
        memory_bytes=8192 * MIB,
        devices=(GPUS[0], PF, BETWEEN, *VFS, GPUS[1], VMD),
    )


@pytest.fixture(autouse=True)
def _on_machine(begun, on_machine):
    """Every test here sees the machine of the fixture."""


@pytest.fixture
def names(tmp_path: pathlib.Path, on_machine, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A file of names, as the system may have one."""
    file = tmp_path / "pci.ids"
    file.write_text("10de  NVIDIA Corporation\n\t2330  GH100 [H100]\n")
    monkeypatch.setattr(pci_ids, "PATHS", (file,))
    return file


def table(done) -> list[str]:
    """The lines of a table, without what only makes them even."""
    lines = (line.strip("|").split("|") for line in done.lines if line.startswith("|"))
    return ["|".join(cell[1:].rstrip() for cell in line) for line in lines]


def rows(done) -> list[dict]:
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


# --- facts --------------------------------------------------------------------------------------


def test_the_functions_of_this_machine_are_facts(run, home):
    shutil.rmtree(home / ".local")
    done = run("host", "show", "--pci")
    assert (done.status, done.err) == (0, "")
    assert table(done) == [
        "address|name|type|numa_cell|driver|taken_as",
        "0000:3b:00.0|10de:2330|type-PCI|0|nvidia|",
        "0000:60:00.0|8086:37d2|type-PF|1|i40e|",
        "  0000:60:02.0|8086:154c|type-VF|1||",
        "  0000:60:0a.0|8086:154c|type-VF|1||",
        "0000:60:01.0|8086:2030|type-PCI|||",
        "0000:86:00.0|10de:2330|type-PCI|0|nvidia|",
        "10000:01:00.0|144d:a808|type-PCI|||",
    ]
    assert list(home.iterdir()) == []  # looking does not make a ledger


def test_a_rule_says_what_a_device_is_taken_as_or_why_it_is_not(run):
    done = run("host", "show", "--pci", *RULES)
    last = [line.split("|")[-2].strip() for line in done.lines if line.startswith("| ")][1:]
    assert last == [
        "PGPU",
        "CUSTOM_NIC",
        "SRIOV_NET_VF",
        "SRIOV_NET_VF",
        "",
        "PGPU",
        f"skipped: {SKIPPED}",
    ]


def test_programs_are_told_all_that_is_known(run):
    output = {
        row["address"]: row for row in rows(run("host", "show", "--pci", *RULES, "-f", "json"))
    }
    assert output[PF.address] == {
        "address": "0000:60:00.0",
        "id": "8086:37d2",
        "name": None,
        "class": "020000",
        "type": "type-PF",
        "parent": None,
        "vfs": 2,
        "most_vfs": 64,
        "numa_cell": 1,
        "driver": "i40e",
        "interfaces": [{"name": "eth0", "mac": "3c:ec:ef:01:02:03"}],
        "vdpa": [],
        "mediated_types": [],
        "uuid": None,
        "taken_as": "CUSTOM_NIC",
        "rule": "8086:37d2=CUSTOM_NIC",
        "skipped": None,
    }
    vf = output[VFS[0].address]
    assert (vf["parent"], vf["taken_as"]) == (PF.address, "SRIOV_NET_VF")
    assert vf["rule"] == "8086:154c=SRIOV_NET_VF;physnet=net1"
    vmd = output[VMD.address]
    assert (vmd["taken_as"], vmd["rule"], vmd["skipped"]) == (None, "144d:*=CUSTOM_NVME", SKIPPED)
    assert output[BETWEEN.address]["rule"] is None


def test_types_of_mediated_devices_are_told(run, machine, on_machine):
    gpu = dataclasses.replace(
        GPUS[0], mediated_types=(MediatedType("nvidia-35", "GRID", 4, "vfio-pci"),)
    )
    on_machine(dataclasses.replace(machine, devices=(gpu,)))
    (row,) = rows(run("host", "show", "--pci", "-f", "json"))
    assert row["mediated_types"] == [
        {
            "id": "nvidia-35",
            "name": "GRID",
            "available": 4,
            "device_api": "vfio-pci",
            "description": None,
        }
    ]


def test_devices_have_the_names_that_the_system_knows(run, names):
    result = rows(run("host", "show", "--pci", "-f", "json"))
    assert {row["id"]: row["name"] for row in result} == {
        "10de:2330": "NVIDIA Corporation GH100 [H100]",
        "8086:37d2": None,
        "8086:2030": None,
        "8086:154c": None,
        "144d:a808": None,
    }
    assert (
        "| 0000:3b:00.0   | NVIDIA Corporation GH100 [H100] |" in run("host", "show", "--pci").out
    )


def test_a_damaged_file_of_names_is_told_once_and_devices_are_listed(run, names):
    names.write_text("10de  NVIDIA\nnonsense\n")
    done = run("host", "show", "--pci")
    assert done.status == 0
    assert done.err == (
        f"resource-objects: names of devices: {names}:2 cannot be read: "
        "got 'nonsense', expected an id, spaces and a name, in order\n"
    )
    assert "10de:2330" in done.out


def test_the_summary_counts_what_is_skipped(run):
    result = {row["what"]: row for row in rows(run("host", "show", *RULES, "-f", "json"))}
    assert result["PCI devices"]["details"] == "1 skipped, see --pci"
    assert result["SRIOV_NET_VF"]["details"] == "0000:60:02.0, 0000:60:0a.0"
    assert (result["CUSTOM_NIC"]["total"], result["PGPU"]["total"]) == (1, 2)


# --- a host that is kept ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept_file(tmp_path_factory):
    """The file of the ledger, which is created once."""
    return tmp_path_factory.mktemp("kept") / "ledger.db"


@pytest.fixture
def stored(run, default_ledger, kept_file):
    """The machine is kept, and jobs hold some of it."""
    if kept_file.exists():
        shutil.copy(kept_file, default_ledger)
        return
    run("host", "sync", *RULES)
    run("claim", "job-1", "DEVICES=PGPU")
    run("claim", "job-2", "DEVICES=SRIOV_NET_VF")
    shutil.copy(default_ledger, kept_file)


@pytest.mark.usefixtures("stored")
def test_a_host_that_is_kept_shows_who_holds_its_devices(run):
    done = run("host", "show", "--pci", "box")
    assert (done.status, done.err) == (0, "")
    assert table(done) == [
        "address|resource_class|traits|type|numa_cell|state|holders",
        "0000:3b:00.0|PGPU|CUSTOM_H100|type-PCI|0|allocated|job-1",
        "0000:60:00.0|CUSTOM_NIC||type-PF|1|unavailable|",
        "  0000:60:02.0|SRIOV_NET_VF||type-VF|1|allocated|job-2",
        "  0000:60:0a.0|SRIOV_NET_VF||type-VF|1|available|",
        "0000:86:00.0|PGPU|CUSTOM_H100|type-PCI|0|available|",
    ]


@pytest.mark.usefixtures("stored")
def test_programs_are_told_all_that_is_kept(run):
    result = rows(run("host", "show", "--pci", "box", "-f", "json"))
    assert result[2] == {
        "address": "0000:60:02.0",
        "id": "8086:154c",
        "name": None,
        "resource_class": "SRIOV_NET_VF",
        "traits": [],
        "tags": {"physnet": "net1"},
        "type": "type-VF",
        "parent": "0000:60:00.0",
        "numa_cell": 1,
        "provider": "box/0000:60:00.0",
        "state": "allocated",
        "gone": False,
        "disabled": None,
        "holders": ["job-2"],
    }


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml", "value"])
@pytest.mark.parametrize("subject", [["--pci"], ["--pci", "box"]])
def test_every_format_is_spoken(run, form, subject):
    done = run("host", "show", *subject, "-f", form)
    assert (done.status, done.err) == (0, "")
    assert "0000:60:0a.0" in done.out
    only = run("host", "show", *subject, "-f", "value", "-c", "address")
    assert "0000:60:02.0" in only.lines


def test_a_host_without_devices_says_how_it_gets_some(run):
    run("host", "sync")
    done = run("host", "show", "--pci", "box")
    assert (done.status, done.out) == (1, "")
    assert done.err.splitlines() == [
        "resource-objects: box has no devices in the ledger:",
        "  host sync --rule makes them takeable",
    ]


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (["--pci", "nohost"], 1, "nohost is not a provider of this ledger"),
        (
            ["--pci", "box", "--rule", "10de:*=PGPU"],
            1,
            "--rule: got ['10de:*=PGPU'], expected noth",
        ),
        (["--pci", "box", "--shared", "0"], 1, "--shared: got '0', expected nothing, for box is"),
        (["--pci", "--numa"], 2, "not allowed with argument"),
    ],
)
@pytest.mark.usefixtures("stored")
def test_what_cannot_be_shown_is_refused(run, argv, status, line):
    done = run("host", "show", *argv)
    assert (done.status, done.out) == (status, "")
    assert line in done.err


# --- sync ---------------------------------------------------------------------------------------


def test_sync_says_what_it_skips(run):
    assert run("host", "sync", *RULES).lines == [
        "+ box",
        "+ box/0000:3b:00.0",
        "+ box/0000:60:00.0",
        "+ box/0000:86:00.0",
        f"10000:01:00.0: skipped: {SKIPPED}",
    ]
    assert run("provider", "tree").lines[1:] == [
        "├─ box/0000:3b:00.0  PGPU=1  CUSTOM_H100",
        "├─ box/0000:60:00.0  SRIOV_NET_VF=2,CUSTOM_NIC=1",
        "└─ box/0000:86:00.0  PGPU=1  CUSTOM_H100",
    ]


@pytest.mark.usefixtures("stored")
def test_sync_keeps_what_is_held_and_says_why(run, machine, on_machine):
    """Row c.2 (gone device): a device that vanished in use does not keep a host from being kept."""
    on_machine(dataclasses.replace(machine, devices=(GPUS[1], PF)))
    done = run("host", "sync", *RULES[:4], "--reserved", "VCPU=1")
    assert (done.status, done.err) == (0, "")
    stays = "retained: no longer offered, cannot be allocated again; allocated to {}"
    assert done.lines[-2:] == [
        f"0000:3b:00.0: {stays.format('job-1')}",
        f"0000:60:02.0: {stays.format('job-2')}",
    ]
    result = {
        row["address"]: row for row in rows(run("host", "show", "--pci", "box", "-f", "json"))
    }
    assert {address: (row["state"], row["gone"]) for address, row in result.items()} == {
        "0000:3b:00.0": ("allocated", True),
        "0000:60:00.0": ("unavailable", False),
        "0000:60:02.0": ("allocated", True),
        "0000:86:00.0": ("available", False),
    }
    assert "| allocated, gone |" in run("host", "show", "--pci", "box").out
    run("release", "job-1")
    assert run("claim", "job-3", "PGPU=2").status == 1
    again = run("host", "sync", *RULES[:4])
    assert "- box/0000:3b:00.0" in again.lines
    assert again.lines[-1] == f"0000:60:02.0: {stays.format('job-2')}"


def test_a_device_for_one_use_is_reset_when_it_is_said(run):
    rule = ("--rule", "10de:*@0000:3b:*=PGPU;one_time_use")
    run("host", "sync", *rule)
    run("claim", "job-1", "PGPU=1")
    assert run("host", "sync", *rule, "--reset", "0000:3b:00.0").err == (
        "resource-objects: device to reset: got '0000:3b:00.0', "
        "expected a released one; allocated to job-1\n"
    )
    run("release", "job-1")
    assert run("host", "sync", *rule).lines[-1] == (
        "0000:3b:00.0: retained: used once, reserved until it is reset"
    )
    assert run("claim", "job-2", "PGPU=1").status == 1
    assert run("host", "sync", *rule, "--reset", "0000:3b:00.0").status == 0
    assert run("claim", "job-2", "PGPU=1").status == 0


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["--rule", "10de:*=PGPU;once"],
            "word of a device rule: got 'once', expected one_time_use",
        ),
        (["--rule", "10de:*&VF=PGPU"], "type of a device rule: got 'VF', expected type-PCI or"),
        (["--rule", "10de:*=DEVICES"], "expected one that is counted, such as PGPU"),
        (["--reset", "3b:00.0"], "PCI address: got '3b:00.0', expected DOMAIN:BUS:SLOT.FUNCTION"),
        (
            ["--reset", "0000:3b:00.0"],
            "device to reset: got '0000:3b:00.0', expected a stored device",
        ),
    ],
)
def test_sync_with_bad_arguments_is_one_line_and_keeps_nothing(run, argv, line):
    done = run("host", "sync", *argv)
    assert (done.status, done.out) == (1, "")
    assert line in done.err
    assert len(done.err.splitlines()) == 1
    assert run("provider", "list", "-f", "json").out == "[]\n"
