"""Our ComputeNode's devices beside Nova's: its tracker, its pools, what its scheduler makes of it.

Nova's ``PciDevTracker`` claims, allocates and frees devices; our node takes the same ones. Then the
column ``pci_stats`` says the same, and so do the states of the devices. What Nova does otherwise
has a name and its smallest case here.
"""

from __future__ import annotations

import json
import random
import types
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.exceptions import CapacityException
from resource_objects.host.compute_node import ComputeNode
from resource_objects.interop.nova import load_pci_pools
from resource_objects.resources.numa import HostCell, NUMATopologyInventory
from resource_objects.resources.pci import Device, DeviceRequest, PCIAmount, PCIInventory, devices
from tests.host.views import pending_devices
from tests.peers.nova.pci_chances import case as case_of
from tests.peers.nova.pci_sides import (
    CONF,
    Case,
    DeviceSpecs,
    exception,
    nova_device,
    nova_request,
    objects,
    pci_stats,
    request_id,
    tie,
)
from tests.support.pci_devices import put_in_state

from nova.pci import manager  # isort: skip  # after its words are set up
from nova.scheduler import host_manager  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore")

PCI, NUMA = "DEVICES", "NUMA_TOPOLOGY"
UUID = "7f5c3b7e-3a4b-4c59-9d0e-0d6f1a2b3c4d"
WHOLE = "0000:81:00.0"
SEEDS = range(500)
#: A device that its relatives keep from being had, whichever of the two words says so.
NOT_TO_BE_HAD = ("unclaimable", "unavailable")


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    CONF([], project="nova", default_config_files=[])


def gpu(bus: str, node: int | None = None) -> Device:
    return Device(f"0000:{bus}:00.0", "10de", "2330", numa_node=node)


def card(parts: int = 2) -> list[Device]:
    """Return a physical function, and the functions split off it."""
    return [
        Device(WHOLE, "8086", "1572", "type-PF"),
        *(Device(f"0000:81:02.{n}", "8086", "154c", "type-VF", parent=WHOLE) for n in range(parts)),
    ]


PF = devices("8086:1572", types=["type-PF"])
VF = devices("8086:154c")
GPU = devices("10de:2330")


# --- nova's record ------------------------------------------------------------------------------


#: What Nova's scheduler reads of a record besides.
REST: dict[str, Any] = {
    "disk_available_least": None,
    "updated_at": None,
    "host_ip": None,
    "hypervisor_type": "QEMU",
    "hypervisor_version": 1,
    "cpu_info": "",
    "supported_hv_specs": [],
    "stats": {},
    "metrics": "[]",
    "numa_topology": None,
}


def nova_node(pools: Any, **changes: Any) -> Any:
    """Return nova's record of a host with such pools."""
    node = objects.ComputeNode(
        id=1,
        uuid=UUID,
        host="host0",
        hypervisor_hostname="node0",
        vcpus=8,
        vcpus_used=0,
        memory_mb=8192,
        memory_mb_used=0,
        free_ram_mb=8192,
        local_gb=10,
        local_gb_used=0,
        free_disk_gb=10,
        cpu_allocation_ratio=4.0,
        ram_allocation_ratio=1.0,
        disk_allocation_ratio=1.0,
        pci_device_pools=pools,
        **{**REST, **changes},
    )
    node.obj_reset_changes(recursive=True)
    return node


def column(pools: Any) -> str:
    """Return what nova writes of pools into its database."""
    updates = {"pci_device_pools": pools}
    objects.ComputeNode()._convert_pci_stats_to_db_format(updates)
    return str(updates["pci_stats"])


def counts(text: Any) -> Counter[Any]:
    """Return what a column says: how many are free of each kind. Nova's classes are its ids'."""
    found: Counter[Any] = Counter()
    for pool in load_pci_pools(text):
        tags = frozenset(pool.tags.items())
        kind = pool.vendor_id, pool.product_id, pool.type, pool.numa_node, tags
        found[*kind, pool.remote_managed, pool.live_migratable] += pool.count
    return +found


def test_what_nova_wrote_is_read_and_comes_back() -> None:
    for number in SEEDS:
        pools = case_of(number).nova_scheduler().to_device_pools_obj()
        theirs = nova_node(pools)
        text = column(pools)
        for ours in (
            ComputeNode.from_nova(theirs),
            ComputeNode.from_row({"pci_stats": text}),
        ):
            assert ours.to_row()["pci_stats"] == text
            if pools.objects:
                assert sum(pool.count for pool in pools) == counts(ours.pci_stats).total()
            assert ours.update_inventories(ours.get_inventories()) is False
            assert ours.changes() == {}


def test_novas_object_is_given_the_pools() -> None:
    """Its own classes read them: no other code of Nova's is needed."""
    theirs = nova_node(objects.PciDevicePoolList(objects=[]))
    for ours in (ComputeNode.from_nova(theirs), ComputeNode.from_row({"pci_stats": "[]"})):
        ours.obj_reset_changes()
        ours.update_inventories({PCI: PCIInventory([gpu("3b", 1), *card()])})
        ours.write_to(theirs)
        assert theirs.obj_what_changed() == {"pci_device_pools"}
        assert isinstance(theirs.pci_device_pools, objects.PciDevicePoolList)
        found = [(one.product_id, one.numa_node, one.count) for one in theirs.pci_device_pools]
        assert found == [("2330", 1, 1), ("1572", None, 1), ("154c", None, 2)]
        again = ComputeNode.from_nova(theirs)
        assert counts(again.pci_stats) == counts(ours.pci_stats)
        theirs.obj_reset_changes(recursive=True)
        ours.obj_reset_changes()  # the record says what it was given
        ours.update_inventories({PCI: None})
        ours.write_to(theirs)
        assert theirs.pci_device_pools is None
        theirs.obj_reset_changes()


def test_pools_from_before_there_were_objects_are_read_as_nova_reads_them() -> None:
    text = json.dumps([{"vendor_id": "10de", "product_id": "2330", "count": 2, "numa_node": 1}])
    theirs = objects.pci_device_pool.from_pci_stats(text)
    assert [(one.product_id, one.numa_node, one.count) for one in theirs] == [("2330", 1, 2)]
    assert counts(ComputeNode.from_row({"pci_stats": text}).pci_stats).total() == 2


# --- nova's tracker -----------------------------------------------------------------------------


class Tracked:
    """The devices of a host in nova's tracker."""

    def __init__(self, case: Case) -> None:
        self._tracker = manager.PciDevTracker.__new__(manager.PciDevTracker)
        self._tracker.stale, self._tracker.to_be_removed_when_freed = {}, {}
        self._tracker.dev_filter = DeviceSpecs(case.devices)
        self._tracker.stats = pci_stats.PciDeviceStats(
            case.nova_topology(), dev_filter=self._tracker.dev_filter
        )
        made = [nova_device(device, number) for number, device in enumerate(case.devices)]
        self._tracker.pci_devs = objects.PciDeviceList(objects=made)
        tie(made)
        self._tracker._initial_instance_usage()
        self._instances: dict[str, Any] = {}
        self._tracker.stats.populate_pools_metadata_from_assigned_devices()

    def claim(self, instance: str, requests: Iterable[DeviceRequest]) -> list[Any]:
        """Claim devices; return them, none if that is refused."""
        asked = [nova_request(one, number) for number, one in enumerate(requests)]
        wanted = objects.InstancePCIRequests(instance_uuid=instance, requests=asked)
        try:
            return list(self._tracker.claim_instance(None, wanted, None))
        except exception.PciDeviceRequestFailed:
            return []

    def allocate(self, instance: str) -> None:
        """Allocate what an instance claimed."""
        self._tracker.allocate_instance(self._instance(instance))

    def free(self, instance: str) -> None:
        """Free what an instance has."""
        self._tracker.free_instance(None, self._instance(instance))

    def _instance(self, name: str) -> Any:
        none = objects.PciDeviceList(objects=[])
        return self._instances.setdefault(name, objects.Instance(uuid=name, pci_devices=none))

    def pools(self) -> str:
        """Return the column that nova's resource tracker writes."""
        return column(self._tracker.stats.to_device_pools_obj())

    def states(self) -> dict[str, str]:
        """Return the state of each device, by address."""
        return {one.address: _state(one.status) for one in self._tracker.pci_devs}


def _state(said: str) -> str:
    return "not to be had" if said in NOT_TO_BE_HAD else said


def states(node: ComputeNode) -> dict[str, str]:
    live = node.inventories[PCI]
    assert isinstance(live, PCIInventory)
    return {address: _state(state) for address, state in live.states().items()}


def our_node(case: Case) -> ComputeNode:
    """Return our node, told of its devices as nova's tracker is."""
    inventory = PCIInventory([one.replace(class_code="") for one in case.devices])
    return ComputeNode(vcpus=1000, vcpus_used=0, pci_stats=inventory)


def taken(case: Case, requests: tuple[DeviceRequest, ...], found: Iterable[Any]) -> PCIAmount:
    """Return the amount that has the devices which nova claimed."""
    number = {request_id(place): place for place in range(len(requests))}
    own = Case(case.devices, requests)
    return own.assigned(sorted((number[one.request_id], one.address) for one in found))


def simple(case: Case) -> Iterator[DeviceRequest]:
    """Yield what both take to mean the same: no providers, no lists, no words of Placement's, and
    not a card or pieces of it, as they come.

    (The named differences of the matching itself are in ``test_pci_stats``.)
    """
    for request in case.requests:
        words = [(one.resource_class, one.traits) for one in request.specs]
        lists = [tag for one in request.specs for tag in one.tags.values() if tag[0] == "["]
        types = {one.wanted_types for one in request.specs}
        if (
            len(types) == 1
            and set(words) == {(None, frozenset())}
            and not request.providers
            and not lists
        ):
            yield request


def test_our_node_takes_what_novas_tracker_claims() -> None:
    """Claimed, allocated and freed in any order: states and column say the same at every step."""
    told: Counter[str] = Counter()
    for number in SEEDS:
        case, chance = case_of(number), random.Random(number)
        requests = [*simple(case)]
        if not requests:
            continue
        theirs, ours = Tracked(case), our_node(case)
        before = ours.pci_stats
        assert counts(ours.pci_stats) == counts(theirs.pools())
        has: dict[str, PCIAmount] = {}
        for _ in range(6):
            if has and chance.random() < 0.3:
                instance = chance.choice([*has])
                theirs.free(instance)
                ours.inventories.consume({PCI: -has.pop(instance)})
            elif has and chance.random() < 0.3:
                instance = chance.choice([*has])
                theirs.allocate(instance)
                live = ours.inventories[PCI]
                assert isinstance(live, PCIInventory)
                if live.state(has[instance].addresses[0]) == "claimed":
                    put_in_state(live, has[instance], "allocated")
            else:
                instance, wanted = (
                    str(uuid.UUID(int=chance.getrandbits(128))),
                    (chance.choice(requests),),
                )
                found = theirs.claim(instance, wanted)
                fits = ours.inventories.can_provide({PCI: PCIAmount(wanted)})
                assert fits or not found
                told["claimed" if found else "refused" if not fits else "refused by nova"] += 1
                if found:
                    has[instance] = taken(case, wanted, found)
                    ours.inventories.consume({PCI: has[instance]})
            assert states(ours) == theirs.states(), number
            assert counts(ours.pci_stats) == counts(theirs.pools()), number
        for instance, amount in has.items():
            theirs.free(instance)
            ours.inventories.consume({PCI: -amount})
        assert ours.pci_stats == before and not pending_devices(ours)
        assert counts(ours.pci_stats) == counts(theirs.pools())
    assert told["claimed"] > 400 and told["refused"] > 100
    assert told["refused by nova"] == 0


def test_a_claim_that_fails_leaks_in_nova_and_not_here() -> None:
    """f.1 #8: a card and a piece of it, which nobody can have both."""
    case = Case((*card(3),), (*PF.requests, *VF.requests))
    theirs, ours = Tracked(case), our_node(case)
    assert theirs.claim(UUID, case.requests) == []
    assert counts(theirs.pools()).total() == 1  # the three functions are in no pool any more
    with pytest.raises(CapacityException):
        ours.inventories.consume({PCI: PCIAmount(case.requests)})
    assert counts(ours.pci_stats).total() == 4 and ours.changes().keys() >= {"pci_stats"}
    assert states(ours) == theirs.states()


def test_a_card_of_which_one_piece_is_claimed_is_said_to_be_unclaimable() -> None:
    """Nova goes on to say what the card was for the piece that has gone."""
    case = Case(tuple(card()), VF.requests)
    theirs, ours = Tracked(case), our_node(case)
    live = ours.inventories[PCI]
    assert isinstance(live, PCIInventory)
    has = {}
    for instance in ("one", "other"):
        key = str(uuid.uuid5(uuid.NAMESPACE_DNS, instance))
        has[key] = taken(case, case.requests, theirs.claim(key, case.requests))
        live.consume(has[key])
    first = next(iter(has))
    theirs.allocate(first)
    put_in_state(live, has[first], "allocated")
    theirs.free(first)
    live.consume(-has[first])
    assert theirs._tracker.pci_devs[0].status == "unavailable"
    assert live.state(WHOLE) == "unclaimable"


# --- nova's scheduler ---------------------------------------------------------------------------


def host_state(theirs: Any) -> Any:
    """Return what nova's scheduler keeps of a host."""
    state = host_manager.HostState("host0", "node0", UUID)
    state._update_from_compute_node(theirs)
    return state


def spec_of(requests: Iterable[DeviceRequest]) -> Any:
    """Return a request specification that asks for devices and nothing else."""
    asked = [nova_request(one, number) for number, one in enumerate(requests)]
    return types.SimpleNamespace(
        root_gb=0,
        ephemeral_gb=0,
        memory_mb=0,
        vcpus=0,
        numa_topology=None,
        pci_requests=objects.InstancePCIRequests(requests=asked),
        get_request_group_mapping=lambda: None,
    )


def test_a_node_answers_as_novas_scheduler_does() -> None:
    """A request at a time. (Several at once: ``test_pci_stats``.)"""
    told: Counter[str] = Counter()
    for number in SEEDS:
        case = case_of(number)
        pools = case.nova_scheduler().to_device_pools_obj()
        ours = our_node(case)
        state = host_state(nova_node(pools))
        for request in simple(case):
            wanted = spec_of([request])
            fits = state.pci_stats.support_requests(wanted.pci_requests.requests, None)
            assert fits is ours.inventories.can_provide({PCI: PCIAmount([request])}), number
            told[str(fits)] += 1
    assert told["True"] > 200 and told["False"] > 50


def test_novas_scheduler_gives_a_card_after_a_piece_of_it_was_taken() -> None:
    """f.1 #9: pools do not exclude each other there; devices do."""
    case = Case(tuple(card()), (*VF.requests, *PF.requests))
    pools = case.nova_scheduler().to_device_pools_obj()
    state, ours = host_state(nova_node(pools)), our_node(case)
    state._locked_consume_from_request(spec_of(VF.requests))
    ours.inventories.consume({PCI: VF})
    assert state.pci_stats.support_requests(spec_of(PF.requests).pci_requests.requests, None)
    assert not ours.inventories.can_provide({PCI: PF})
    assert ("8086", "1572") not in {kind[:2] for kind in counts(ours.pci_stats)}


def test_novas_scheduler_stays_half_way() -> None:
    """f.1 #11: the first request was applied when the second is refused; the caller goes on."""
    case = Case((gpu("3b"),), (*GPU.requests, *VF.requests))
    pools = case.nova_scheduler().to_device_pools_obj()
    state, ours = host_state(nova_node(pools)), our_node(case)
    with pytest.raises(exception.PciDeviceRequestFailed):
        state._locked_consume_from_request(spec_of(case.requests))
    assert state.pci_stats.pools == [] and state.num_instances == 1
    before = ours.pci_stats
    with pytest.raises(CapacityException):
        ours.inventories.consume({"VCPU": 1, PCI: PCIAmount(case.requests)})
    assert ours.pci_stats == before and ours.vcpus_used == 0


def test_a_required_affinity_chooses_the_cells() -> None:
    """b.8: what Nova finds by trying cells in order, with the devices tested last."""
    pools = Case((gpu("3b", 1),), GPU.requests).nova_scheduler().to_device_pools_obj()
    cells = [HostCell(n, dedicated=[2 * n, 2 * n + 1], memory_mb=64, socket=n) for n in (0, 1)]
    text = ComputeNode(numa_topology=NUMATopologyInventory(cells)).numa_topology
    ours = ComputeNode.from_nova(nova_node(pools, numa_topology=text))
    ours.update_inventories({PCI: PCIInventory([gpu("3b", 1)])})
    asked = devices("10de:2330", affinity="required")
    found = ours.inventories.fit({NUMA: ro.numa(dedicated=2), PCI: asked})
    assert found[NUMA].host_cells == {1}
    assert not ours.inventories.can_provide({NUMA: ro.numa(dedicated=3), PCI: asked})
    stats = pci_stats.PciDeviceStats(None, stats=pools)
    required = [nova_request(one, 0) for one in asked.requests]
    assert [
        stats.support_requests(required, None, [objects.InstanceNUMACell(id=cell)])
        for cell in (0, 1)
    ] == [False, True]
