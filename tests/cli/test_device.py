"""Devices that are kept: which there are, and who holds what."""

from __future__ import annotations

import json

import pytest

import resource_objects as ro
from resource_objects.host import pci_ids

PF = "0000:60:00.0"
VFS = tuple(f"0000:60:02.{index}" for index in range(3))


def host(name: str) -> ro.Provider:
    """A host with two GPUs, and a network card of which three functions were split off."""
    created = ro.Provider(name, "VCPU=8")
    devices = [
        ro.Device(
            f"0000:{bus}:00.0",
            "10de",
            "2330",
            resource_class="PGPU",
            numa_node=node,
            traits=["CUSTOM_H100"],
            facts={"revision": "a1"},
        )
        for node, bus in enumerate(("3b", "86"))
    ]
    devices.append(ro.Device(PF, "8086", "37d2", "type-PF", resource_class="CUSTOM_NIC"))
    devices += [
        ro.Device(
            address,
            "8086",
            "154c",
            "type-VF",
            parent=PF,
            resource_class="SRIOV_NET_VF",
            tags={"physnet": "net1"},
        )
        for address in VFS
    ]
    created.add_parts("DEVICES", ro.PCIInventory(devices))
    return created


def build(ledger: ro.Ledger) -> None:
    """Keep two hosts with devices and one without, of which jobs hold some."""
    ledger.sync(host("h1"), host("rack7/h2"), ro.Provider("h3", "VCPU=4"))
    for job, at, request in (
        ("job-1", "h1", "DEVICES=PGPU"),
        ("job-2", "h1", "DEVICES=2*SRIOV_NET_VF"),
        ("job-3", "rack7/h2", "DEVICES=CUSTOM_NIC"),
    ):
        ledger.claim(job, ledger.snapshot(at).candidates(request))
    ledger.claim("job-4", {"rack7/h2/0000:86:00.0": "PGPU=1"})


@pytest.fixture(autouse=True)
def url(sqlite_url, home, monkeypatch) -> str:
    """A ledger of them."""
    url = sqlite_url("lab.db", build)
    monkeypatch.setenv("RESOURCE_OBJECTS_DATABASE", url)
    monkeypatch.setattr(pci_ids, "PATHS", ())
    return url


def table(done) -> list[str]:
    """The lines of a table, without what only makes them even."""
    lines = (line.strip("|").split("|") for line in done.lines if line.startswith("|"))
    return ["|".join(cell[1:].rstrip() for cell in line) for line in lines]


def rows(done) -> list[dict]:
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def listed(run, *argv: str) -> dict[str, tuple[str, list[str]]]:
    result = rows(run("device", "list", *argv, "-f", "json"))
    return {row["device"]: (row["state"], row["holders"]) for row in result}


# --- list ---------------------------------------------------------------------------------------


def test_the_devices_of_a_host_are_listed_with_who_holds_them(run):
    done = run("device", "list", "h1")
    assert (done.status, done.err) == (0, "")
    assert table(done) == [
        "device|resource_class|traits|type|numa_cell|state|holders",
        "h1/0000:3b:00.0|PGPU|CUSTOM_H100|type-PCI|0|allocated|job-1",
        "h1/0000:60:00.0|CUSTOM_NIC||type-PF||unavailable|",
        "  h1/0000:60:02.0|SRIOV_NET_VF||type-VF||allocated|job-2",
        "  h1/0000:60:02.1|SRIOV_NET_VF||type-VF||allocated|job-2",
        "  h1/0000:60:02.2|SRIOV_NET_VF||type-VF||available|",
        "h1/0000:86:00.0|PGPU|CUSTOM_H100|type-PCI|1|available|",
    ]


def test_functions_stand_below_their_card_only_where_that_is_listed(run):
    assert [line.partition("|")[0] for line in table(run("device", "list", "h1", "--held"))] == [
        "device",
        "h1/0000:3b:00.0",
        "h1/0000:60:02.0",
        "h1/0000:60:02.1",
    ]


def test_all_hosts_are_listed_where_none_is_named(run):
    result = listed(run)
    assert len(result) == 12
    assert result == {**listed(run, "h1"), **listed(run, "rack7/h2")}
    assert result == listed(run, "rack7/h2", "h1", "h3", "h1")
    assert listed(run, "h3") == {}


def test_a_card_that_is_held_whole_takes_its_functions_along(run):
    result = listed(run, "rack7/h2")
    assert result["rack7/h2/0000:60:00.0"] == ("allocated", ["job-3"])
    assert [result[f"rack7/h2/{address}"] for address in VFS] == [("unavailable", [])] * 3


def test_who_named_no_device_is_told_where_only_they_can_have_it(run):
    assert listed(run, "rack7/h2")["rack7/h2/0000:86:00.0"] == ("unavailable", ["job-4"])


@pytest.mark.parametrize(
    ("argv", "devices"),
    [
        (["--class", "PGPU", "--free"], ["h1/0000:86:00.0", "rack7/h2/0000:3b:00.0"]),
        (["--class", "CUSTOM_NIC"], ["h1/0000:60:00.0", "rack7/h2/0000:60:00.0"]),
        (["h1", "--free"], ["h1/0000:60:02.2", "h1/0000:86:00.0"]),
        (["h1", "--held"], ["h1/0000:3b:00.0", "h1/0000:60:02.0", "h1/0000:60:02.1"]),
        (["rack7/h2", "--held"], ["rack7/h2/0000:60:00.0", "rack7/h2/0000:86:00.0"]),
        (["h1", "--class", "FPGA"], []),
    ],
)
def test_devices_are_listed_by_what_they_are(run, argv, devices):
    assert sorted(listed(run, *argv)) == devices


def test_programs_are_told_all_that_is_kept(run):
    result = rows(run("device", "list", "h1", "--class", "SRIOV_NET_VF", "--free", "-f", "json"))
    assert result == [
        {
            "device": "h1/0000:60:02.2",
            "id": "8086:154c",
            "name": None,
            "resource_class": "SRIOV_NET_VF",
            "traits": [],
            "tags": {"physnet": "net1"},
            "type": "type-VF",
            "parent": PF,
            "numa_cell": None,
            "provider": "h1/0000:60:00.0",
            "state": "available",
            "gone": False,
            "disabled": None,
            "holders": [],
        }
    ]


@pytest.mark.parametrize("form", ["table", "json", "csv", "yaml", "value"])
def test_every_format_is_spoken(run, form):
    done = run("device", "list", "-f", form)
    assert (done.status, done.err) == (0, "")
    assert "rack7/h2/0000:60:02.1" in done.out


def test_devices_have_the_names_that_the_system_knows(run, tmp_path, monkeypatch):
    (tmp_path / "pci.ids").write_text("10de  NVIDIA Corporation\n")
    monkeypatch.setattr(pci_ids, "PATHS", (tmp_path / "pci.ids",))
    (row,) = rows(run("device", "list", "h1", "--class", "PGPU", "--free", "-f", "json"))
    assert row["name"] == "NVIDIA Corporation 2330"


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (["nohost"], 1, "nohost is not a provider of this ledger"),
        (
            ["--class", "GPUS"],
            1,
            "resource class: got 'GPUS', expected a standard or CUSTOM_ class",
        ),
        (["--free", "--held"], 2, "not allowed with argument"),
    ],
)
def test_what_cannot_be_listed_is_refused(run, argv, status, line):
    done = run("device", "list", *argv)
    assert (done.status, done.out) == (status, "")
    assert line in done.err


# --- show ---------------------------------------------------------------------------------------


def test_a_device_is_shown_with_what_it_is_who_holds_it_and_its_relatives(run):
    (shown,) = [rows(run("device", "show", "h1/0000:60:02.0", "-f", "json"))]
    assert shown == {
        "device": "h1/0000:60:02.0",
        "host": "h1",
        "provider": "h1/0000:60:00.0",
        "id": "8086:154c",
        "name": None,
        "resource_class": "SRIOV_NET_VF",
        "class": "",
        "type": "type-VF",
        "parent": PF,
        "numa_cell": None,
        "traits": [],
        "tags": {"physnet": "net1"},
        "remote_managed": False,
        "live_migratable": None,
        "one_time_use": False,
        "facts": {},
        "state": "allocated",
        "gone": False,
        "disabled": None,
        "holders": ["job-2"],
        "relatives": [
            relative(PF, "CUSTOM_NIC", "type-PF", "unavailable"),
            relative(VFS[1], "SRIOV_NET_VF", "type-VF", "allocated", "job-2"),
            relative(VFS[2], "SRIOV_NET_VF", "type-VF", "available"),
        ],
    }


def relative(address: str, name: str, kind: str, state: str, *holders: str) -> dict:
    text = {"address": address, "resource_class": name, "type": kind, "state": state}
    return {**text, "holders": list(holders)}


def test_people_see_it_in_words(run):
    lines = run("device", "show", "h1/0000:3b:00.0").lines
    text = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in lines[3:-1]}
    assert (text["facts"], text["traits"], text["holders"]) == (
        "revision a1",
        "CUSTOM_H100",
        "job-1",
    )
    assert (text["numa_cell"], text["relatives"], text["parent"]) == ("0", "", "")


def test_a_host_may_have_a_name_of_several_parts_and_a_uuid(run, url):
    assert rows(run("device", "show", "rack7/h2/0000:60:00.0", "-f", "json"))["holders"] == [
        "job-3"
    ]
    with ro.connect(url) as ledger:
        uuid = ledger.provider("h1").uuid
    assert rows(run("device", "show", f"{uuid}/0000:3b:00.0", "-f", "json"))["host"] == "h1"


@pytest.mark.parametrize(
    ("device", "line"),
    [
        ("h1", "device: got 'h1', expected HOST/ADDRESS"),
        ("0000:3b:00.0", "device: got '0000:3b:00.0', expected HOST/ADDRESS"),
        ("/0000:3b:00.0", "device: got '/0000:3b:00.0', expected HOST/ADDRESS"),
        ("h1/gpu0", "PCI address: got 'gpu0', expected DOMAIN:BUS:SLOT.FUNCTION"),
        ("h1/10000:3b:00.0", "PCI address: got '10000:3b:00.0', expected a domain"),
        (
            "h1/0000:99:00.0",
            "device of h1: got '0000:99:00.0', expected the address of a stored device",
        ),
        (
            "h3/0000:3b:00.0",
            "device of h3: got '0000:3b:00.0', expected the address of a stored device",
        ),
        ("nohost/0000:3b:00.0", "nohost is not a provider of this ledger"),
    ],
)
def test_what_cannot_be_shown_is_refused(run, device, line):
    done = run("device", "show", device)
    assert (done.status, done.out) == (1, "")
    assert line in done.err
    assert len(done.err.splitlines()) == 1


# --- the provider that keeps a device -----------------------------------------------------------


def test_what_a_card_uses_up_of_itself_is_changed_by_a_sync_alone(run, url):
    name = "h1/0000:60:00.0"
    done = run("provider", "inventory", "set", name, "--amend", "SRIOV_NET_VF=5")
    assert (done.status, done.out) == (1, "")
    assert "expected nothing: it is within DEVICES of h1/0000:60:00.0" in done.err
    assert "devices by host sync" in done.err
