"""Devices that are added, removed and changed while some are allocated.

Source: the duties of Nova's ``PciDevTracker``; each test names its duty.
"""

from __future__ import annotations

import pytest

from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.resources.pci import Device, DeviceUse, PCIInventory, devices
from resource_objects.testing.refusals import raises_code
from tests.resources.pci.hosts import PF, VFS, gpu, host, nic, part, physical, refused, rules, used
from tests.support.pci_devices import put_in_state

GPU = "0000:01:00.0"
ANY_VF = devices("8086:154c")


def known(inventory: PCIInventory) -> list[str]:
    """Return the addresses of the devices there are."""
    return [device.address for device in inventory.devices]


# --- discovery ------------------------------------------------------------------------------------


def test_what_is_new_is_added() -> None:
    """discovery: a new device is available from now on."""
    inventory = host(gpu())
    values = inventory.rediscover([gpu(1), gpu()])
    assert values.added == ("0000:02:00.0",) and not (
        values.removed or values.changed or values.retained
    )
    assert known(inventory) == [GPU, "0000:02:00.0"]
    assert len(inventory.consume(devices("PGPU", 2)).addresses) == 2


def test_what_is_as_it_was_changes_nothing() -> None:
    """save: nothing is written where nothing changed."""
    inventory = host(nic(2), usage=used(vf0="allocated"))
    before = inventory.obj_to_primitive()
    assert not any(inventory.rediscover(nic(2)))
    assert inventory.obj_to_primitive() == before


def test_devices_are_in_order_of_their_addresses_however_they_were_found() -> None:
    """tree: devices sorted by address, functions under what they were split off."""
    inventory = host()
    inventory.rediscover([*reversed(nic(2)), gpu()])
    assert known(inventory) == [GPU, PF, *VFS[:2]]
    taken = inventory.consume(devices("8086:*", types=["type-PF"]))
    assert taken.placed[0].parts == VFS[:2]


# --- gone devices ---------------------------------------------------------------------------------


def test_what_is_gone_and_free_is_removed() -> None:
    """gone device: removed if free."""
    inventory = host(gpu(), gpu(1))
    assert inventory.rediscover([gpu(1)]).removed == (GPU,)
    assert known(inventory) == ["0000:02:00.0"]


@pytest.mark.parametrize("state", ["claimed", "allocated"])
def test_what_is_gone_and_in_use_remains_until_it_is_freed(state: str) -> None:
    """gone device: stored while allocated, and removed by the next discovery after its release."""
    inventory = host(gpu(), gpu(1))
    taken = inventory.consume(devices("PGPU", address=GPU))
    put_in_state(inventory, taken, state)
    assert inventory.rediscover([gpu(1)]).retained == (GPU,)
    assert inventory.usage == (DeviceUse(GPU, state, gone=True),)
    assert inventory.state(GPU) == state and known(inventory) == [GPU, "0000:02:00.0"]
    inventory.consume(-taken)
    assert inventory.free == 1 and inventory.state(GPU) == "spent", "nobody gets it again"
    assert inventory.rediscover([gpu(1)]).removed == (GPU,)
    assert inventory == host(gpu(1)), "nothing of it is left"


@pytest.mark.parametrize("is_freed", [True, False])
def test_what_was_gone_and_is_there_again_can_be_had(is_freed: bool) -> None:
    inventory = host(gpu())
    taken = inventory.consume(devices("PGPU"))
    inventory.rediscover([])
    if is_freed:
        inventory.consume(-taken)
    inventory.rediscover([gpu()])
    if not is_freed:
        assert inventory.usage == (DeviceUse(GPU, "claimed"),)
        inventory.consume(-taken)
    assert inventory == host(gpu())


def test_what_is_for_one_use_and_is_gone_leaves_nothing_when_it_is_freed() -> None:
    inventory = host(gpu(one_time_use=True), gpu(1))
    taken = inventory.consume(devices("PGPU", address=GPU))
    inventory.rediscover([gpu(1)])
    inventory.consume(-taken)
    inventory.rediscover([gpu(1)])
    assert inventory == host(gpu(1))
    assert PCIInventory.obj_from_primitive(inventory.obj_to_primitive()) == inventory


def test_what_is_spent_remains_so_until_it_is_gone() -> None:
    inventory = host(gpu(one_time_use=True), usage=[DeviceUse(GPU, "spent")])
    changed = gpu(one_time_use=True, numa_node=1)
    assert inventory.rediscover([changed]).changed == (GPU,)
    assert inventory.state(GPU) == "spent" and inventory.device(GPU) == changed
    assert inventory.rediscover([]).removed == (GPU,)
    assert (inventory.devices, inventory.usage) == ((), ())


@pytest.mark.parametrize("state", ["claimed", "allocated"])
def test_a_pf_that_is_gone_leaves_a_vf_that_another_consumer_has(state: str) -> None:
    """gone device: the PF is removed, for it is free; its VF is stored."""
    inventory = host(nic(2), usage=used(vf0=state))
    values = inventory.rediscover([])
    assert (values.removed, values.retained) == ((PF, VFS[1]), (VFS[0],))
    assert inventory.states() == {VFS[0]: state}
    inventory.rediscover(nic(2))
    expected = {"claimed": "unclaimable", "allocated": "unavailable"}[state]
    assert inventory.states() == {PF: expected, VFS[0]: state, VFS[1]: "available"}


def test_vfs_that_are_gone_remain_with_a_pf_that_another_consumer_has() -> None:
    """They went with the card: its allocation names them."""
    inventory = host(nic(2))
    taken = inventory.consume(devices("8086:*", types=["type-PF"]))
    assert inventory.rediscover([physical()]).retained == VFS[:2]
    assert inventory.states() == {PF: "claimed", **dict.fromkeys(VFS[:2], "spent")}
    inventory.consume(-taken)
    assert not inventory.can_provide(ANY_VF)
    inventory.rediscover([physical()])
    assert inventory == host(physical())


def test_vfs_that_are_new_wait_while_another_consumer_has_the_pf() -> None:
    inventory = host(physical())
    taken = inventory.consume(devices("8086:*", types=["type-PF"]))
    values = inventory.rediscover(nic(2))
    assert (values.added, values.retained) == ((), VFS[:2])
    assert inventory.states() == {PF: "claimed"}
    assert rules(refused(inventory, ANY_VF)) == ["no_inventory"]
    inventory.consume(-taken)
    assert inventory.rediscover(nic(2)).added == VFS[:2]
    assert set(inventory.states().values()) == {"available"}


# --- changed devices ------------------------------------------------------------------------------


def test_what_changed_and_is_free_is_as_it_is_now() -> None:
    inventory = host(gpu())
    changed = gpu(numa_node=1, traits=["CUSTOM_NEW"])
    assert inventory.rediscover([changed]).changed == (GPU,)
    assert inventory.device(GPU) == changed and inventory.usage == ()


@pytest.mark.parametrize("state", ["claimed", "allocated"])
def test_what_changed_and_is_in_use_does_not_change_until_it_is_freed(state: str) -> None:
    """changed device in use: the next discovery after it is freed changes it."""
    inventory = host(gpu())
    taken = inventory.consume(devices("PGPU"))
    put_in_state(inventory, taken, state)
    changed = gpu(resource_class="VGPU", numa_node=1)
    assert inventory.rediscover([changed]).retained == (GPU,)
    assert inventory.device(GPU) == gpu() and inventory.usage == (DeviceUse(GPU, state),)
    inventory.consume(-taken)
    assert inventory.rediscover([changed]).changed == (GPU,)
    assert inventory == host(changed)
    assert rules(refused(inventory, devices("PGPU"))) == ["no_inventory"]
    assert inventory.can_provide(devices("VGPU"))


def test_facts_that_no_request_matches_are_no_reason() -> None:
    inventory = host(gpu(), usage=[DeviceUse(GPU, "claimed")])
    assert not any(inventory.rediscover([gpu(facts={"mac_address": "00:11:22:33:44:55"})]))


def test_what_was_for_one_use_is_spent_as_it_is_now() -> None:
    inventory = host(gpu(one_time_use=True))
    taken = inventory.consume(devices("PGPU"))
    changed = gpu(one_time_use=True, numa_node=1)
    inventory.rediscover([changed])
    inventory.consume(-taken)
    inventory.rediscover([changed])
    assert inventory.device(GPU) == changed
    assert inventory.usage == (DeviceUse(GPU, "spent"),)


# --- changed types --------------------------------------------------------------------------------

#: The NIC's PF after SR-IOV was switched off.
PLAIN = Device(PF, "8086", "1572", numa_node=0)


def test_a_pf_that_lost_its_vfs_is_counted_as_what_it_is_now() -> None:
    """changed type: a PF that lost SR-IOV moves to another pool."""
    inventory = host(nic(2))
    values = inventory.rediscover([PLAIN])
    assert (values.changed, values.removed) == ((PF,), VFS[:2])
    assert [pool.type for pool in device_pools(inventory)] == ["type-PCI"]
    assert inventory.can_provide(devices("8086:1572"))


def test_a_device_that_is_split_now_is_counted_with_its_vfs() -> None:
    """changed type: SR-IOV was switched on."""
    inventory = host(PLAIN)
    values = inventory.rediscover(nic(2))
    assert (values.changed, values.added) == ((PF,), VFS[:2])
    assert sorted((pool.type, pool.count) for pool in device_pools(inventory)) == [
        ("type-PF", 1),
        ("type-VF", 2),
    ]


@pytest.mark.parametrize("state", ["claimed", "allocated"])
def test_a_pf_that_lost_a_vf_another_consumer_has_waits_for_it(state: str) -> None:
    """changed type: a discovery is never refused for its content."""
    inventory = host(nic(2), usage=used(vf0=state))
    assigned = host(nic(2)).fit(devices("8086:154c", address=VFS[0]))
    assert inventory.rediscover([PLAIN]).retained == (PF, VFS[0])
    assert inventory.state(VFS[0]) == state
    assert not inventory.can_provide(devices("8086:1572", types=["type-PCI", "type-PF"])), (
        "what was split off it is in use"
    )
    inventory.consume(-assigned)
    inventory.rediscover([PLAIN])
    assert inventory == host(PLAIN)


def test_a_pf_that_another_consumer_has_and_that_lost_its_vfs_is_plain_when_it_is_freed() -> None:
    inventory = host(nic(2))
    taken = inventory.consume(devices("8086:*", types=["type-PF"]))
    inventory.rediscover([PLAIN])
    assert inventory.state(PF) == "claimed"
    inventory.consume(-taken)
    inventory.rediscover([PLAIN])
    assert inventory == host(PLAIN)


def test_a_plain_device_that_another_consumer_has_is_split_when_it_is_freed() -> None:
    """changed type: an allocated device does not change, and its new VFs wait."""
    inventory = host(PLAIN)
    taken = inventory.consume(devices("8086:1572"))
    inventory.rediscover(nic(2))
    assert inventory.state(PF) == "claimed"
    assert not inventory.can_provide(ANY_VF)
    inventory.consume(-taken)
    inventory.rediscover(nic(2))
    assert inventory == host(nic(2))


# --- what cannot be -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "error", "text"),
    [
        pytest.param([gpu(), gpu()], "DuplicateKey", GPU, id="an address twice"),
        pytest.param([PLAIN, part(0)], "InvalidDevice", VFS[0], id="a part of what is not split"),
        pytest.param([gpu(), "0000:02:00.0"], "InvalidDevice", "0000:02:00.0", id="no device"),
        pytest.param(None, ValueError, "None", id="nothing"),
    ],
)
@pytest.mark.parametrize("taken", ["nothing", "the PF", "a VF"])
def test_a_look_that_contradicts_itself_changes_nothing(
    now: list[Device], error: type[Exception] | str, text: str, taken: str
) -> None:
    usage = {"nothing": used(), "the PF": used(pf="claimed"), "a VF": used(vf0="allocated")}
    inventory = host(nic(2), usage=usage[taken])
    with raises_code(error, match=text):
        inventory.rediscover(now)
    assert inventory == host(nic(2), usage=usage[taken])
