"""Which devices a request may have, from which kind first; and pools, where only counts are known.

Source: Nova's ``PciDeviceStats``: the keys of its pools, the filters of one request in their order,
and what its entry points promise. Each test names the row it is about.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given

from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
    devices,
)
from tests.resources.pci.hosts import (
    PF,
    VFS,
    cells,
    gpu,
    host,
    nic,
    on_cells,
    part,
    physical,
    refused,
    rules,
    used,
)
from tests.support.pci_reference import matches
from tests.support.pci_strategies import PCIQuestion, pci_questions

# --- pools ----------------------------------------------------------------------------------------


def counts(inventory: PCIInventory) -> list[tuple[str, str, int]]:
    """Return the pools of an inventory: product, type, count."""
    return sorted((pool.product_id, pool.type, pool.count) for pool in device_pools(inventory))


def test_devices_that_are_alike_are_one_pool() -> None:
    """pool key: product, vendor, node and type."""
    inventory = host(gpu(0), gpu(1), gpu(2, numa_node=1), nic(0))
    assert counts(inventory) == [
        ("1572", "type-PF", 1),
        ("2330", "type-PCI", 1),
        ("2330", "type-PCI", 2),
    ]


def test_parts_of_one_physical_device_are_a_pool_of_their_own() -> None:
    """pool key: address = that of the parent, or its own (so one pool per PF)."""
    inventory = host(nic(2), nic(3, bus=0x5E))
    assert sorted((pool.address, pool.type, pool.count) for pool in device_pools(inventory)) == [
        (PF, "type-PF", 1),
        (PF, "type-VF", 2),
        ("0000:5e:00.0", "type-PF", 1),
        ("0000:5e:00.0", "type-VF", 3),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"tags": {"physical_network": "red"}},
        {"traits": ["CUSTOM_FAST"]},
        {"numa_node": 0},
        {"remote_managed": True},
        {"live_migratable": True},
        {"live_migratable": False},
        {"one_time_use": True},
        {"resource_class": "VGPU"},
    ],
    ids=str,
)
def test_what_a_request_may_request_tells_pools_apart(other: dict[str, object]) -> None:
    """pool key: tags, remote_managed; and what else a request may say of devices."""
    assert len(device_pools(host(gpu(), gpu(1, **other)))) == 2


def test_facts_do_not_tell_pools_apart() -> None:
    assert len(device_pools(host(gpu(), gpu(1, facts={"mac_address": "00:11:22:33:44:55"})))) == 1


def test_what_is_taken_is_in_no_pool() -> None:
    """PF/VF: allocating a PF removes its free VFs, allocating a VF removes the PF."""
    assert counts(host(nic(3), usage=used(pf="claimed"))) == []
    assert counts(host(nic(3), usage=used(vf1="allocated"))) == [("154c", "type-VF", 2)]


@given(pci_questions())
def test_pools_count_what_is_free(question: PCIQuestion) -> None:
    inventory = question.inventory()
    assert sum(pool.count for pool in device_pools(inventory)) == inventory.free


# --- filters of one request, in their order -------------------------------------------------------

EVERY = [
    gpu(),
    gpu(1, numa_node=0, traits=["CUSTOM_FAST", "CUSTOM_QUIET"], resource_class="VGPU"),
    Device("0000:03:00.0", "10de", "1db4", tags={"zone": '["a", "B"]', "net": "Red"}),
    Device("0000:04:00.0", "15b3", "101e", remote_managed=True, live_migratable=True),
    Device("0000:05:00.0", "144d", "a80a", class_code="010802", live_migratable=False),
    *nic(2),
    part(0, bus=0x5E, type="vdpa"),
]


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        pytest.param(DeviceSpec(), ["01", "02", "03", "05", "3b:02", "3b:02"], id="anything"),
        pytest.param(DeviceSpec(vendor_id="10de"), ["01", "02", "03"], id="vendor"),
        pytest.param(DeviceSpec(product_id="2330"), ["01", "02"], id="product"),
        pytest.param(DeviceSpec(vendor_id="10de", product_id="154c"), [], id="neither"),
        pytest.param(DeviceSpec(resource_class="PGPU"), ["01"], id="class"),
        pytest.param(DeviceSpec(resource_class="CUSTOM_PCI_8086_1572"), ["3b"], id="PF's class"),
        pytest.param(DeviceSpec(class_code="01"), ["05"], id="class code, its first digits"),
        pytest.param(DeviceSpec(class_code="0108"), ["05"], id="class code, more digits"),
        pytest.param(DeviceSpec(address=VFS[0]), ["3b:02"], id="address"),
        pytest.param(DeviceSpec(traits=["CUSTOM_FAST"]), ["02"], id="trait"),
        pytest.param(DeviceSpec(traits=["CUSTOM_FAST", "CUSTOM_NEW"]), [], id="a trait more"),
        pytest.param(DeviceSpec(tags={"net": "red"}), ["03"], id="tag, the case does not count"),
        pytest.param(DeviceSpec(tags={"net": "blue"}), [], id="tag, another value"),
        pytest.param(DeviceSpec(tags={"other": "red"}), [], id="another tag"),
        pytest.param(
            DeviceSpec(vendor_id="10de", tags={"net": "null"}), ["01", "02"], id="tag, not there"
        ),
        pytest.param(DeviceSpec(tags={"zone": '["A"]'}), ["03"], id="tag, a list contains a list"),
        pytest.param(DeviceSpec(tags={"zone": '["a", "c"]'}), [], id="tag, not all of the list"),
        pytest.param(DeviceSpec(tags={"zone": "a"}), [], id="tag, a list is no text"),
        pytest.param(DeviceSpec(types=["type-PF"]), ["3b"], id="PF, asked for"),
        pytest.param(DeviceSpec(types=["vdpa"]), ["5e:02"], id="vDPA, asked for"),
        pytest.param(
            DeviceSpec(types=["type-VF", "type-PF"]), ["3b", "3b:02", "3b:02"], id="types, ORed"
        ),
        pytest.param(DeviceSpec(remote_managed=True), ["04"], id="managed elsewhere, asked for"),
        pytest.param(DeviceSpec(live_migratable=False), ["05"], id="cannot move, said so"),
        pytest.param(DeviceSpec(live_migratable=True), [], id="can move, but managed elsewhere"),
        pytest.param(
            DeviceSpec(live_migratable=True, remote_managed=True), ["04"], id="can move, said so"
        ),
    ],
)
def test_a_device_is_of_a_kind_if_all_that_is_specified_holds(
    requested: DeviceSpec, expected: list[str]
) -> None:
    """filters 1 and 3 to 7: spec, PFs, vDPA, remote_managed, live_migratable; unset: any."""
    request = DeviceRequest([requested])
    results = [
        device.address[5:10].removesuffix(":00") for device in EVERY if requested.matches(device)
    ]
    assert results == expected
    assert [matches(request, device) for device in EVERY] == [
        requested.matches(device) for device in EVERY
    ]
    assert host(EVERY).can_provide(PCIAmount([request])) is bool(expected)


def test_alternatives_may_be_mixed() -> None:
    """filter 1: each device must match one of the dicts in the spec."""
    inventory = host(gpu(), gpu(1, resource_class="VGPU"), nic(1))
    taken = inventory.fit(devices(["PGPU", "VGPU"], 2))
    assert taken.addresses == ("0000:01:00.0", "0000:02:00.0")
    assert rules(refused(inventory, devices(["PGPU", "VGPU"], 3))) == ["capacity"]


def test_one_alternative_that_requests_pfs_does_not_open_them_to_another() -> None:
    """filter 3: Nova admits PFs if *some* alternative requests one; ours decides for each."""
    inventory = host(physical(), physical(bus=0x5E, tags={"net": "red"}))
    request = [DeviceSpec(vendor_id="8086"), DeviceSpec(types=["type-PF"], tags={"net": "red"})]
    assert inventory.fit(devices(request)).addresses == ("0000:5e:00.0",)
    assert rules(refused(inventory, devices(request, 2))) == ["capacity"]


def test_providers_that_were_chosen_give_as_many_as_they_are_named() -> None:
    """filter 6: only pools of those providers, each with as many as times it is listed."""
    inventory = host(
        gpu(0, facts={"rp_uuid": "a"}),
        gpu(1, facts={"rp_uuid": "b"}),
        gpu(2, facts={"rp_uuid": "b"}),
        gpu(3),
    )

    def request(*providers: str) -> PCIAmount:
        spec = DeviceSpec(resource_class="PGPU")
        return PCIAmount([DeviceRequest([spec], len(providers), providers=providers)])

    assert inventory.fit(request("b", "a")).addresses == ("0000:01:00.0", "0000:02:00.0")
    assert inventory.fit(request("b", "b")).addresses == ("0000:02:00.0", "0000:03:00.0")
    assert rules(refused(inventory, request("a", "a"))) == ["capacity"]
    assert rules(refused(inventory, request("c"))) == ["no_inventory"]


# --- which first ----------------------------------------------------------------------------------


def test_plain_devices_go_before_those_with_tags() -> None:
    """pools sorted by number of keys, fewest first."""
    tagged = {"tags": {"net": "red"}}
    inventory = host(gpu(0, tags={"net": "red", "zone": "a"}), gpu(1, **tagged), gpu(2))
    order = [inventory.consume(devices("PGPU")).addresses[0] for _ in range(3)]
    assert order == ["0000:03:00.0", "0000:02:00.0", "0000:01:00.0"]


def test_lower_addresses_go_first_however_devices_are_listed() -> None:
    """consumption: Nova takes the end of its list; ours depends on the addresses alone."""
    for order in ([0, 1, 2], [2, 0, 1]):
        inventory = host(*(gpu(number) for number in order))
        assert inventory.fit(devices("PGPU", 2)).addresses == ("0000:01:00.0", "0000:02:00.0")


def test_a_pf_that_is_broken_gives_its_vfs_before_another_is_broken() -> None:
    inventory = host(nic(2), nic(2, bus=0x5E))
    inventory.consume(devices("8086:154c", address="0000:5e:02.1"))
    assert inventory.fit(devices("8086:154c")).addresses == ("0000:5e:02.0",)


def test_as_few_pfs_are_broken_as_can_be() -> None:
    inventory = host(nic(1), nic(3, bus=0x5E), nic(2, bus=0x81))
    taken = inventory.fit(devices("8086:154c", 3))
    assert {address[5:7] for address in taken.addresses} == {"5e"}
    assigned = inventory.fit(devices("8086:154c"))
    assert assigned.addresses == (VFS[0],), "the smallest that will do"


def test_what_can_be_split_and_is_not_goes_before_what_would_take_its_parts() -> None:
    inventory = host(nic(3), physical(bus=0x5E))
    assert inventory.fit(devices("8086:1572", types=["type-PF"])).addresses == ("0000:5e:00.0",)


def test_devices_near_the_cells_go_before_plain_ones() -> None:
    near = gpu(1, numa_node=0, tags={"net": "red"})
    inventory = host(gpu(0, numa_node=1), near, gpu(2, numa_node=0))
    request = devices("PGPU", affinity="preferred")
    taken = [inventory.consume(request, context=on_cells(cells(2), [0])) for _ in range(3)]
    order = [item.addresses[0] for item in taken]
    assert order == ["0000:03:00.0", "0000:02:00.0", "0000:01:00.0"]


# --- entry points ---------------------------------------------------------------------------------


@pytest.mark.law(5)
def test_asking_changes_nothing() -> None:
    """support_requests: on a deep copy there, without any copy here."""
    inventory = host(nic(3))
    before = copy.deepcopy(inventory)
    assert inventory.can_provide(devices("8086:154c", 3))
    assert not inventory.can_provide(devices("8086:154c", 4))
    assert inventory == before


@pytest.mark.law(2)
def test_of_several_requests_all_are_met_or_none() -> None:
    """apply_requests, consume_requests: sequential and not atomic there, all or nothing here."""
    inventory = host(nic(3), gpu())
    reasons = refused(inventory, devices("8086:154c", 2) + devices("PGPU", 2) + devices("VGPU"))
    assert [(reason.rule.value, reason.resource) for reason in reasons] == [
        ("capacity", "PGPU"),
        ("no_inventory", "VGPU"),
    ]
    assert inventory.free == 5
