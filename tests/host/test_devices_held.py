"""Devices that are removed or changed while they are allocated: syncs and reports (c.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.host.device_rules import DeviceRule, machine_devices
from resource_objects.host.holdings import DeviceStatus, HostDevices, read_devices
from resource_objects.host.machine import Core, DeviceKind, Machine, PCIDevice
from resource_objects.host.partitions import thousandths
from resource_objects.host.settings import HostSettings
from resource_objects.host.sync import HostSync, retain_devices, sync_host
from resource_objects.host.tree import provider_tree
from resource_objects.providers.provider import stored_classes
from resource_objects.site import export_site
from resource_objects.testing.refusals import raises_code
from tests.host.trees import virtual_functions

GPU, OTHER = (PCIDevice(f"0000:{bus}:00.0", "10de", "2330", "030200") for bus in ("3b", "5e"))
PF = PCIDevice("0000:60:00.0", "8086", "37d2", "020000", kind=DeviceKind.PF, sriov_totalvfs=8)
VFS = virtual_functions(PF, 3)
RULES = ("10de:*=PGPU", "8086:37d2=CUSTOM_NIC", "8086:154c=SRIOV_NET_VF")
CHANGED = "retained: changed, stays as it was until its release; allocated to job-1"
UNTIL = "stays as it was until the release of"
NOT_OFFERED = "retained: no longer offered, cannot be allocated again; allocated to {}"


def machine(*devices: PCIDevice) -> Machine:
    return Machine(
        hostname="box",
        cpus=(0, 1),
        cores=(Core(0, 0, (0,)), Core(0, 1, (1,))),
        memory_bytes=1 << 30,
        devices=devices,
    )


def tree(*devices: PCIDevice, rules: Iterable[str] = RULES) -> ro.Provider:
    return provider_tree(machine(*devices), HostSettings(device_rules=rules))


def states(ledger: ro.Ledger) -> dict[str, str]:
    (host,) = read_devices(ledger, "box")
    return {device.device.address: device.state for device in host.devices}


def claim(ledger: ro.Ledger, consumer: str, amounts: str) -> tuple[str, ...]:
    """Claim it and return the units, first of all the device itself."""
    result = ledger.snapshot().candidates(amounts)
    assert result, result.explain()
    return tuple(
        unit
        for allocation in ledger.claim(consumer, result).allocations
        for unit in allocation.units
    )


def notes(done: HostSync) -> list[str]:
    return [str(finding) for finding in done.findings]


# --- a device that is gone ----------------------------------------------------------------------


@pytest.mark.law(4)
def test_a_device_that_is_gone_remains_with_its_consumer_and_is_given_to_no_consumer_after(connect):
    """Row c.2 (gone device): stored while it is allocated, and removed after its release."""
    sync_host(connect(), tree(GPU, OTHER))
    assert claim(connect(), "job-1", f"DEVICES=PGPU&address={GPU.address}") == (GPU.address,)
    done = sync_host(connect(), tree(OTHER))
    assert notes(done) == [f"{GPU.address}: {NOT_OFFERED.format('job-1')}"]
    assert states(connect()) == {GPU.address: "allocated", OTHER.address: "available"}
    assert connect().get_claim("job-1").allocations[0].units == (GPU.address,)
    connect().release("job-1")
    assert states(connect()) == {GPU.address: "removed", OTHER.address: "available"}
    assert not connect().snapshot().candidates("PGPU=2")
    assert not connect().snapshot().candidates("DEVICES=2*PGPU")
    done = sync_host(connect(), tree(OTHER))
    assert (str(done.result), notes(done)) == (f"- box/{GPU.address}", [])


def test_a_sync_that_keeps_a_device_syncs_everything_else():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        machine_of_more = tree(OTHER)
        machine_of_more.update(inventories=ro.Inventories("VCPU=8,MEMORY_MB=2048"))
        done = sync_host(ledger, machine_of_more)
        assert ledger.provider("box").inventories["VCPU"].total == 8
        assert set(states(ledger)) == {GPU.address, OTHER.address}
        assert done.result.created == 1
        assert str(sync_host(ledger, machine_of_more).result) == "nothing changed"


def test_a_device_that_returns_while_it_is_allocated_is_as_it_was():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        sync_host(ledger, tree())
        assert notes(sync_host(ledger, tree(GPU))) == []
        ledger.release("job-1")
        assert states(ledger) == {GPU.address: "available"}


def test_a_device_that_returns_after_it_was_released_can_be_had():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        sync_host(ledger, tree())
        ledger.release("job-1")
        assert states(ledger) == {GPU.address: "removed"}
        assert notes(sync_host(ledger, tree(GPU))) == []
        assert states(ledger) == {GPU.address: "available"}


def test_a_device_that_no_rule_is_about_any_more_is_as_one_that_is_gone():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        done = sync_host(ledger, tree(GPU, rules=[]))
        assert notes(done) == [f"{GPU.address}: {NOT_OFFERED.format('job-1')}"]


def test_a_device_that_another_consumer_took_by_count_remains_too():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        ledger.claim("job-1", {f"box/{GPU.address}": "PGPU=1"})
        for _ in range(2):  # its stored counts have no unit now
            done = sync_host(ledger, tree())
            assert notes(done) == [f"{GPU.address}: {NOT_OFFERED.format('job-1')}"]
        ledger.release("job-1")
        sync_host(ledger, tree())
        assert states(ledger) == {}


def test_what_no_consumer_holds_goes():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU, PF, *VFS))
        claim(ledger, "job-1", "VCPU=1")
        done = sync_host(ledger, tree())
        assert (done.result.removed, notes(done)) == (2, [])


# --- a device that is another now ---------------------------------------------------------------


def test_a_device_that_changed_does_not_change_until_it_is_released(connect):
    """Row c.2 (changed device in use): the new properties are applied on free."""
    now = dataclasses.replace(GPU, numa_node=1)
    sync_host(connect(), tree(GPU))
    claim(connect(), "job-1", "DEVICES=PGPU")
    done = sync_host(connect(), tree(now, rules=["10de:*=CUSTOM_GPU+CUSTOM_H100"]))
    assert notes(done) == [f"{GPU.address}: {CHANGED}"]
    assert str(done.result) == "nothing changed"
    connect().release("job-1")
    sync_host(connect(), tree(now, rules=["10de:*=CUSTOM_GPU+CUSTOM_H100"]))
    (stored,) = read_devices(connect(), "box")[0].devices
    assert (stored.device.resource_class, stored.device.numa_node) == ("CUSTOM_GPU", 1)
    assert stored.device.traits == {"CUSTOM_H100"}


def test_facts_that_no_request_requests_are_no_change():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        done = sync_host(ledger, tree(dataclasses.replace(GPU, revision="a2")))
        assert (str(done.result), notes(done)) == ("nothing changed", [])
        ledger.release("job-1")
        sync_host(ledger, tree(dataclasses.replace(GPU, revision="a2")))
        (stored,) = read_devices(ledger, "box")[0].devices
        assert stored.device.facts["revision"] == "a2"


def test_a_free_device_is_changed_at_once():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        sync_host(ledger, tree(GPU, rules=["10de:*=CUSTOM_GPU"]))
        (stored,) = read_devices(ledger, "box")[0].devices
        assert stored.device.resource_class == "CUSTOM_GPU"


# --- cards and their functions ------------------------------------------------------------------


def test_the_functions_of_an_allocated_card_remain_with_it():
    """A card of a guest shows its virtual functions in the guest, not at the host."""
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF, *VFS))
        assert claim(ledger, "job-1", "DEVICES=CUSTOM_NIC")[0] == PF.address
        done = sync_host(ledger, tree(PF))
        assert [finding.subject for finding in done.findings] == [item.address for item in VFS]
        sync_host(ledger, tree())
        assert states(ledger)[PF.address] == "allocated"
        ledger.release("job-1")
        assert set(states(ledger).values()) <= {"removed", "unavailable"}
        assert not ledger.snapshot().candidates("SRIOV_NET_VF=1")
        sync_host(ledger, tree(PF, *VFS[:1]))
        assert states(ledger) == {PF.address: "available", VFS[0].address: "available"}


def test_new_functions_of_an_allocated_card_wait():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF))
        claim(ledger, "job-1", "DEVICES=CUSTOM_NIC")
        done = sync_host(ledger, tree(PF, *VFS))
        waits = f"waiting: left out until the release of {PF.address}"
        assert notes(done) == [f"{item.address}: {waits}" for item in VFS]
        ledger.release("job-1")
        assert notes(sync_host(ledger, tree(PF, *VFS))) == []
        assert len(states(ledger)) == 4


def test_an_allocated_function_remains_and_its_free_siblings_go():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF, *VFS))
        claim(ledger, "job-1", f"DEVICES=SRIOV_NET_VF&address={VFS[1].address}")
        done = sync_host(ledger, tree(PF))
        assert notes(done) == [f"{VFS[1].address}: {NOT_OFFERED.format('job-1')}"]
        assert states(ledger) == {PF.address: "unavailable", VFS[1].address: "allocated"}
        assert not ledger.snapshot().candidates("CUSTOM_NIC=1")
        sync_host(ledger, tree())  # the card is pulled out
        assert states(ledger) == {VFS[1].address: "allocated"}
        ledger.release("job-1")
        sync_host(ledger, tree())
        assert states(ledger) == {}


def test_a_card_that_would_be_of_the_class_of_an_allocated_function_does_not_change():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF, *VFS))
        claim(ledger, "job-1", f"DEVICES=SRIOV_NET_VF&address={VFS[0].address}")
        rules = ["8086:37d2=SRIOV_NET_VF", "8086:154c=CUSTOM_VF"]
        done = sync_host(ledger, tree(PF, *VFS, rules=rules))
        assert notes(done) == [
            f"{PF.address}: retained: {UNTIL} {VFS[0].address}",
            f"{VFS[0].address}: {CHANGED}",
        ]
        stored = {device.device.address: device.device.resource_class for device in devices(ledger)}
        assert stored[PF.address] == "CUSTOM_NIC"
        assert stored[VFS[1].address] == "CUSTOM_VF"


def test_a_card_that_was_not_stored_waits_for_an_allocated_function_of_its_class():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF, *VFS, rules=["8086:154c=SRIOV_NET_VF"]))
        claim(ledger, "job-1", f"DEVICES=SRIOV_NET_VF&address={VFS[0].address}")
        rules = ["8086:37d2=SRIOV_NET_VF"]
        done = sync_host(ledger, tree(PF, *VFS, rules=rules))
        assert (
            notes(done)[0]
            == f"{PF.address}: waiting: left out until the release of {VFS[0].address}"
        )
        assert set(states(ledger)) == {VFS[0].address}


def test_a_device_that_is_split_while_it_is_allocated_remains_whole():
    """Row c.2 (changed type): the functions wait until the card is released."""
    full = dataclasses.replace(PF, kind=DeviceKind.PCI, sriov_totalvfs=None)
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(full))
        claim(ledger, "job-1", "DEVICES=CUSTOM_NIC")
        done = sync_host(ledger, tree(PF, *VFS))
        assert states(ledger) == {PF.address: "allocated"}
        assert len(done.findings) == 4
        ledger.release("job-1")
        sync_host(ledger, tree(PF, *VFS))
        assert len(states(ledger)) == 4


def test_a_card_that_lost_its_functions_remains_one_for_who_holds_a_function():
    """Row c.2 (changed type): a physical function that lost SR-IOV."""
    full = dataclasses.replace(PF, kind=DeviceKind.PCI, sriov_totalvfs=None)
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF, *VFS))
        claim(ledger, "job-1", f"DEVICES=SRIOV_NET_VF&address={VFS[2].address}")
        done = sync_host(ledger, tree(full))
        assert notes(done)[0] == f"{PF.address}: retained: {UNTIL} {VFS[2].address}"
        assert states(ledger) == {PF.address: "unavailable", VFS[2].address: "allocated"}
        ledger.release("job-1")
        sync_host(ledger, tree(full))
        assert [device.device.type for device in devices(ledger)] == ["type-PCI"]


def devices(ledger: ro.Ledger) -> tuple[DeviceStatus, ...]:
    return read_devices(ledger, "box")[0].devices


# --- devices for one use ------------------------------------------------------------------------

ONCE = ("10de:*=PGPU;one_time_use",)
SPENT = "retained: used once, reserved until it is reset"


def test_a_device_for_one_use_is_spent_when_it_is_released_and_remains_so(connect):
    """Row c.5 (one_time_use): once allocated it is reserved; Nova never resets it, we can."""
    sync_host(connect(), tree(GPU, rules=ONCE))
    claim(connect(), "job-1", "DEVICES=PGPU")
    assert notes(sync_host(connect(), tree(GPU, rules=ONCE))) == []
    connect().release("job-1")
    assert states(connect()) == {GPU.address: "spent"}
    for _ in range(2):
        assert notes(sync_host(connect(), tree(GPU, rules=ONCE))) == [f"{GPU.address}: {SPENT}"]
    assert not connect().snapshot().candidates("PGPU=1")
    done = sync_host(connect(), tree(GPU, rules=ONCE), reset=[GPU.address])
    assert notes(done) == []
    assert states(connect()) == {GPU.address: "available"}
    for _ in range(2):
        assert str(sync_host(connect(), tree(GPU, rules=ONCE))) == "nothing changed"


def test_a_device_for_one_use_that_was_used_between_two_syncs_is_spent(connect):
    for _ in range(2):  # and again after it was reset
        sync_host(connect(), tree(GPU, rules=ONCE), reset=spent(connect()))
        claim(connect(), "job-1", "DEVICES=PGPU")
        connect().release("job-1")
        assert notes(sync_host(connect(), tree(GPU, rules=ONCE))) == [f"{GPU.address}: {SPENT}"]
        assert states(connect()) == {GPU.address: "spent"}


def spent(ledger: ro.Ledger) -> list[str]:
    try:
        return [address for address, state in states(ledger).items() if state == "spent"]
    except exceptions.NotFound as error:
        if not error.is_about("provider"):
            raise
        return []


def test_uses_before_a_device_was_for_one_use_do_not_count():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        ledger.release("job-1")
        sync_host(ledger, tree(GPU, rules=ONCE))
        assert str(sync_host(ledger, tree(GPU, rules=ONCE))) == "nothing changed"
        assert states(ledger) == {GPU.address: "available"}
        claim(ledger, "job-1", "DEVICES=PGPU")
        ledger.release("job-1")
        sync_host(ledger, tree(GPU, rules=ONCE))
        assert states(ledger) == {GPU.address: "spent"}


def test_a_spent_device_that_is_gone_remains_spent_until_it_is_reset():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU, rules=ONCE))
        claim(ledger, "job-1", "DEVICES=PGPU")
        sync_host(ledger, tree(rules=ONCE))
        ledger.release("job-1")
        for result in ([], [GPU], []):
            assert notes(sync_host(ledger, tree(*result, rules=ONCE))) == [
                f"{GPU.address}: {SPENT}"
            ]
            assert states(ledger) == {GPU.address: "spent"}
        sync_host(ledger, tree(rules=ONCE), reset=[GPU.address])
        assert states(ledger) == {}


def test_a_spent_device_that_is_not_for_one_use_any_more_can_be_had():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU, rules=ONCE))
        claim(ledger, "job-1", "DEVICES=PGPU")
        ledger.release("job-1")
        sync_host(ledger, tree(GPU, rules=ONCE))
        assert notes(sync_host(ledger, tree(GPU))) == []
        assert states(ledger) == {GPU.address: "available"}


def test_a_card_for_one_use_is_not_spent_by_who_uses_its_functions():
    rules = ["8086:37d2=CUSTOM_NIC;one_time_use", "8086:154c=SRIOV_NET_VF"]
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(PF, *VFS, rules=rules))
        claim(ledger, "job-1", "DEVICES=SRIOV_NET_VF")
        ledger.release("job-1")
        assert str(sync_host(ledger, tree(PF, *VFS, rules=rules))) == "nothing changed"
        claim(ledger, "job-2", "DEVICES=CUSTOM_NIC")
        sync_host(ledger, tree(PF, *VFS, rules=rules))
        ledger.release("job-2")
        assert states(ledger)[PF.address] == "spent"


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        (GPU.address, "InvalidDevice", "expected a released one; allocated to job-1"),
        (OTHER.address, "InvalidDevice", "expected a stored device that is for one use"),
        ("0000:99:00.0", "InvalidDevice", "expected a stored device that is for one use"),
        ("3b:00.0", "InvalidAddress", "got '3b:00.0'"),
    ],
)
def test_what_cannot_be_reset_is_refused_and_nothing_changes(address, error, message):
    rules = [f"10de:*@{GPU.address}=PGPU;one_time_use", "10de:*=PGPU"]
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU, OTHER, rules=rules))
        claim(ledger, "job-1", f"DEVICES=PGPU&address={GPU.address}")
        sync_host(ledger, tree(GPU, OTHER, rules=rules))
        before = ledger.feed.cursor()
        with raises_code(error, match=message):
            sync_host(ledger, tree(GPU, rules=rules), reset=[address])
        assert ledger.feed.cursor() == before


# --- the rest -----------------------------------------------------------------------------------


def test_what_else_is_allocated_is_refused_as_ever():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "MEMORY_MB=10")
        without = tree(GPU)
        without.update(inventories=ro.Inventories("VCPU=2"))
        with raises_code("InventoryInUse", match="MEMORY_MB"):
            sync_host(ledger, without)


def test_who_takes_a_device_while_the_host_is_synced_keeps_it(monkeypatch):
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        compare, raced = ledger.definitions.compare, []

        def slower(*roots: object) -> object:
            difference = compare(*roots)
            if not raced:
                raced.append(claim(ledger, "job-1", "DEVICES=PGPU"))
            return difference

        monkeypatch.setattr(ledger.definitions, "compare", slower)
        assert notes(sync_host(ledger, tree())) == [f"{GPU.address}: {NOT_OFFERED.format('job-1')}"]


def test_a_host_that_is_not_stored_yet_is_stored_as_it_is():
    with ro.connect("memory://") as ledger:
        done = sync_host(ledger, tree(GPU))
        assert str(done) == f"+ box\n+ box/{GPU.address}"


def test_a_tree_is_not_changed_by_looking_what_is_allocated():
    result = tree(GPU, PF, *VFS)
    before = tree(GPU, PF, *VFS)
    stored = HostDevices("box")
    assert retain_devices(result, stored).tree == result == before
    with pytest.raises(exceptions.InvalidTree, match="tree: got None"):
        retain_devices(None, stored)


def split_tree(*devices: PCIDevice, rules: Iterable[str] = RULES) -> ro.Provider:
    """A host whose first GPU has fractions and every other extension."""
    result = tree(*devices, rules=rules)
    gpu = result.find(f"box/{GPU.address}")
    thousandths(gpu, device_class=next(iter(stored_classes(gpu.inventories))))
    gpu.update(traits=gpu.traits | {"CUSTOM_LAB"}, aggregates=["rack"])
    gpu.add(f"box/{GPU.address}/port", "CUSTOM_PORT=1")
    return result


def test_what_was_added_to_a_device_that_was_found_is_stored():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, split_tree(GPU, OTHER))
        stored = {provider.name: provider for provider in ledger.providers()}[f"box/{GPU.address}"]
        assert (stored.traits, stored.aggregates) == ({"CUSTOM_LAB"}, {"rack"})
        claim(ledger, "job-1", "CUSTOM_PGPU_THOUSANDTHS=500,CUSTOM_PORT=1")
        assert str(sync_host(ledger, split_tree(GPU, OTHER))) == "nothing changed"
        assert not ledger.snapshot().candidates("PGPU=2")
        ledger.release("job-1")
        claim(ledger, "job-2", f"DEVICES=PGPU&address={GPU.address}")
        assert str(sync_host(ledger, split_tree(GPU, OTHER))) == "nothing changed"
        assert not ledger.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=1")


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("halves", "CUSTOM_PGPU_HALF=1"),
        ("thousandths", "CUSTOM_PGPU_THOUSANDTHS=500"),
        ("mig-a100-40gb", "CUSTOM_MIG_1G_5GB=1"),
        (
            "partitions=CUSTOM_SLICE*7+CUSTOM_MEM*8/CUSTOM_MIG_1G*1+1/CUSTOM_MIG_3G*3+4",
            "CUSTOM_MIG_1G=1",
        ),
    ],
)
def test_a_rule_splits_a_device_and_a_sync_keeps_it(word, part):
    rule = f"10de:*=PGPU;{word}"
    assert str(DeviceRule.parse(rule)) == rule
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU, OTHER, rules=[rule]))
        assert ledger.snapshot().candidates("PGPU=2")
        claim(ledger, "job-1", part)
        assert str(sync_host(ledger, tree(GPU, OTHER, rules=[rule]))) == "nothing changed"
        assert not ledger.snapshot().candidates("PGPU=2")
        ledger.release("job-1")
        assert str(sync_host(ledger, tree(GPU, OTHER, rules=[rule]))) == "nothing changed"
        assert ledger.snapshot().candidates("PGPU=2") and ledger.snapshot().candidates(part)


def test_a_half_that_is_allocated_does_not_keep_the_host_from_being_stored():
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU, rules=["10de:*=PGPU;halves"]))
        claim(ledger, "job-1", "CUSTOM_PGPU_HALF=1")
        for rules in (["10de:*=PGPU"], ["10de:*=PGPU;thousandths"]):
            done = sync_host(ledger, tree(GPU, OTHER, rules=rules))
            assert notes(done) == [
                f"{GPU.address}: retained: stays partitioned as it was; allocated to job-1"
            ]
            assert ledger.snapshot().candidates("CUSTOM_PGPU_HALF=1")
        assert notes(sync_host(ledger, tree(OTHER))) == [
            f"{GPU.address}: {NOT_OFFERED.format('job-1')}"
        ]
        ledger.release("job-1")
        sync_host(ledger, tree(GPU, OTHER, rules=["10de:*=PGPU;thousandths"]))
        assert not ledger.snapshot().candidates("CUSTOM_PGPU_HALF=1")
        assert ledger.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=1000")


def test_functions_of_a_card_are_not_split():
    result = machine_devices(machine(PF, *VFS), ["8086:*=CUSTOM_NIC;halves"])
    assert not result.devices
    assert all("functions of one card are not partitioned" in str(item) for item in result.skipped)


@pytest.mark.parametrize(
    "word",
    [
        "halves=2",
        "partitions",
        "partitions=",
        "partitions=CUSTOM_S*0",
        "partitions=CUSTOM_S*7/CUSTOM_P*8",
        "partitions=CUSTOM_S*7/CUSTOM_P*1+1",
        "partitions=CUSTOM_S*7/CUSTOM_P*0",
        "halves;thousandths",
        "halves;one_time_use",
    ],
)
def test_a_split_that_cannot_be_is_refused_with_the_rule(word):
    with raises_code("InvalidRule", match="device rule"):
        DeviceRule.parse(f"10de:*=PGPU;{word}")


def test_what_was_added_to_a_device_waits_while_that_is_of_another_class():
    """Its shares are about the class it will be of, which is not there yet."""
    changed = split_tree(GPU, rules=["10de:*=CUSTOM_H100"])
    with ro.connect("memory://") as ledger:
        sync_host(ledger, tree(GPU))
        claim(ledger, "job-1", "DEVICES=PGPU")
        done = sync_host(ledger, changed)
        assert notes(done) == [f"{GPU.address}: {CHANGED}"]
        assert not ledger.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=1")
        ledger.release("job-1")
        sync_host(ledger, changed)
        assert ledger.snapshot().candidates("CUSTOM_PGPU_THOUSANDTHS=1000")


def test_holders_are_identified_by_name():
    gpu = ro.Device(GPU.address, "10de", "2330", resource_class="PGPU")
    item = DeviceStatus(
        "box", f"box/{GPU.address}", gpu, "unavailable", ("a", "b"), is_allocated=True
    )
    allocated = retain_devices(tree(), HostDevices("box", (item,)))
    assert str(allocated.findings[0]).endswith("allocated again; allocated to a and b")
    nameless = dataclasses.replace(item, holders=())
    assert str(retain_devices(tree(), HostDevices("box", (nameless,))).findings[0]).endswith(
        "cannot be allocated again"
    )


def test_devices_that_were_stored_as_plain_counts_become_devices_while_they_are_allocated():
    """The form of an older release: one provider for each device, virtual functions too."""
    old = ro.Provider("box", "VCPU=2")
    old.add(f"box/{GPU.address}", "PGPU=1")
    old.add(f"box/{VFS[0].address}", "SRIOV_NET_VF=1")
    with ro.connect("memory://") as ledger:
        ledger.sync(old)
        ledger.claim("job-1", {f"box/{GPU.address}": "PGPU=1"})
        assert notes(sync_host(ledger, tree(GPU, PF, *VFS))) == []
        assert states(ledger)[GPU.address] == "unavailable"
        assert not ledger.snapshot().candidates("PGPU=1")
        ledger.release("job-1")
        assert states(ledger)[GPU.address] == "available"
        assert not ledger.audit()


# --- functions that are removed while they are allocated ------------------------------------------


def functions(count: int) -> tuple[PCIDevice, ...]:
    """Return a card and ``count`` virtual functions of it."""
    of_card = (dataclasses.replace(VFS[0], address=f"0000:60:02.{n}") for n in range(count))
    return (PF, *of_card)


def free_functions(ledger: ro.Ledger) -> int:
    """Return the number of functions that can be allocated, by every figure and request."""
    snapshot = ledger.snapshot()
    free = snapshot.free("SRIOV_NET_VF")
    for request in ("SRIOV_NET_VF={}", "DEVICES={}*SRIOV_NET_VF"):
        if free:
            assert snapshot.candidates(request.format(free)), request
        assert not snapshot.candidates(request.format(free + 1)), request
    assert (
        sum(item.free for item in ledger.usage() if item.resource_class == "SRIOV_NET_VF") == free
    )
    return free


def test_functions_that_were_removed_do_not_hide_those_that_are_free(connect):
    """A removed function that is allocated counts as used, and not as reserved."""
    ledger = connect()
    sync_host(ledger, tree(*functions(8)))
    for number in range(6):
        assert claim(ledger, f"v{number}", "DEVICES=SRIOV_NET_VF") == (f"0000:60:02.{number}",)
    fewer = tree(*functions(4))
    assert notes(sync_host(ledger, fewer)) == [
        f"0000:60:02.{n}: {NOT_OFFERED.format(f'v{n}')}" for n in (4, 5)
    ]
    assert free_functions(ledger) == 0
    assert str(sync_host(ledger, fewer).result) == "nothing changed"
    ledger.release("v0")
    assert free_functions(ledger) == 1
    refusal = str(ledger.snapshot().candidates("DEVICES=2*SRIOV_NET_VF").explain())
    assert "requested 2, free 1 of 6" in refusal
    assert claim(ledger, "again", "DEVICES=SRIOV_NET_VF") == ("0000:60:02.0",)
    assert free_functions(ledger) == 0
    for name in ("v4", "v5"):  # these are not allocated again
        ledger.release(name)
        assert free_functions(ledger) == 0
        assert not list(ledger.audit())
    sync_host(ledger, fewer)
    assert free_functions(ledger) == 0
    assert len(states(ledger)) == 5
    ledger.release("v1")
    assert free_functions(ledger) == 1
    assert not list(ledger.audit())


def test_a_removed_function_that_is_released_is_not_allocated_by_any_claim(connect):
    """Until the next sync it is no part of the capacity, and cannot be enabled."""
    ledger = connect()
    sync_host(ledger, tree(*functions(8)))
    for number in range(6):
        claim(ledger, f"v{number}", "DEVICES=SRIOV_NET_VF")
    before = ledger.snapshot().candidates("DEVICES=2*SRIOV_NET_VF")  # 6 and 7
    sync_host(ledger, tree(*functions(4)))
    card, removed = f"box/{PF.address}", "0000:60:02.4"
    ledger.release("v4")
    by_unit = ro.Allocation(
        provider=card, resource_class="SRIOV_NET_VF", amount=ro.IntegerAmount(1), units=(removed,)
    )
    for result in ({card: "SRIOV_NET_VF=1"}, [by_unit], before):
        with pytest.raises(exceptions.CapacityException) as refused:
            ledger.claim("w", result)
        if result is not before:
            assert f"{removed} was removed from the host" in str(refused.value)
    snapshot = ledger.snapshot()
    assert "0000:60:02.4 was removed" in str(snapshot.candidates("SRIOV_NET_VF=1").explain())
    assert snapshot.how_many("DEVICES=SRIOV_NET_VF").at_least == 0
    assert not snapshot.candidates("CUSTOM_NIC=1")
    with pytest.raises(exceptions.CapacityException):
        uuid = ledger.provider(card).uuid
        snapshot.fork().claim("w", [by_unit.replace(provider_uuid=uuid)])
    assert not str(export_site(ledger)).count("removed")
    ledger.enable(card)
    assert free_functions(ledger) == 0
    ledger.release("v0")
    assert free_functions(ledger) == 1
    assert claim(ledger, "w", "SRIOV_NET_VF=1") == ("0000:60:02.0",)


def test_functions_that_return_while_they_are_allocated_are_as_before(connect):
    ledger = connect()
    sync_host(ledger, tree(*functions(8)))
    for number in range(6):
        claim(ledger, f"v{number}", "DEVICES=SRIOV_NET_VF")
    sync_host(ledger, tree(*functions(2)))
    ledger.release("v1")
    assert free_functions(ledger) == 1
    assert notes(sync_host(ledger, tree(*functions(7)))) == []
    assert free_functions(ledger) == 2
    ledger.release("v5")
    assert free_functions(ledger) == 3
    assert claim(ledger, "w", "DEVICES=3*SRIOV_NET_VF") == tuple(
        f"0000:60:02.{n}" for n in (1, 5, 6)
    )


@pytest.mark.law(4)
def test_a_card_that_was_removed_with_all_its_functions_gives_nothing(connect):
    ledger = connect()
    sync_host(ledger, tree(*functions(4), GPU))
    for number in range(2):
        claim(ledger, f"v{number}", "DEVICES=SRIOV_NET_VF")
    sync_host(ledger, tree(GPU))
    ledger.release("v0")
    assert not ledger.snapshot().candidates("SRIOV_NET_VF=1")
    with pytest.raises(exceptions.CapacityException):
        ledger.claim("w", {f"box/{PF.address}": "SRIOV_NET_VF=1"})
    ledger.release("v1")
    sync_host(ledger, tree(GPU))
    assert set(states(ledger)) == {GPU.address}
