"""A host whose devices nova's tracker and our inventory follow, step by step.

Devices are claimed, allocated and freed; they come, go and change while somebody has them. Nova
chooses which devices are claimed, and we take the same. After each step both say the state of each
device and which are free; the first thing they say otherwise is a :class:`Drift`, and it has a name
or is an error.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Set
from typing import Any
from unittest import mock

from benchmarks.nova_tracker import driver_document
from resource_objects.exceptions import CapacityException
from resource_objects.resources.pci import Device, DeviceRequest, PCIAmount, PCIInventory
from tests.peers.nova.pci_sides import CONF, Case, exception, nova_request, objects
from tests.support.pci_devices import put_in_state

from nova import context  # isort: skip  # after nova is loaded as in pci_sides
from nova.objects import pci_device  # isort: skip
from nova.pci import manager  # isort: skip

#: The states in which nova's tracker forgets a device.
_OVER = ("removed", "deleted")
#: The states that a device has for its relatives' sake.
_EXCLUDED = ("unclaimable", "unavailable")


class Drift(enum.Enum):
    """What nova's tracker says otherwise, from the step on that is named."""

    WHOLE_STAYS_UNAVAILABLE = (
        "freeing an allocated part: its function stays unavailable for parts that are claimed"
    )
    RELATIVES_LOST = "freeing a device that is gone: what it excluded is available, in no pool"
    GONE_PART_COUNTS = "freeing the last part: one that was gone keeps their function from others"
    WHOLE_UNTIED = "a function that is not split any more keeps the state its held parts gave it"
    CAME_BACK = "freeing a device that went and came back: it is removed"
    RELATIVE_FOUND = "finding a part of a held function, or the other way round: it is available"
    POOL_STAYS = "a free device that changes stays in the pool of what it was"
    PARTS_GONE = (
        "a part of a held function is gone: it is forgotten, and we keep it with the function"
    )
    NOTHING_CLAIMED = "claiming on a host without devices: no devices, and no error"


class Rows:
    """Nova's database of devices, in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Any]] = {}
        self._ids = itertools.count(1)

    def pci_device_get_all_by_node(self, context: Any, node: int) -> list[dict[str, Any]]:
        """Return no device: each host begins empty."""
        return []

    def pci_device_update(
        self, context: Any, node: int, address: str, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write a device, and return what is written of it."""
        empty = dict.fromkeys(objects.PciDevice.fields) | {"extra_info": "{}"}
        if address not in self._rows:
            self._rows[address] = empty | {"id": next(self._ids)}
        row = self._rows[address]
        row.update(values)
        return row

    def pci_device_destroy(self, context: Any, node: int, address: str) -> None:
        """Forget a device."""
        self._rows.pop(address, None)


@contextlib.contextmanager
def rows() -> Iterator[None]:
    """Give nova's objects a database in memory, and a ``device_spec`` that is every device."""
    CONF.set_override("device_spec", ['{"address": "*:*:*.*"}'], group="pci")
    try:
        with mock.patch.object(pci_device, "db", Rows()):
            yield
    finally:
        CONF.clear_override("device_spec", group="pci")


class Host:
    """Both sides of a host."""

    def __init__(self, devices: tuple[Device, ...]) -> None:
        self.context = context.get_admin_context()
        node = objects.ComputeNode(id=1, numa_topology=None)
        self.tracker = manager.PciDevTracker(self.context, node)
        self.ours = PCIInventory()
        self.held: dict[str, PCIAmount] = {}
        self.instances: dict[str, dict[str, Any]] = {}
        self.there: dict[str, Device] = {}
        self.went: set[str] = set()  #: while somebody held them
        self.beside_gone: set[str] = set()  #: relatives of what was gone when it was freed
        self.freed_gone: set[str] = set()  #: the same, in the last step alone
        self.look(devices)

    # --- steps ---

    def look(self, devices: tuple[Device, ...]) -> None:
        """Both look at the devices there are."""
        self.freed_gone = set()
        held = {address for amount in self.held.values() for address in amount.addresses}
        self.there = {device.address: device for device in devices}
        self.went |= held - self.there.keys()
        said = json.dumps([driver_document(device) for device in devices])
        self.tracker.update_devices_from_hypervisor_resources(said)
        self.tracker.save(self.context)
        self.ours.rediscover(devices)

    def claim(self, owner: str, request: DeviceRequest) -> Drift | None:
        """Both claim what nova chooses.

        :raises AssertionError: if one of the two cannot, without a drift before
        """
        self.freed_gone = set()
        instance = str(uuid.uuid5(uuid.NAMESPACE_DNS, owner))
        asked = objects.InstancePCIRequests(
            instance_uuid=instance, requests=[nova_request(request, 0)]
        )
        try:
            found = self.tracker.claim_instance(self.context, asked, None)
        except exception.PciDeviceRequestFailed:
            assert not self._can(request)
            return None
        self.tracker.save(self.context)
        if not found:
            assert not self.nova_states() and not self._can(request)
            return Drift.NOTHING_CLAIMED
        case = Case(self.ours.devices, (request,))
        amount = case.assigned((0, device.address) for device in found)
        self.held[owner] = self.ours.consume(amount)
        self.instances[owner] = {"uuid": instance, "pci_devices": []}
        return None

    def _can(self, request: DeviceRequest) -> bool:
        try:
            self.ours.fit(PCIAmount([request]))
        except CapacityException:
            return False
        return True

    def allocate(self, owner: str) -> None:
        """Who claimed devices has them."""
        self.tracker.allocate_instance(self.instances[owner])
        self.tracker.save(self.context)
        put_in_state(self.ours, self.held[owner], "allocated")

    def free(self, owner: str) -> None:
        """Who has devices gives them back."""
        amount = self.held.pop(owner)
        gone = {use.address for use in self.ours.usage if use.gone} & {*amount.addresses}
        known = self.ours.devices
        self.freed_gone = {d.address for d in known if d.parent in gone}
        self.freed_gone |= {d.parent for d in known if d.address in gone and d.parent is not None}
        self.beside_gone |= self.freed_gone
        self.tracker.free_instance(self.context, self.instances.pop(owner))
        self.tracker.save(self.context)
        self.ours.consume(-amount)
        self.ours.rediscover(self.there.values())  # as the next periodic update does

    # --- what both say ---

    def nova_states(self) -> dict[str, str]:
        """Return nova's state of each device."""
        known = self.tracker.pci_devs
        return {one.address: one.status for one in known if one.status not in _OVER}

    def nova_free(self) -> dict[str, dict[str, Any]]:
        """Return the pool of each device that nova would give out."""
        pools = self.tracker.stats.pools
        return {device.address: pool for pool in pools for device in pool["devices"]}

    def drift(self) -> Drift | None:
        """Return what nova says otherwise than we do, if anything.

        :raises AssertionError: if that has no name
        """
        ours, theirs = dict(self.ours.states()), self.nova_states()
        others = [at for at in sorted({*ours, *theirs}) if ours.get(at) != theirs.get(at)]
        if any(at not in theirs and at in self.went for at in others):
            return Drift.CAME_BACK
        for address in others:
            return self._of_state(address, theirs.get(address), ours.get(address))
        pools = self.nova_free()
        free = {address for address, state in ours.items() if state == "available"}
        if free != pools.keys():
            return self._of_pools(free, pools.keys())
        for address, pool in pools.items():
            device = self.ours.device(address)
            words = ("vendor_id", "product_id", "numa_node", "dev_type")
            has = tuple(pool[word] for word in words)
            if has != (device.vendor_id, device.product_id, device.numa_node, device.type):
                return Drift.POOL_STAYS
        return None

    def _of_state(self, address: str, theirs: str | None, ours: str | None) -> Drift:
        known = {device.address: device for device in self.ours.devices}
        parts = {one.address for one in known.values() if one.parent == address}
        parents = {one.parent for one in known.values() if one.address == address}
        uses = {use.address: use.state for use in self.ours.usage}
        held = {uses[relative] for relative in parts | parents if relative in uses}
        is_beside = bool(parts) or address in self.beside_gone
        if address not in known:
            assert theirs == "available"
            return Drift.RELATIVE_FOUND
        if theirs is None and known[address].withdrawn and known[address].parent in uses:
            return Drift.PARTS_GONE
        now = self.there.get(address)
        is_untied = now is not None and now.type == "type-PCI"
        if theirs in _EXCLUDED and is_beside and is_untied:
            return Drift.WHOLE_UNTIED
        is_late = theirs == "unavailable" and ours == "unclaimable"
        if is_late and parts and held == {"claimed"}:
            return Drift.WHOLE_STAYS_UNAVAILABLE
        if theirs == "available" and ours in _EXCLUDED and held:
            return Drift.RELATIVE_FOUND
        if theirs in _EXCLUDED and ours == "available" and address in self.beside_gone:
            return Drift.GONE_PART_COUNTS
        raise AssertionError(f"{address}: nova says {theirs}, we say {ours}")

    def _of_pools(self, ours: Set[str], theirs: Set[str]) -> Drift:
        if theirs < ours and ours - theirs <= self.freed_gone:
            return Drift.RELATIVES_LOST
        raise AssertionError(f"free by nova {sorted(theirs)}, by us {sorted(ours)}")
