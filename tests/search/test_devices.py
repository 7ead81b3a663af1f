"""Devices in the search: which hosts are looked at, and what a candidate says."""

from __future__ import annotations

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.pci import PCIInventory, PCIResource

DEVICES, TOPOLOGY = "DEVICES", "NUMA_TOPOLOGY"


def gpu(bus, node=None, **said):
    said = {"resource_class": "PGPU", **said}
    return ro.Device(f"0000:{bus:02x}:00.0", "10de", "2330", numa_node=node, **said)


def card(bus, count=2):
    whole = f"0000:{bus:02x}:00.0"
    yield ro.Device(whole, "8086", "1572", "type-PF", resource_class="CUSTOM_CARD")
    for number in range(count):
        yield ro.Device(
            f"0000:{bus:02x}:02.{number}",
            "8086",
            "154c",
            "type-VF",
            resource_class="SRIOV_NET_VF",
            parent=whole,
        )


def host(name, *devices, cells=0, traits=()):
    own = "VCPU=8" + (f",PCPU={4 * cells}" if cells else "")
    found = ro.Provider(name, own, traits=traits)
    made = [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=64) for n in range(cells)]
    if made:
        found.add_parts(TOPOLOGY, NUMATopologyInventory(made))
    if devices:
        found.add_parts(DEVICES, PCIInventory(devices))
    return found


@pytest.fixture
def gathered(monkeypatch):
    """How many parts there are of each inventory of devices that is gathered."""
    gather, log = PCIResource.inventory_from_parts, []

    def logged(self, parts, room=None):
        log.append(len(parts))
        return gather(self, parts, room)

    monkeypatch.setattr(PCIResource, "inventory_from_parts", logged)
    return log


@pytest.fixture
def fleet():
    """A ledger with ten hosts of two GPUs and a card; the ninth alone has something left."""
    ledger = ro.connect("memory://")
    for number in range(10):
        ledger.sync(host(f"host{number}", gpu(0x10), gpu(0x20), *card(1)))
    for number in (*range(8), 9):
        ledger.claim(f"job-{number}", {f"host{number}": {DEVICES: ro.devices("PGPU", 2)}})
        ledger.claim(f"net-{number}", {f"host{number}": {DEVICES: ro.devices("CUSTOM_CARD")}})
    return ledger


# --- which hosts are looked at ---


@pytest.mark.parametrize(
    "asked",
    [
        ro.devices("PGPU"),
        ro.devices("PGPU", 2),
        ro.devices("10de:2330"),
        ro.devices(["PGPU", "SRIOV_NET_VF"]),
        ro.devices("SRIOV_NET_VF", 2),
        ro.devices("CUSTOM_CARD"),
        ro.devices("PGPU") + ro.devices("10de:2330") + ro.devices("CUSTOM_CARD"),
    ],
    ids=str,
)
def test_hosts_with_too_few_are_ruled_out_by_counts(fleet, gathered, asked):
    found = fleet.snapshot().candidates({DEVICES: asked})
    assert [one.host for one in found] == ["host8"]
    assert gathered == [3]  # of one host alone, and once


def test_where_nobody_has_enough_nobody_is_looked_at(fleet, gathered):
    assert not fleet.snapshot().candidates({DEVICES: ro.devices("PGPU", 3)})
    assert not fleet.snapshot().candidates({DEVICES: ro.devices("8086:154c", 6)})
    assert not fleet.snapshot().candidates("PGPU=3")
    assert gathered == []


def test_counts_look_only_at_hosts_that_are_found(fleet, gathered):
    (found,) = fleet.snapshot().candidates("SRIOV_NET_VF=1,PGPU=1")
    assert [one.units for one in found.allocations] == [("0000:01:02.0",), ("0000:10:00.0",)]
    assert gathered == [3]
    assert fleet.snapshot().candidates("VCPU=1")
    assert gathered == [3]


def test_those_with_a_trait_are_counted(fleet, gathered):
    fleet.change("host8/0000:10:00.0", traits=["CUSTOM_H100"])
    gathered.clear()
    one = Request({DEVICES: ro.devices("PGPU")}, required=["CUSTOM_H100"])
    assert fleet.snapshot().candidates(one)
    gathered.clear()
    two = Request({DEVICES: ro.devices("PGPU", 2)}, required=["CUSTOM_H100"])
    assert not fleet.snapshot().candidates(two)
    assert gathered == []


def test_no_more_hosts_are_looked_at_than_are_wanted(gathered):
    ledger = ro.connect("memory://")
    ledger.sync(*(host(f"host{n}", gpu(1), gpu(2)) for n in range(9)))
    gathered.clear()
    assert len(ledger.snapshot().candidates({DEVICES: ro.devices("PGPU")}, limit=2)) == 2
    assert gathered == [2, 2]


def test_what_is_assigned_is_looked_for_by_count_too(fleet, gathered):
    amount = fleet.inventories("host8")[DEVICES].fit(ro.devices("CUSTOM_CARD"))
    gathered.clear()
    found = fleet.snapshot().candidates({DEVICES: amount})
    assert [one.host for one in found] == ["host8"]
    assert gathered == [3]


# --- what a candidate says ---


@pytest.mark.law(9)
def test_the_same_snapshot_gives_the_same_devices(fleet):
    snapshot = fleet.snapshot()
    asked = {DEVICES: ro.devices("10de:2330"), "PGPU": 1, "SRIOV_NET_VF": 1}
    first = list(snapshot.candidates(asked))
    assert first == list(snapshot.candidates(asked)) == list(fleet.snapshot().candidates(asked))
    units = [unit for one in first[0].allocations for unit in one.units]
    assert sorted(units) == sorted(set(units)) == ["0000:01:02.0", "0000:10:00.0", "0000:20:00.0"]


def test_a_candidate_relies_on_the_devices_it_takes(fleet):
    (found,) = fleet.snapshot().candidates("PGPU=1,VCPU=1")
    uuids = {one.provider_uuid for one in found.allocations}
    assert uuids <= {uuid for uuid, _ in found.generations}


def test_a_count_may_be_of_the_devices_of_a_pool():
    ledger = ro.connect("memory://")
    pool = host("pool", gpu(0x10), gpu(0x20), traits=["MISC_SHARES_VIA_AGGREGATE"])
    for one in pool.children:
        one.update(traits=["MISC_SHARES_VIA_AGGREGATE"], aggregates=["rack"])
    box = ro.Provider("box", "DISK_GB=9")
    box.update(aggregates=["rack"])
    ledger.sync(pool, box)
    (found,) = ledger.snapshot().candidates("PGPU=1,DISK_GB=1")
    assert found.host == "box"
    assert [one.units for one in found.allocations if one.units] == [("0000:10:00.0",)]
    ledger.claim("job", found)
    (found,) = ledger.snapshot().candidates("PGPU=1,DISK_GB=1")
    assert [one.units for one in found.allocations if one.units] == [("0000:20:00.0",)]


def test_what_is_kept_by_a_provider_of_its_own_has_no_units():
    ledger = ro.connect("memory://")
    box = host("box", gpu(0x10))
    box.add("box/old", "PGPU=1")
    ledger.sync(box)
    (found,) = ledger.snapshot().candidates("PGPU=2")
    assert {one.provider: one.units for one in found.allocations} == {
        "box/0000:10:00.0": ("0000:10:00.0",),
        "box/old": (),
    }


# --- beside what is counted ---


def test_devices_are_chosen_so_that_counts_find_theirs():
    """The amount could be met by either GPU; the count can only be met by one of them."""
    ledger = ro.connect("memory://")
    ledger.sync(host("box", gpu(0x10), gpu(0x20, resource_class="CUSTOM_GPU")))
    (found,) = ledger.snapshot().candidates({DEVICES: ro.devices("10de:2330"), "PGPU": 1})
    assert found.located[DEVICES].addresses == ("0000:20:00.0",)
    ledger.claim("job", found)
    assert not ledger.snapshot().candidates({DEVICES: ro.devices("10de:2330"), "PGPU": 1})


def test_cells_leave_room_for_devices_that_draw_on_the_host():
    """A device may use memory of the host, as cells do; both are decided beside each other."""
    ledger = ro.connect("memory://")
    box = host("box", gpu(0x10, 0), cells=1)
    inventories = ro.Inventories({**dict(box.inventories.by_name()), "MEMORY_MB": 64})
    box.update(inventories=inventories)
    (cell, device) = box.children
    cell.update(
        shares=[*cell.shares, ro.Share(resource_class="MEMORY_MB", of="box", of_class="MEMORY_MB")]
    )
    device.update(
        shares=[ro.Share(resource_class="PGPU", of="box", of_class="MEMORY_MB", factor=32)]
    )
    ledger.sync(box)
    near = ro.devices("PGPU", affinity="required")
    fits = {TOPOLOGY: ro.numa(dedicated=1, memory_mb=32), DEVICES: near}
    (found,) = ledger.snapshot().candidates(fits)
    ledger.claim("job", found)
    assert not list(ledger.audit())
    ledger.release("job")
    more = {TOPOLOGY: ro.numa(dedicated=1, memory_mb=33), DEVICES: near}
    assert not ledger.snapshot().candidates(more)
    with pytest.raises(exceptions.CapacityException, match="MEMORY_MB requested"):
        ledger.claim("job", {"box": more})


def test_no_cells_no_answer_for_them():
    ledger = ro.connect("memory://")
    ledger.sync(host("box", gpu(0x10)))
    refused = ledger.snapshot().candidates(
        {TOPOLOGY: ro.numa(dedicated=1), DEVICES: ro.devices("PGPU")}
    )
    assert not refused
    assert [one.rule for one in refused.explain().reasons] == [Rule.NO_INVENTORY]


@pytest.mark.parametrize("compatibility", [None, "placement"])
def test_devices_that_differ_in_the_address_alone_are_listed_once(compatibility):
    """Four alike, one of another NUMA node, one of another label: which of the four is no choice.

    host0
    ├── 0000:01:00.0 .. 0000:04:00.0   PGPU=1 each, on node 0
    ├── 0000:05:00.0                   PGPU=1, on node 1
    └── 0000:06:00.0                   PGPU=1, on node 0, fast
    """
    alike = [gpu(bus, 0) for bus in (1, 2, 3, 4)]
    ledger = ro.connect("memory://")
    ledger.sync(host("host0", *alike, gpu(5, 1), gpu(6, 0, traits=["CUSTOM_FAST"])))
    request = Request("VCPU=1", compatibility=compatibility).with_group("gpu", "PGPU=1")
    found = ledger.snapshot().candidates(request, limit=None, per_host=100)
    assert [one.mappings["gpu"][0].partition("/")[2] for one in found] == [
        "0000:01:00.0",
        "0000:05:00.0",
        "0000:06:00.0",
    ]
    claimed = ledger.claim("job-1", found)
    assert [one.units for one in claimed.allocations] == [(), ("0000:01:00.0",)]
    others = ledger.snapshot().candidates(request, limit=None, per_host=100)
    assert len(others) == 3 and others[0].mappings["gpu"] == ("host0/0000:02:00.0",)


def test_cards_of_one_kind_are_alike():
    inventory = PCIInventory([*card(1), *card(2)])
    assert inventory.symmetry_key(0) == inventory.symmetry_key(1) is not None
