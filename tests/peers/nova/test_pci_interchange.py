"""Our reading and writing of Nova's devices beside the real Nova, by the thousand.

Nova writes and we read, in every version its own ``obj_make_compatible`` makes; we write and Nova
reads. What Nova makes of ``device_spec``, aliases, flavors and requests is what we make of them,
but for the differences that are named here, each with its smallest case.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

from resource_objects.exceptions import InvalidInput
from resource_objects.interop.nova import (
    DevicePool,
    alias_requests,
    dump_pci_devices,
    dump_pci_pools,
    dump_pci_requests,
    load_pci_devices,
    load_pci_pools,
    load_pci_requests,
    parse_alias,
    parse_device_spec,
    pci_affinity,
    tagged_device,
)
from resource_objects.interop.nova import primitive as our_words
from resource_objects.interop.nova.pci_devices import device_pools
from resource_objects.interop.nova.rules import InvalidNovaInput
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    PCIAmount,
    PCIInventory,
)
from tests.support.pci_devices import counted_devices

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import exception, objects
    from nova.compute import pci_placement_translator as translator
    from nova.objects import pci_device as nova_device
    from nova.objects import pci_device_pool as nova_pool
    from nova.pci import request as nova_request
    from nova.pci import stats as nova_stats
    from nova.pci import whitelist
    from nova.virt import hardware

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

CONF = nova.conf.CONF
UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
SEEDS = range(400)
PROVIDERS = [f"5ce1f3d0-8c5d-4d7e-9a25-6a0c0d6a5e1{n}" for n in range(3)]
HELD = ("claimed", "allocated")
BLOCKED = ("unclaimable", "unavailable")
Words = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    CONF([], project="nova", default_config_files=[])


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    """Leave nova's configuration as it was."""
    yield
    nova_request.get_alias_from_config.cache_clear()
    for name, group in (
        ("alias", "pci"),
        ("report_in_placement", "pci"),
        ("pci_in_placement", "filter_scheduler"),
    ):
        CONF.clear_override(name, group)


def said(thing: Any) -> Any:
    """Return what one of Nova's objects says, by field: some of them do not compare themselves."""
    if isinstance(thing, list):
        return [said(item) for item in thing]
    if not hasattr(thing, "obj_fields"):
        return thing
    return {name: said(getattr(thing, name)) for name in thing.fields if name in thing}


# --- one host: its devices as Nova's driver finds them --------------------------------------------


def found_devices(chance: random.Random) -> list[Words]:
    """Return what a driver of Nova's reports: some cards with functions, some without."""
    found = []
    for bus in range(chance.randint(1, 4)):
        pf = f"0000:{bus + 4:02x}:00.0"
        node = chance.choice([None, 0, 1])
        card: Words = {"vendor_id": "8086", "numa_node": node}
        serial = {"vpd": {"card_serial_number": "MT21"}} if chance.random() < 0.5 else {}
        is_card = chance.random() < 0.7
        own = {
            "address": pf,
            "product_id": "1563",
            "dev_type": "type-PF" if is_card else "type-PCI",
        }
        found.append({**card, **own})
        for number in range(chance.randint(0, 3) if is_card else 0):
            part = {
                **card,
                "address": f"0000:{bus + 4:02x}:10.{number}",
                "product_id": "154c",
                "dev_type": chance.choice(["type-VF", "type-VF", "vdpa"]),
                "parent_addr": pf,
            }
            if serial:
                part["capabilities"] = serial
            if chance.random() < 0.5:
                part["parent_ifname"] = f"enp{bus + 4}s0"
            found.append(part)
    return found


TAGS: dict[str, list[Any]] = {
    "physical_network": ["red", "blue", None],
    "trusted": ["true", "False"],
    "remote_managed": ["true", "false", "True"],
    "managed": ["yes", "no"],
    "live_migratable": ["yes", "false"],
    "resource_class": ["gpu-vf", "PGPU"],
    "traits": ["blue,big", "HW_NIC_SRIOV"],
}
ADDRESSES = [
    "*:04:00.*",
    "0000:04:00.0",
    "0000:05:00.0",
    "05:10",
    ":10.",
    ".0",
    {"bus": "0[45]"},
    {"slot": "10", "function": "[01]"},
    {"domain": "0000", "bus": "05", "slot": "00", "function": "0"},
]


def random_entry(chance: random.Random) -> Words:
    """Return an entry of ``device_spec`` that is in order."""
    entry: Words = {
        name: chance.choice(values) for name, values in TAGS.items() if chance.random() < 0.3
    }
    if chance.random() < 0.4:
        entry["vendor_id"] = chance.choice(["8086", "*", "10de"])
    if chance.random() < 0.3:
        entry["product_id"] = chance.choice(["154c", "1563", "154C"])
    if chance.random() < 0.6:
        entry["address"] = chance.choice(ADDRESSES)
    return entry


@contextlib.contextmanager
def a_host_with(devices: Sequence[Words]) -> Iterator[None]:
    """Let Nova find physical functions, as it looks for them, where these are."""
    functions = {one["address"] for one in devices if one["dev_type"] == "type-PF"}
    with contextlib.ExitStack() as stack:
        for name, answer in {
            "is_physical_function": lambda d, b, s, f: f"{d}:{b}:{s}.{f}" in functions,
            "get_vf_product_id_by_pf_addr": lambda address: "154c",
            "get_pci_ids_by_pci_addr": lambda address: ("8086", "1563"),
        }.items():
            stack.enter_context(mock.patch(f"nova.pci.utils.{name}", answer))
        yield


def novas_device(data: Words, number: int = 1) -> Any:
    """Return a device as Nova makes it of what its driver reports."""
    made = objects.PciDevice.create(None, dict(data, compute_node_id=1))
    made.id = number
    for name, value in (("dev_id", "pci"), ("label", "label"), ("instance_uuid", None)):
        setattr(made, name, value)
    made.request_id = None
    return made


def row_of(device: Any) -> Words:
    """Return the row of a device of Nova's."""
    said = {name: getattr(device, name, None) for name in device.fields if name in device}
    return {**said, "extra_info": json.dumps(device.extra_info)}


def novas_pools(chance: random.Random) -> Any:
    """Return the pools of some host, as Nova makes them."""
    devices = found_devices(chance)
    with a_host_with(devices):
        spec = whitelist.Whitelist([json.dumps(entry) for entry in entries(chance, devices)])
        stats = nova_stats.PciDeviceStats(None, dev_filter=spec)
        for number, data in enumerate(devices):
            device = novas_device(data, number)
            if chance.random() < 0.3:
                device.extra_info = {**device.extra_info, "rp_uuid": PROVIDERS[0]}
            stats.add_device(device)
    stats.populate_pools_metadata_from_assigned_devices()
    return stats.to_device_pools_obj()


def entries(chance: random.Random, devices: Sequence[Words]) -> list[Words]:
    """Return entries that Nova takes on a host: it refuses some for what it finds there."""
    found = [random_entry(chance) for _ in range(chance.randint(1, 3))]
    is_taken = []
    with a_host_with(devices):
        for entry in found:
            try:
                whitelist.Whitelist([json.dumps(entry)])
            except exception.NovaException:
                continue
            is_taken.append(entry)
    return is_taken


# --- pools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_what_nova_writes_of_pools_is_read_and_written_in_the_newest(version: str) -> None:
    manifest = {"PciDevicePoolList": version, "PciDevicePool": version}
    count = 0
    for seed in SEEDS:
        kept = novas_pools(random.Random(seed))
        text = json.dumps(kept.obj_to_primitive(version, version_manifest=manifest))
        found = load_pci_pools(text)
        again = nova_pool.from_pci_stats(dump_pci_pools(found))
        assert [pool.tags for pool in again] == [pool.tags for pool in kept]
        if version == "1.1":
            assert said(again) == said(kept)
            assert json.loads(dump_pci_pools(found)) == without_changes(json.loads(text))
        count += len(found)
    assert count > len(SEEDS)


def without_changes(document: Any) -> Any:
    """Return a primitive without what changed."""
    if isinstance(document, list):
        return [without_changes(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {k: without_changes(v) for k, v in document.items() if k != "nova_object.changes"}


def test_nova_and_we_read_lists_of_dicts_alike() -> None:
    for seed in SEEDS:
        listed = [pool.to_dict() for pool in novas_pools(random.Random(seed))]
        text = dump_pci_pools(load_pci_pools(listed))
        assert said(nova_pool.from_pci_stats(text)) == said(nova_pool.from_pci_stats(listed))


# --- devices and device_spec ----------------------------------------------------------------------


def ours_of(data: Words) -> Device:
    """Return a device as we read it of a row that Nova makes of it."""
    return load_pci_devices([row_of(novas_device(data))]).devices[0]


def test_the_same_devices_are_for_guests_and_called_the_same() -> None:
    taken = 0
    for seed in SEEDS:
        chance = random.Random(seed)
        devices = found_devices(chance)
        given = entries(chance, devices)
        specs = parse_device_spec(map(json.dumps, given))
        with a_host_with(devices):
            theirs = whitelist.Whitelist([json.dumps(entry) for entry in given])
            for data in devices:
                entry = theirs.device_assignable(data)
                found = tagged_device(ours_of(data), specs)
                assert (found is None) is (entry is None)
                if found is None or entry is None:
                    continue
                taken += 1
                tags = {name: value for name, value in entry.get_tags().items() if value}
                assert found.resource_class == translator._get_rc_for_dev(novas_device(data), tags)
                own = translator._get_traits_for_dev(tags) - {
                    "COMPUTE_MANAGED_PCI_DEVICE",
                    "HW_PCI_LIVE_MIGRATABLE",
                }
                assert found.traits == own
    assert taken > len(SEEDS)


def test_devices_with_their_entries_make_the_pools_that_nova_makes() -> None:
    count = 0
    for seed in SEEDS:
        chance = random.Random(seed)
        devices = found_devices(chance)
        given = entries(chance, devices)
        specs = parse_device_spec(map(json.dumps, given))
        rows = []
        with a_host_with(devices):
            spec = whitelist.Whitelist([json.dumps(entry) for entry in given])
            stats = nova_stats.PciDeviceStats(None, dev_filter=spec)
            for number, data in enumerate(devices):
                device = novas_device(data, number)
                stats.add_device(device)
                rows.append(row_of(device))
        found = load_pci_devices(rows, specs=specs)
        ours = pools_by_kind(device_pools(PCIInventory(found.devices)))
        text = stats.to_device_pools_obj().obj_to_primitive()
        assert ours == pools_by_kind(load_pci_pools(text))
        count += len(ours)
    assert count > len(SEEDS)


def pools_by_kind(pools: Sequence[DevicePool]) -> dict[DevicePool, int]:
    """Return how many there are of each kind; without the names of Placement, which Nova drops.

    Nova has a pool for each device that cannot be split; here they need none of their own.
    """
    found: dict[DevicePool, int] = {}
    for pool in pools:
        address = pool.address if pool.type in ("type-VF", "vdpa") else None
        kind = pool.replace(
            count=0, facts={}, traits=(), resource_class=our_class(pool), address=address
        )
        found[kind] = found.get(kind, 0) + pool.count
    return found


def our_class(pool: DevicePool) -> str:
    return f"CUSTOM_PCI_{pool.vendor_id}_{pool.product_id}".upper()


def test_f1_14_nova_matches_expressions_by_their_beginning_and_we_do_not() -> None:
    data = {"address": "0000:1f:00.0", "vendor_id": "8086", "product_id": "1563"}
    entry = {"address": {"bus": "1"}}
    with a_host_with([]):
        assert whitelist.Whitelist([json.dumps(entry)]).device_assignable(data) is not None
    assert tagged_device(Device(*data.values()), parse_device_spec(entry)) is None


BAD_ENTRIES = [
    {"vendor_id": "10000"},
    {"vendor_id": "x"},
    {"product_id": "fffff"},
    {"address": "10000::00.0"},
    {"address": ":100:"},
    {"address": "20"},
    {"address": ".8"},
    {"address": "0:0:0:0.0"},
    {"address": {"bus": "("}},
    {"address": 5},
    {"devname": "eth0", "address": "0a:00.0"},
    {"managed": "maybe"},
    {"live_migratable": "maybe"},
    {"one_time_use": "true"},
    {"devname": "no-interface", "remote_managed": "true"},
]


@pytest.mark.parametrize("entry", BAD_ENTRIES, ids=repr)
def test_what_nova_refuses_of_device_spec_is_refused(entry: Words) -> None:
    with a_host_with([]), pytest.raises(exception.NovaException) as theirs:
        whitelist.Whitelist([json.dumps(entry)])
    with pytest.raises(InvalidNovaInput) as ours:
        parse_device_spec(json.dumps(entry), devnames={})
    is_address = "address" in entry  # Nova has one name for its fields and one for the whole
    names = {ours.value.rule.nova_name} | ({"PciConfigInvalidSpec"} if is_address else set())
    assert type(theirs.value).__name__ in names


def test_a_physical_function_that_others_manage_is_refused_by_both() -> None:
    data = found_devices(random.Random(0))[0] | {"dev_type": "type-PF"}
    entry = {"address": data["address"], "remote_managed": "true"}
    with a_host_with([data]), pytest.raises(exception.PciDeviceInvalidPFRemoteManaged):
        whitelist.Whitelist([json.dumps(entry)])
    with pytest.raises(InvalidNovaInput) as ours:
        tagged_device(ours_of(data), parse_device_spec(entry))
    assert ours.value.rule.nova_name == "PciDeviceInvalidPFRemoteManaged"


@pytest.mark.parametrize(
    "said", ["PGPU", "pgpu", "gpu", "gpu-vf", "custom_a", "a b", "_", "é", "a__b", "CUSTOM_X1"]
)
def test_names_of_placement_are_novas(said: str) -> None:
    assert our_words.normalized_class(said) == translator.get_resource_class(said, "", "")
    for text in (said, f"{said},b", f"{said}, b", "HW_NIC_SRIOV,hw_nic_sriov"):
        assert our_words.normalized_traits(text) == translator.get_traits(text)


# --- rows and objects -----------------------------------------------------------------------------


def a_tree(devices: Sequence[Words]) -> list[Any]:
    """Return devices of Nova's that know their relatives."""
    found = [novas_device(data, number) for number, data in enumerate(devices)]
    by_address = {one.address: one for one in found}
    for one in found:
        one.parent_device = by_address.get(one.parent_addr)
        one.child_devices = [each for each in found if each.parent_addr == one.address]
    return found


def used_at_random(chance: random.Random) -> list[Any]:
    """Return devices after some claims, allocations and releases that Nova let through."""
    found = a_tree(found_devices(chance))
    instance: Words = {"uuid": UUID, "pci_devices": []}
    for _ in range(chance.randint(0, 12)):
        device = chance.choice(found)
        with contextlib.suppress(exception.NovaException):
            what = chance.choice(["claim", "allocate", "free"])
            if what == "claim":
                device.claim(UUID)
            elif what == "allocate" and device.status in HELD:
                device.allocate(instance)
            elif what == "free" and device.status == "claimed":
                device.free()
    return found


def test_whatever_nova_does_with_devices_we_derive_the_same_states() -> None:
    held = 0
    for seed in SEEDS:
        devices = used_at_random(random.Random(seed))
        found = load_pci_devices([row_of(one) for one in devices])
        assert (found.findings, found.skipped) == ((), ())
        states = PCIInventory(found.devices, usage=found.usage).states()
        for one in devices:
            ours, theirs = states[one.address], one.status
            assert ours == theirs or (ours in BLOCKED and theirs in BLOCKED)
        assert {use.address for use in found.usage} == {
            one.address for one in devices if one.status in HELD
        }
        held += len(found.usage)
    assert held > len(SEEDS) / 2


def test_rows_that_we_write_are_read_by_nova_as_the_same_devices() -> None:
    for seed in SEEDS:
        devices = used_at_random(random.Random(seed))
        found = load_pci_devices([row_of(one) for one in devices])
        for row, one in zip(dump_pci_devices(found), devices, strict=True):
            whole = dict.fromkeys(one.fields) | row
            again = objects.PciDevice._from_db_object(None, objects.PciDevice(), whole)
            mine, theirs = said(again), said(one)
            mine["extra_info"] = dict(mine["extra_info"])
            assert {name: mine[name] for name in theirs} == theirs


@pytest.mark.parametrize("version", [f"1.{minor}" for minor in range(8)])
def test_objects_of_every_version_are_read_and_written_in_the_newest(version: str) -> None:
    count = 0
    for seed in SEEDS:
        for one in used_at_random(random.Random(seed)):
            try:
                given = one.obj_to_primitive(version)
            except exception.NovaException:
                continue  # Nova refuses what the version cannot say
            if version < "1.5" and one.status in BLOCKED:
                continue  # Nova forgets to, where it has dropped the parent
            data = json.loads(json.dumps(given))
            found = load_pci_devices([data])
            (device,) = found.devices
            assert device.parent == one.parent_addr
            again = dump_pci_devices(found, versioned=True)
            if one.status in BLOCKED:
                assert again[0]["nova_object.data"]["status"] == "available"
                continue  # by itself it has no relatives
            read = objects.PciDevice.obj_from_primitive(again[0])
            assert read.VERSION == "1.7"
            assert read.address == one.address and read.parent_addr == one.parent_addr
            if version == "1.7":
                assert again[0]["nova_object.data"] == data["nova_object.data"]
            count += 1
    assert count > len(SEEDS)


def test_lists_of_devices_are_read() -> None:
    devices = used_at_random(random.Random(3))
    listed = objects.PciDeviceList(objects=devices).obj_to_primitive()
    found = load_pci_devices(json.dumps(listed))
    assert [one.address for one in found.devices] == [one.address for one in devices]
    assert nova_device.PciDeviceList.VERSION == "1.3"


# --- requests -------------------------------------------------------------------------------------

SPECS: dict[str, list[Any]] = {
    "vendor_id": ["8086", "10de", "10DE"],
    "product_id": ["154c", "1563"],
    "dev_type": ["type-PCI", "type-PF", "type-VF", "vdpa"],
    "physical_network": ["red", "RED", "blue", None],
    "remote_managed": ["True", "False"],
    "live_migratable": ["true", "false"],
    "trusted": ["True", "False"],
    "parent_ifname": ["enp4s0"],
    "managed": ["true"],
    "resource_class": ["gpu-vf"],
    "traits": ["blue"],
}


def random_request(chance: random.Random) -> Any:
    """Return a request of Nova's, by alias or of a port."""
    specs = [
        {name: chance.choice(values) for name, values in SPECS.items() if chance.random() < 0.2}
        for _ in range(chance.choice([1, 1, 1, 2, 3]))
    ]
    is_port = chance.random() < 0.5
    return objects.InstancePCIRequest(
        count=chance.randint(1, 3),
        spec=specs,
        alias_name=None if is_port else "card",
        numa_policy=chance.choice(
            [None, "preferred"] if is_port else ["legacy", "required", "socket"]
        ),
        request_id=UUID,
        requester_id="port-1" if is_port else None,
        is_new=False,
    )


def requests_of(seed: int) -> Any:
    """Return the requests of an instance."""
    chance = random.Random(seed)
    requests = [random_request(chance) for _ in range(chance.randint(1, 3))]
    return objects.InstancePCIRequests(instance_uuid=UUID, requests=requests)


@pytest.mark.parametrize("placement", [False, True])
def test_what_nova_keeps_of_requests_is_read_and_written_back_the_same(placement: bool) -> None:
    for seed in SEEDS:
        kept = requests_of(seed)
        text = dump_pci_requests(load_pci_requests(kept.to_json(), placement=placement))
        assert json.loads(text) == json.loads(kept.to_json())
        again = objects.InstancePCIRequests.obj_from_db(None, UUID, text)
        assert said(again) == said(kept)


@pytest.mark.parametrize("version", [f"1.{minor}" for minor in range(5)])
def test_requests_of_every_version_are_read_and_written_in_the_newest(version: str) -> None:
    manifest = {
        "InstancePCIRequests": f"1.{min(int(version[2:]), 1)}",
        "InstancePCIRequest": version,
    }
    count = 0
    for seed in SEEDS:
        kept = requests_of(seed)
        is_socket = any(one.numa_policy == "socket" for one in kept.requests)
        if is_socket and version in ("1.2", "1.3"):
            continue  # no such policy, and Nova writes it all the same
        given = kept.obj_to_primitive(manifest["InstancePCIRequests"], version_manifest=manifest)
        found = load_pci_requests(json.dumps(given))
        text = dump_pci_requests(found, versioned=True, instance_uuid=UUID)
        again = objects.InstancePCIRequests.obj_from_primitive(json.loads(text))
        assert [one.VERSION for one in again.requests] == ["1.4"] * len(kept.requests)
        if version == "1.4":
            assert json.loads(text) == without_changes(json.loads(json.dumps(given)))
        count += 1
    assert count > 100


# --- which pools do -------------------------------------------------------------------------------

POOL_TAGS: dict[str, list[Any]] = {
    "dev_type": ["type-PCI", "type-PF", "type-VF", "vdpa"],
    "physical_network": ["red", "blue", None],
    "live_migratable": ["true", "false"],
    "trusted": ["true", "false"],
    "parent_ifname": ["enp4s0"],
    "managed": ["true", "false"],
}


def random_pool(chance: random.Random) -> Words:
    """Return a pool as Nova's scheduler has it: with a type, and ``remote_managed``."""
    pool: Words = {
        name: chance.choice(values)
        for name, values in POOL_TAGS.items()
        if name == "dev_type" or chance.random() < 0.4
    }
    remote = ["true"] if chance.random() < 0.3 else ["false"]
    if pool["dev_type"] != "type-PCI" or remote == ["true"]:
        pool["remote_managed"] = remote[0]
    return {
        **pool,
        "vendor_id": chance.choice(["8086", "10de"]),
        "product_id": chance.choice(["154c", "1563"]),
        "numa_node": None,
        "address": "0000:04:00.0",
        "count": 3,
    }


def novas_answer(pool: Words, request: Any) -> bool:
    """Return whether a pool does for one device of a request, as Nova filters pools."""
    stats = nova_stats.PciDeviceStats(None, dev_filter=whitelist.Whitelist())
    return bool(stats._filter_pools([pool], request, None, []))


def one_of(request: Any) -> Any:
    """Return a request for one device of the same kind."""
    return objects.InstancePCIRequest(
        count=1, spec=request.spec, alias_name=request.alias_name, numa_policy=None
    )


def our_request(request: Any) -> DeviceRequest:
    """Return a request as we read it."""
    found = load_pci_requests(objects.InstancePCIRequests(requests=[request]).to_json())
    assert found is not None
    return found.requests[0]


def our_answer(pool: Words, request: Any) -> bool:
    """Return whether we say that a pool does for a request."""
    (ours,) = load_pci_pools([pool])
    return any(spec.matches(ours) for spec in our_request(request).specs)


def novas_request(*specs: Words) -> Any:
    """Return a request for one device."""
    return objects.InstancePCIRequest(
        count=1, spec=list(specs), alias_name="card", request_id=UUID, numa_policy=None
    )


def test_c3_the_same_pools_do_for_a_request() -> None:
    """c.3, filters 1, 3, 4, 5 and 7."""
    answers = {True: 0, False: 0}
    for seed in range(4000):
        chance = random.Random(seed)
        request, pool = one_of(random_request(chance)), random_pool(chance)
        request.request_id = UUID
        ours = our_answer(pool, request)
        assert ours is novas_answer(pool, request), (request.spec, pool)
        answers[ours] += 1
    assert min(answers.values()) > 150


#: ``what: (spec, tags of a pool, Nova's answer, ours)``
DIFFERENCES = {
    "a word for yes that is not Nova's own is yes": (
        {"remote_managed": "True"},
        {"dev_type": "type-VF", "remote_managed": "yes"},
        (False, True),
    ),
    "who asks that others do not manage it never has what cannot be split": (
        {"remote_managed": "False"},
        {"dev_type": "type-PCI", "remote_managed": "false"},
        (True, False),
    ),
    "capability_type says nothing": (
        {"capability_type": "pci"},
        {"dev_type": "type-PCI"},
        (False, True),
    ),
    "live_migratable in another case is the same word": (
        {"live_migratable": "true"},
        {"dev_type": "type-VF", "live_migratable": "True"},
        (False, True),
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_where_answers_differ_it_is_as_said(name: str) -> None:
    spec, tags, expected = DIFFERENCES[name]
    pool = {"vendor_id": "8086", "product_id": "154c", "count": 1, **tags}
    request = novas_request(spec)
    assert (novas_answer(pool, request), our_answer(pool, request)) == expected


# --- aliases and flavors --------------------------------------------------------------------------


def random_alias(chance: random.Random) -> Words:
    """Return an entry of ``alias``, mostly in order."""
    entry: Words = {"name": chance.choice(["a", "b", " a"])}
    for name, values, often in (
        ("vendor_id", ["8086", "10DE"], 0.9),
        ("product_id", ["154c"], 0.9),
        ("device_type", ["type-PCI", "type-PF", "type-VF", "type-PF", "vdpa"], 0.8),
        ("numa_policy", ["legacy", "required", "near"], 0.3),
        ("resource_class", ["gpu"], 0.2),
        ("traits", ["blue,big"], 0.2),
        ("live_migratable", ["yes", "no", "maybe"], 0.2),
        ("capability_type", ["pci"], 0.1),
        ("colour", ["red"], 0.02),
    ):
        if chance.random() < often:
            entry[name] = chance.choice(values)
    return entry


def novas_aliases(given: Sequence[Words], in_placement: bool) -> Any:
    """Return Nova's aliases, or None if it refuses the option."""
    CONF.set_override("alias", [json.dumps(entry) for entry in given], "pci")
    CONF.set_override("pci_in_placement", in_placement, "filter_scheduler")
    nova_request.get_alias_from_config.cache_clear()
    try:
        return nova_request.get_alias_from_config()
    except exception.PciInvalidAlias:
        return None


@pytest.mark.parametrize("in_placement", [False, True])
def test_c4_aliases_and_what_flavors_ask_by_them_are_novas(in_placement: bool) -> None:
    answers = {True: 0, False: 0}
    for seed in SEEDS:
        chance = random.Random(seed)
        given = [random_alias(chance) for _ in range(chance.randint(1, 3))]
        theirs = novas_aliases(given, in_placement)
        try:
            ours = parse_alias(map(json.dumps, given), pci_in_placement=in_placement)
        except InvalidInput as error:
            assert isinstance(error, InvalidNovaInput)
            assert (theirs, error.rule.nova_name) == (None, "PciInvalidAlias")
            answers[False] += 1
            continue
        if theirs is None:  # the difference below
            assert any("device_type" not in entry for entry in given)
            continue
        assert ours.keys() == theirs.keys()
        answers[True] += 1
        text = ",".join(f"{name}:{count}" for count, name in enumerate(ours, 1))
        asked = alias_requests(text, ours, request_id=lambda: UUID)
        extra_specs = {"pci_passthrough:alias": text}
        kept = nova_request.get_pci_requests_from_flavor(objects.Flavor(extra_specs=extra_specs))
        for request in kept.requests:
            request.request_id, request.requester_id = UUID, None
        assert load_pci_requests(kept.to_json(), placement=in_placement) == asked
        assert json.loads(dump_pci_requests(asked)) == json.loads(kept.to_json())
    assert min(answers.values()) > 60


def test_entries_that_all_leave_out_their_type_are_an_accident_of_novas() -> None:
    entry = {"name": "a", "vendor_id": "8086", "product_id": "154c"}
    assert novas_aliases([entry, entry], False) is None
    assert len(parse_alias([entry, entry])["a"].specs) == 2


def test_an_alias_that_there_is_not_is_refused_by_both() -> None:
    novas_aliases([], False)
    flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": "a:1"})
    with pytest.raises(exception.PciRequestAliasNotDefined):
        nova_request.get_pci_requests_from_flavor(flavor)
    with pytest.raises(InvalidNovaInput) as ours:
        alias_requests("a:1", {})
    assert ours.value.rule.nova_name == "PciRequestAliasNotDefined"


POLICIES = [None, "legacy", "preferred", "required", "socket", "near"]


@pytest.mark.parametrize(("flavor", "image"), [*itertools.product(POLICIES, POLICIES)])
def test_b8_the_policy_of_flavor_and_image_is_novas(flavor: str | None, image: str | None) -> None:
    name = "pci_numa_affinity_policy"
    specs = {} if flavor is None else {f"hw:{name}": flavor}
    image_says = {} if image is None else {f"hw_{name}": image}
    if image == "near":  # the image's record refuses it before anybody reads it
        with pytest.raises(InvalidNovaInput):
            pci_affinity(specs, image_says)
        return
    meta = objects.ImageMeta(properties=objects.ImageMetaProps(**image_says))
    theirs: Any
    try:
        theirs = hardware.get_pci_numa_policy_constraint(objects.Flavor(extra_specs=specs), meta)
    except exception.NovaException as error:
        theirs = type(error).__name__
    try:
        ours = pci_affinity(specs, image_says)
    except InvalidNovaInput as error:
        ours = error.rule.nova_name
    assert ours == theirs


# --- all of it ------------------------------------------------------------------------------------


def test_what_one_request_can_have_of_pools_is_what_nova_says() -> None:
    """Where one request asks and nothing excludes anything, being greedy is no mistake."""
    answers = {True: 0, False: 0}
    for seed in range(1500):
        chance = random.Random(seed)
        request = random_request(chance)
        pools = [
            {
                **random_pool(chance),
                "address": f"0000:{bus:02x}:00.0",
                "count": chance.randint(1, 2),
            }
            for bus in range(chance.randint(0, 3))
        ]
        if len({pool["dev_type"] == "type-PF" for pool in pools}) > 1:
            continue
        stats = nova_stats.PciDeviceStats(
            None, stats=nova_pool.from_pci_stats(pools), dev_filter=whitelist.Whitelist()
        )
        theirs = stats.support_requests([request], {})
        ours = PCIInventory(counted_devices(load_pci_pools(pools))).can_provide(
            PCIAmount([our_request(request)])
        )
        assert ours is theirs, (request, pools)
        answers[ours] += 1
    assert min(answers.values()) > 60
