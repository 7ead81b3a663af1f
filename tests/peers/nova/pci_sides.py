"""Devices and requests that are said to nova and to us alike, and what each answers.

Nova's words say less than ours and otherwise: :data:`UNSAID` is what no request here says. The tags
that ``[pci] device_spec`` gives a device are handed to nova by :class:`DeviceSpecs`, the objects of
nova that decide are its own.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects.exceptions import CapacityException
from resource_objects.resources.context import CellMap, ChosenCells, Context
from resource_objects.resources.pci import (
    Device,
    DeviceRequest,
    DeviceSpec,
    PCIAmount,
    PCIInventory,
    PlacedDevice,
)

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import exception, objects
    from nova.pci import devspec
    from nova.pci import stats as pci_stats

    objects.register_all()

__all__ = [
    "CONF",
    "ERROR",
    "NO",
    "PROVIDER",
    "UNKNOWN",
    "YES",
    "Case",
    "Consumed",
    "devspec",
    "exception",
    "nova_mapping",
    "nova_request",
    "objects",
    "tags_of",
]

CONF = nova.conf.CONF
YES, NO, ERROR, UNKNOWN = "yes", "no", "IndexError", "only pools are known"

#: What nova has no words for, or none that its statistics read.
UNSAID = ("class_code", "address")
#: The fact by which a device knows its provider in placement.
PROVIDER = "rp_uuid"


def tags_of(device: Device) -> dict[str, Any]:
    """Return the tags that ``[pci] device_spec`` gives a device."""
    said: dict[str, Any] = dict(device.tags)
    if device.remote_managed:
        said["remote_managed"] = "true"
    if device.live_migratable is not None:
        said["live_migratable"] = str(device.live_migratable).lower()
    return said


class DeviceSpecs:
    """``[pci] device_spec``, with an entry for each device."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._of = {device.address: _DeviceSpec(device) for device in devices}

    def get_devspec(self, device: Any) -> _DeviceSpec | None:
        """Return the entry of nova's device."""
        return self._of.get(device.address)

    def __deepcopy__(self, memo: object) -> DeviceSpecs:
        return self


class _DeviceSpec:
    def __init__(self, device: Device) -> None:
        self._tags = tags_of(device) | {
            "resource_class": device.resource_class,
            "traits": ",".join(sorted(device.traits)),
        }

    def get_tags(self) -> dict[str, Any]:
        """Return what nova copies to the pool."""
        return self._tags


def nova_device(device: Device, number: int = 0) -> Any:
    """Return nova's object for a device that is available."""
    return objects.PciDevice(
        id=number + 1,
        compute_node_id=1,
        address=device.address,
        vendor_id=device.vendor_id,
        product_id=device.product_id,
        dev_type=device.type,
        status="available",
        instance_uuid=None,
        request_id=None,
        numa_node=device.numa_node,
        parent_addr=device.parent,
        extra_info={PROVIDER: device.facts[PROVIDER]} if PROVIDER in device.facts else {},
    )


def tie(devices: Sequence[Any]) -> None:
    """Tell nova's devices who was split off whom, as its tracker does."""
    known = {device.address: device for device in devices}
    for device in devices:
        device.parent_device = known.get(device.parent_addr)
        if device.parent_device is not None:
            device.parent_device.child_devices.append(device)


def nova_spec(spec: DeviceSpec) -> dict[str, str | None]:
    """Return nova's words for an alternative."""
    if any(getattr(spec, word) for word in UNSAID) or len(spec.types) > 1:
        raise AssertionError(f"nova cannot say {spec}")
    said: dict[str, str | None] = {
        name: None if value == "null" else value for name, value in spec.tags.items()
    }
    plain = {
        "vendor_id": spec.vendor_id,
        "product_id": spec.product_id,
        "resource_class": spec.resource_class,
        "dev_type": spec.types[0] if spec.types else None,
        "traits": ",".join(sorted(spec.traits)) or None,
        "remote_managed": "true" if spec.remote_managed else None,
        "live_migratable": {None: None, True: "true", False: "false"}[spec.live_migratable],
    }
    return said | {name: value for name, value in plain.items() if value is not None}


def request_id(number: int) -> str:
    """Return the id of a request: none begins as another does."""
    return str(uuid.UUID(int=(number + 1) << 96))


def nova_request(request: DeviceRequest, number: int, *, providers: bool = False) -> Any:
    """Return nova's request.

    :param providers: whether it says itself which providers placement chose, as it does on the host
    """
    specs = [nova_spec(spec) for spec in request.specs]
    if providers and request.providers:
        specs[0]["rp_uuids"] = ",".join(request.providers)
    return objects.InstancePCIRequest(
        count=request.count,
        spec=specs,
        alias_name="alias",
        request_id=request_id(number),
        numa_policy=request.affinity,
    )


def nova_mapping(requests: Sequence[DeviceRequest]) -> dict[str, list[str]]:
    """Return which providers placement chose for which group of the request."""
    return {
        f"{request_id(number)}-{place}": [provider]
        for number, request in enumerate(requests)
        for place, provider in enumerate(request.providers)
    }


class Consumed(NamedTuple):
    """What ``consume_requests`` answered: devices by request, and what is in the pools after."""

    said: str
    taken: tuple[tuple[int, str], ...]
    free: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Case:
    """Devices of a host, all of them free; what is asked; and where who asks is, if anywhere."""

    devices: tuple[Device, ...]
    requests: tuple[DeviceRequest, ...]
    chosen: tuple[int, ...] | None = None
    sockets: Mapping[int, int | None] = dataclasses.field(default_factory=dict)

    # --- nova ---

    def nova_topology(self) -> Any:
        """Return nova's host cells, of which only the sockets are looked at."""
        cells = [objects.NUMACell(id=cell, socket=its) for cell, its in self.sockets.items()]
        return objects.NUMATopology(cells=cells)

    def nova_cells(self) -> Any:
        """Return nova's guest cells, as they are placed; None for none."""
        if self.chosen is None:
            return None
        return [objects.InstanceNUMACell(id=cell) for cell in self.chosen]

    def nova_host(self) -> Any:
        """Return nova's statistics of a host: it knows the devices."""
        found = pci_stats.PciDeviceStats(self.nova_topology(), dev_filter=DeviceSpecs(self.devices))
        devices = [nova_device(device, number) for number, device in enumerate(self.devices)]
        tie(devices)
        for device in devices:
            found.add_device(device)
        found.populate_pools_metadata_from_assigned_devices()
        return found

    def nova_scheduler(self) -> Any:
        """Return nova's statistics at the scheduler: it knows pools."""
        return pci_stats.PciDeviceStats(
            self.nova_topology(),
            stats=self.nova_host().to_device_pools_obj(),
            dev_filter=DeviceSpecs(self.devices),
        )

    def nova_requests(self, *, providers: bool = False) -> list[Any]:
        """Return nova's requests."""
        return [
            nova_request(request, number, providers=providers)
            for number, request in enumerate(self.requests)
        ]

    def nova_supports(self, stats: Any) -> str:
        """Return what ``support_requests`` of a host or a scheduler answers."""
        mapping = nova_mapping(self.requests)
        found = stats.support_requests(self.nova_requests(), mapping, self.nova_cells())
        return YES if found else NO

    def nova_consumes(self, stats: Any = None) -> Consumed:
        """Return what ``consume_requests`` of a host answers."""
        known = self.nova_host() if stats is None else stats
        asked = self.nova_requests(providers=True)
        taken: tuple[tuple[int, str], ...] = ()
        try:
            found = known.consume_requests(asked, self.nova_cells())
        except exception.PciDeviceRequestFailed:
            said = NO
        except IndexError:
            said = ERROR
        else:
            said = YES
            numbers = {request_id(number): number for number in range(len(asked))}
            taken = tuple(sorted((numbers[one.request_id], one.address) for one in found))
        return Consumed(said, taken, frozenset(one.address for one in known.get_free_devs()))

    # --- we ---

    def inventory(self) -> PCIInventory:
        """Return our devices."""
        return PCIInventory(self.devices)

    def amount(self) -> PCIAmount:
        """Return our request."""
        return PCIAmount(self.requests)

    @property
    def where(self) -> dict[str, Any]:
        """The host cells, as :meth:`PCIInventory.fit` takes them."""
        if self.chosen is None:
            return {}
        return {"context": Context(chosen=ChosenCells(CellMap(self.sockets, {}), self.chosen))}

    def ours(self, inventory: PCIInventory | None = None) -> str:
        """Return what we answer."""
        try:
            (inventory or self.inventory()).fit(self.amount(), **self.where)
        except CapacityException:
            return NO
        return YES

    def assigned(self, taken: Iterable[tuple[int, str]]) -> PCIAmount:
        """Return our amount with the devices that somebody chose, by request."""
        known = {device.address: device for device in self.devices}
        return PCIAmount(
            self.requests,
            placed=[
                PlacedDevice(
                    number,
                    address,
                    known[address].resource_class,
                    numa_node=known[address].numa_node,
                    parts=sorted(one.address for one in self.devices if one.parent == address),
                )
                for number, address in taken
            ],
        )
