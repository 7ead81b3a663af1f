"""Nova's ``claims.Claim`` and ``MoveClaim``, made and decided by a resource tracker of ours.

They are made with what Nova's are made with, and put in their place while Nova's own tests of them
run (``nova/tests/unit/compute/test_claims.py``). A host is read of the compute node and the devices
of Nova's PCI tracker, what is asked of the flavor, the topology and the device requests; our
tracker claims it or refuses, and its reasons stand behind the words that Nova has for such a
refusal. What those tests stand in for is taken for what it says:

* words that are no ids or addresses (``v``, ``p``, ``a``) become some that are
* ``support_requests`` that was replaced says whether the host has such devices
* ``numa_fit_instance_to_host`` that was replaced says which topology goes to the host
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy  # noqa: F401  # before their tests forbid what it looks at when it is imported

import resource_objects as ro
from resource_objects.exceptions import CapacityException, InvalidInput
from resource_objects.host.tracker import Driver, MigrationKind, ResourceTracker
from resource_objects.interop.nova import load_host_numa_topology, load_instance_numa_topology
from resource_objects.interop.nova.pci_requests import load_pci_requests
from resource_objects.resources.numa import (
    HostCell,
    NUMATopologyAmount,
    NUMATopologyInventory,
    PagePool,
)
from resource_objects.resources.pci import Device, PCIAmount, PCIInventory
from resource_objects.testing.refusals import is_one_of
from tests.peers.nova.numa_sides import exception, hardware, objects

#: Where who moves comes from.
SOURCE = "source"
#: Without limits Nova bounds no topology by ratios.
UNBOUNDED = 1000

PAGES = "Requested page size is different from current page size."
DEVICES = "Claim pci failed"
CELLS = "Requested instance NUMA topology cannot fit the given host NUMA topology"
BOTH = (
    "Requested instance NUMA topology together with requested PCI devices cannot fit the given "
    "host NUMA topology"
)


class _Hosts(Driver):
    def __init__(self, *hosts: str) -> None:
        self._hosts = hosts

    def hosts(self) -> Iterable[str]:
        return self._hosts

    def get_available_resource(self, host: str) -> str:
        raise AssertionError("claims do not ask what a host has")


class Claim:
    """A claim for a build, tested when it is made, as Nova's is.

    :raises ComputeResourcesUnavailable: if our tracker refuses
    """

    #: Every claim that was made or refused.
    decided: list[Claim] = []

    def __init__(
        self,
        context: Any,
        instance: Any,
        nodename: str,
        tracker: Any,
        compute_node: Any,
        pci_requests: Any,
        migration: Any = None,
        limits: Any = None,
    ) -> None:
        self.context, self.migration = context, migration
        self.instance, self.instance_ref = instance.obj_clone(), instance
        self.nodename, self.tracker = nodename, tracker
        self.claimed_numa_topology = None
        Claim.decided.append(self)
        self.ledger = ro.connect("memory://")
        self.ledger.sync(_host(nodename, compute_node, self._devices(pci_requests), limits))
        self.asked = self._asked(pci_requests)
        try:
            self.held = self._take(ResourceTracker(self.ledger, _Hosts(SOURCE, nodename)))
        except (CapacityException, InvalidInput) as refusal:
            reason = f"{self._words(refusal)}: {refusal}"
            raise exception.ComputeResourcesUnavailable(reason=reason) from refusal
        located = self.ledger.assigned_amounts(instance.uuid).get(nodename, ro.Amounts())
        self.claimed_numa_topology = located.get("NUMA_TOPOLOGY")

    def _take(self, tracker: ResourceTracker) -> Any:
        return tracker.claim(self.instance.uuid, self.nodename, self.asked)

    @property
    def flavor_asked(self) -> Any:
        """What counts are asked by."""
        return self.instance.flavor

    @property
    def numa_topology(self) -> Any:
        """The topology that is asked, in Nova's words."""
        return self.instance.numa_topology

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if kind is not None:
            self.abort()

    def abort(self) -> None:
        """Give it back, and say so to who asked for it."""
        self.held.revert()
        self.tracker.abort_instance_claim(self.context, self.instance_ref, self.nodename)

    def used(self) -> dict[tuple[str, str], int]:
        """Return what is used of the hosts."""
        return {(one.provider, one.resource_class): one.used for one in self.ledger.usage()}

    # --- what is asked, and of what ---

    def _devices(self, asked: Any) -> list[Any]:
        """Return Nova's devices of the host; where its answer was replaced, those it stands for."""
        known = self.tracker.pci_tracker
        if not asked.requests or not _is_replaced(known.stats.support_requests):
            return list(known.pci_devs)
        if not known.stats.support_requests(asked.requests, provider_mapping=None):
            return []
        return [
            objects.PciDevice(**request.spec[0], dev_type="type-PCI", numa_node=None)
            for request in asked.requests
            for _ in range(request.count)
        ]

    def _asked(self, requests: Any) -> dict[str, Any]:
        flavor, topology = self.flavor_asked, self._topology()
        asked: dict[str, Any] = {"DISK_GB": flavor.root_gb + flavor.ephemeral_gb}
        if topology is None:
            asked |= {"VCPU": flavor.vcpus, "MEMORY_MB": flavor.memory_mb}
        else:
            asked["NUMA_TOPOLOGY"] = topology
        devices = _requests(requests)
        return asked if devices is None else {**asked, "DEVICES": devices}

    def _topology(self) -> NUMATopologyAmount | None:
        fit = hardware.numa_fit_instance_to_host
        asked = fit.return_value if _is_replaced(fit) else self.numa_topology
        return _amount(asked)

    def _words(self, refusal: Exception) -> str:
        """Return what Nova says of such a refusal."""
        reasons = refusal.reasons if isinstance(refusal, CapacityException) else ()
        if "NUMA_TOPOLOGY" in self.asked:
            return BOTH if "DEVICES" in self.asked else CELLS
        if "DEVICES" in self.asked and {one.resource for one in reasons} <= {_CLASS, "DEVICES"}:
            return DEVICES
        return "no room"


class MoveClaim(Claim):
    """A claim of where somebody goes, which has to be something else than where it is."""

    def __init__(
        self,
        context: Any,
        instance: Any,
        nodename: str,
        flavor: Any,
        image_meta: Any,
        tracker: Any,
        compute_node: Any,
        pci_requests: Any,
        migration: Any,
        limits: Any = None,
    ) -> None:
        self.flavor = flavor
        is_read = not isinstance(image_meta, dict)
        self.image_meta = image_meta if is_read else objects.ImageMeta.from_dict(image_meta)
        super().__init__(
            context,
            instance,
            nodename,
            tracker,
            compute_node,
            pci_requests,
            migration=migration,
            limits=limits,
        )

    @property
    def flavor_asked(self) -> Any:
        return self.flavor

    @property
    def numa_topology(self) -> Any:
        return hardware.numa_get_constraints(self.flavor, self.image_meta)

    def _take(self, tracker: ResourceTracker) -> Any:
        known = self.instance.obj_attr_is_set("numa_topology")
        before = _amount(self.instance.numa_topology) if known else None
        self.ledger.sync(_source(before))
        has: dict[str, Any] = {"VCPU": 1} if before is None else {"NUMA_TOPOLOGY": before}
        tracker.claim(self.instance.uuid, SOURCE, has)
        is_live = self.migration.is_live_migration
        kind = MigrationKind.LIVE_MIGRATION if is_live else MigrationKind.RESIZE
        return tracker.move(self.instance.uuid, self.nodename, self.asked, kind=kind)

    def _words(self, refusal: Exception) -> str:
        if is_one_of(refusal, "InvalidMove"):
            return self._test_live_migration_page_size()
        return super()._words(refusal)

    def _test_live_migration_page_size(self) -> str:
        """Return what Nova says of other pages; its tests look whether they were compared."""
        return PAGES

    def abort(self) -> None:
        self.held.revert()
        self.tracker.drop_move_claim(self.context, self.instance, self.nodename, flavor=self.flavor)
        self.instance.drop_migration_context()


# --- their words in ours ---

_CLASS = "CUSTOM_DEVICE"


def _host(name: str, node: Any, devices: Iterable[Any], limits: Any) -> ro.Provider:
    """Return a compute node with its cells, bound by ratios as the limits say, and devices."""
    counts = {"VCPU": node.vcpus, "MEMORY_MB": node.memory_mb, "DISK_GB": node.local_gb}
    found = ro.Provider(name, counts)
    bound = _topology_limits(limits)
    cells = load_host_numa_topology(
        node.numa_topology,
        cpu_ratio=UNBOUNDED if bound is None else bound.cpu_allocation_ratio,
        memory_ratio=UNBOUNDED if bound is None else bound.ram_allocation_ratio,
    )
    found.add_parts("NUMA_TOPOLOGY", cells)
    known = [
        Device(
            f"0000:00:{number:02x}.0",
            _hex(device.vendor_id),
            _hex(device.product_id),
            device.dev_type,
            numa_node=device.numa_node,
            resource_class=_CLASS,
        )
        for number, device in enumerate(devices)
    ]
    if known:
        found.add_parts("DEVICES", PCIInventory(known))
    return found


def _topology_limits(limits: Any) -> Any:
    if isinstance(limits, objects.SchedulerLimits):
        limits = limits.to_dict()
    return (limits or {}).get("numa_topology")


def _source(held: NUMATopologyAmount | None) -> ro.Provider:
    """Return a host that has just what who moves holds."""
    found = ro.Provider(SOURCE, "VCPU=64,MEMORY_MB=65536")
    if held is not None:
        size = int(held.page_size or 4)
        cells = [
            HostCell(
                number,
                shared=range(64 * number, 64 * number + len(cell.shared)),
                memory_mb=cell.memory_mb,
                pages=[
                    PagePool(size_kib=size // 2, total=0),  # so these are not ordinary memory
                    PagePool(size_kib=size, total=cell.memory_mb * 1024 // size),
                ],
            )
            for number, cell in enumerate(held.cells)
        ]
        found.add_parts("NUMA_TOPOLOGY", NUMATopologyInventory(cells))
    return found


def _is_replaced(function: Any) -> bool:
    """Whether a test of theirs put a mock in its place."""
    return hasattr(function, "assert_called_once_with")


def _amount(topology: Any) -> NUMATopologyAmount | None:
    """Return what a topology of Nova asks; its cells are numbered from 0, and so are its vCPUs."""
    if topology is None:
        return None
    asked, first = topology.obj_clone(), 0
    for number, cell in enumerate(asked.cells):
        end = first + len(cell.cpuset)
        cell.id, cell.cpuset, first = number, set(range(first, end)), end
    return load_instance_numa_topology(asked, assigned=False)


def _requests(asked: Any) -> PCIAmount | None:
    said = [
        {"count": one.count, "spec": [_spec(spec) for spec in one.spec]} for one in asked.requests
    ]
    return load_pci_requests(said)


def _spec(said: Mapping[str, str]) -> dict[str, str]:
    return {name: _hex(value) for name, value in said.items()}


def _hex(word: str) -> str:
    """Return a word as an id: itself if it is one, else its first character as one."""
    try:
        return f"{int(word, 16):04x}"
    except ValueError:
        return f"{ord(word[0]):04x}"
