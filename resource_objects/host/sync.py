"""Sync a host to a ledger: it becomes as it is now, and its allocated devices are retained.

An allocated device is stored as it was when it was allocated, and is not allocated to another
consumer. This is the rule of Nova's ``PciDevTracker``:

=================  ===============================================================================
allocated device   what is stored
=================  ===============================================================================
not offered any    the device as it was, withheld: once released, it is not allocated again, and the
more               next sync removes it. All of it is reserved, except where functions of the same
                   card and class are offered: there it counts as used
changed            the device as it was; the next sync after its release changes it. Facts that no
                   request selects by (a MAC address) are no change
partitioned        the partitioning as it was, also if only a part is allocated
in another way
a physical         its virtual functions as they were; new ones are left out until its release
function
for one use        all of it is reserved, while it is allocated and after that, until it is reset;
                   also if it was allocated and released since the last sync, or is not offered any
                   more
=================  ===============================================================================

Other devices become as they are now. A device that was allocated by count is an allocated device.
If several functions may be the allocated ones, all of them are retained.

Additions to the provider of a device in the tree to sync (slices, partitions below it, traits) are
synced with it. Additions that depend on its classes are left out while the device is stored with
other classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects.exceptions import InvalidInput, InvalidTree, NotFound
from resource_objects.findings import Finding
from resource_objects.host.holdings import DeviceStatus, HostDevices, read_devices
from resource_objects.providers import Provider
from resource_objects.providers.provider import stored_classes
from resource_objects.resources import Inventory
from resource_objects.resources.pci import DEVICES, Device, DeviceUse, PCIInventory
from resource_objects.resources.pci.device import (
    ALLOCATED,
    SPENT,
    parse_address,
    retain_allocated,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger, SyncResult
    from resource_objects.ledger.definitions import Difference
    from resource_objects.providers import Share

__all__ = ["HostSync", "RetainedTree", "retain_devices", "retained_tree", "sync_host"]


@dataclasses.dataclass(frozen=True, slots=True)
class HostSync:
    """The result of the sync of a host, and a finding for each device not stored as discovered."""

    result: SyncResult
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (self.result, *self.findings)))


@dataclasses.dataclass(frozen=True, slots=True)
class RetainedTree:
    """The tree to sync, and a finding for each device in it that is not as discovered."""

    tree: Provider
    findings: tuple[Finding, ...] = ()


def sync_host(ledger: Ledger, tree: Provider, *, reset: Collection[str] = ()) -> HostSync:
    """Sync a host as ``ledger.sync`` does, and retain its allocated devices.

    A device that was removed while it is allocated does not block the sync of the rest of the host.
    Cost: that of a sync and a read.

    :param tree: the host, as :func:`~resource_objects.host.tree.provider_tree` returns it
    :param reset: addresses of devices for one use that can be allocated again
    :raises InvalidInput: if a device to reset is allocated, or is not for one use
    :raises InUse: if another provider or inventory that would be removed is allocated. This and
        other errors of ``ledger.sync`` change nothing

    >>> import resource_objects as ro
    >>> from resource_objects.host import HostSettings, provider_tree
    >>> from resource_objects.host.machine import Core, Machine, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> machine = Machine(hostname="box", cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0,
    ...                   devices=(gpu,))
    >>> with ro.connect("memory://") as ledger:
    ...     rules = HostSettings(device_rules=["10de:*=PGPU"])
    ...     print(sync_host(ledger, provider_tree(machine, rules)))
    ...     _ = ledger.claim("job-1", ledger.snapshot().candidates("DEVICES=PGPU"))
    ...     print(sync_host(ledger, provider_tree(machine)).findings[0])
    + box
    + box/0000:3b:00.0
    0000:3b:00.0: retained: no longer offered, cannot be allocated again; allocated to job-1
    """
    retained = RetainedTree(tree)

    def compare() -> Difference:
        nonlocal retained
        retained = retained_tree(ledger, tree, reset)  # read again at each try
        difference = ledger.definitions.compare([retained.tree])
        return dataclasses.replace(difference, follows_use=True)

    result = ledger.definitions.write("define", tree.name, None, compare)
    return HostSync(result, retained.findings)


def retained_tree(
    ledger: Ledger,
    tree: Provider,
    reset: Collection[str] = (),
    stored: HostDevices | None = None,
) -> RetainedTree:
    """Return the tree to sync, with the devices that a ledger has now: see :func:`retain_devices`.

    :param stored: the devices as they were just read; None: they are read now
    """
    if stored is None:
        stored = _read_stored(ledger, tree)
    devices = [device for child in tree.children for device in _devices_of(child)]
    if not any(d.one_time_use for d in (*devices, *(s.device for s in stored.devices))):
        return retain_devices(tree, stored, reset=reset)
    # The counts are read before the devices: a use between the two reads shows in either.
    providers = ledger.providers(tree=tree.uuid or tree.name)
    writes = {provider.name: provider.allocation_writes for provider in providers}
    return retain_devices(tree, _read_stored(ledger, tree), writes=writes, reset=reset)


def _read_stored(ledger: Ledger, tree: Provider) -> HostDevices:
    try:
        return read_devices(ledger, tree.uuid or tree.name)[0]
    except NotFound as error:
        if not error.is_about("provider"):
            raise
        return HostDevices(tree.name)


def _devices_of(provider: Provider) -> tuple[Device, ...]:
    inventory = provider.inventories.get(DEVICES)
    return inventory.devices if isinstance(inventory, PCIInventory) else ()


# --- devices --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Devices:
    """The devices to store, by address; ``spent`` are those for one use that have been used."""

    devices: Mapping[str, Device]
    spent: Collection[str]
    reasons: dict[str, str]

    def inventory(self, stored: Mapping[str, DeviceStatus]) -> PCIInventory:
        """Return the devices as an inventory; those that cannot be allocated are withheld.

        A function that was removed while it is allocated counts as used. It is not reserved in
        addition, because that would hide free functions of the same card and class.
        """
        counted = {
            address: (device.parent or address, device.resource_class)
            for address, device in self.devices.items()
        }
        withheld = {
            address
            for address, device in self.devices.items()
            if device.withdrawn or address in self.spent
        }
        offered = {counted[address] for address in self.devices if address not in withheld}
        uses = [
            DeviceUse(address, ALLOCATED, gone=True)
            if address not in self.spent
            and stored[address].is_allocated
            and counted[address] in offered
            else DeviceUse(address, SPENT)
            for address in sorted(withheld)
        ]
        return PCIInventory([self.devices[address] for address in sorted(self.devices)], usage=uses)


def _retain(
    discovered: Mapping[str, Device],
    stored: Mapping[str, DeviceStatus],
    writes: Mapping[str, int],
    reset: Collection[str],
) -> _Devices:
    used = {
        address
        for address, status in stored.items()
        if status.device.one_time_use and _is_used(address, stored, writes, reset)
    }
    # a used device is retained after its release, although it is not offered any more
    removed = [address for address in used if not stored[address].is_allocated]
    removed = [address for address in removed if address not in discovered]
    retained = retain_allocated(
        (*discovered.values(), *(stored[a].device.replace(withdrawn=True) for a in removed)),
        [status.device for status in stored.values()],
        [address for address, status in stored.items() if status.is_allocated],
    )
    devices, reasons, spent = dict(retained.devices), dict(retained.reasons), set()
    for address, status in stored.items():
        device = devices.get(address)
        if device is None or not device.one_time_use:
            continue
        if address in used:
            spent.add(address)
            if not status.is_allocated:
                reasons[address] = "used once, reserved until it is reset"
        before = status.device.writes_before
        if not status.device.one_time_use or address in reset:
            before = writes.get(status.provider, 0)
        devices[address] = device.replace(writes_before=before)
    return _Devices(devices, spent, reasons)


def _is_used(
    address: str,
    stored: Mapping[str, DeviceStatus],
    writes: Mapping[str, int],
    reset: Collection[str],
) -> bool:
    """Return True if a device for one use has been used since it was stored or reset."""
    status = stored[address]
    if status.is_allocated or address in reset:
        return status.is_allocated
    # writes to the provider of several functions may be about any of them
    is_single = sum(other.provider == status.provider for other in stored.values()) == 1
    is_written = writes.get(status.provider, 0) > status.device.writes_before
    return status.state == SPENT or (is_single and is_written)


def _is_in_use(address: str, stored: Mapping[str, DeviceStatus]) -> bool:
    """Return True if a device or its physical function is allocated."""
    parent = stored.get(stored[address].device.parent or "")
    return stored[address].is_allocated or (parent is not None and parent.is_allocated)


# --- the tree -------------------------------------------------------------------------------------


def retain_devices(
    tree: Provider,
    stored: HostDevices,
    *,
    writes: Mapping[str, int] | None = None,
    reset: Collection[str] = (),
) -> RetainedTree:
    """Return the tree of a host to sync, with its allocated devices as they are stored. Pure.

    :param tree: the tree of :func:`~resource_objects.host.tree.provider_tree`
    :param stored: the stored devices of the host
    :param writes: the number of allocations ever written at each provider, by name, read no later
        than ``stored``; without it only allocations in ``stored`` are uses of a device
    :param reset: addresses of devices for one use that can be allocated again
    :raises InvalidInput: if a device to reset is allocated, or is not for one use; for an invalid
        address

    >>> import resource_objects as ro
    >>> gpu = ro.Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")
    >>> status = DeviceStatus("box", "box/0000:3b:00.0", gpu, "allocated", ("job-1",), True)
    >>> retained = retain_devices(Provider("box", "VCPU=4"), HostDevices("box", (status,)))
    >>> print(*retained.findings)
    0000:3b:00.0: retained: no longer offered, cannot be allocated again; allocated to job-1
    >>> print(*retained.tree.find("box/0000:3b:00.0").inventories[DEVICES].to_records())
    InventoryRecord(resource_class='PGPU', total=1, reserved=1, min_unit=1, ...
    """
    if not isinstance(tree, Provider):
        raise InvalidTree("tree", tree, "a provider, the root of the tree of a host")
    statuses = {status.device.address: status for status in stored.devices}
    addresses = {parse_address(address) for address in reset}
    _check_reset(addresses, statuses)
    discovered = {device.address: device for device in _discovered_devices(tree)}
    devices = _retain(discovered, statuses, writes or {}, addresses)
    with_devices = {child.name: child for child in tree.children if DEVICES in child.inventories}
    children = []
    for provider in _device_providers(tree, devices.inventory(statuses)):
        source = with_devices.get(provider.name)
        before = stored.providers.get(provider.name)
        allocated = [
            address
            for address, status in statuses.items()
            if status.provider == provider.name and _is_in_use(address, statuses)
        ]
        if before is not None and allocated and _differs_in_additions(before, source, tree):
            source = before
            for address in allocated:
                devices.reasons.setdefault(address, "stays partitioned as it was")
        children.append(provider if source is None else _with_additions_of(source, provider, tree))
    result = Provider(
        tree.name,
        tree.inventories,
        traits=tree.traits,
        uuid=tree.uuid,
        generation=tree.generation,
        aggregates=tree.aggregates,
        shares=tree.shares,
        children=(*children, *(child for child in tree.children if child.name not in with_devices)),
    )
    return RetainedTree(result, tuple(_findings(devices, statuses)))


def _check_reset(addresses: Iterable[str], stored: Mapping[str, DeviceStatus]) -> None:
    for address in sorted(addresses):
        status = stored.get(address)
        expected = ""
        if status is None or not status.device.one_time_use:
            expected = "a stored device that is for one use"
        elif _is_in_use(address, stored):
            expected = f"a released one; allocated to {' and '.join(status.holders)}"
        if expected:
            raise InvalidInput("device", "device to reset", address, expected)


def _findings(devices: _Devices, stored: Mapping[str, DeviceStatus]) -> Iterator[Finding]:
    for address, reason in sorted(devices.reasons.items()):
        consumers = stored[address].holders if address in stored else ()
        allocated = f"; allocated to {' and '.join(consumers)}" if consumers else ""
        kind = "retained" if address in devices.devices else "waiting"
        yield Finding(address, kind, f"{reason}{allocated}")


def _discovered_devices(tree: Provider) -> Iterator[Device]:
    for child in tree.children:
        devices = _devices_of(child)
        of_devices = frozenset[str]().union(*(device.traits for device in devices))
        added = child.traits - of_devices  # a stored provider has the traits of all its devices
        for device in devices:
            yield device.replace(traits=device.traits | added) if added else device


def _device_providers(host: Provider, inventory: Inventory) -> tuple[Provider, ...]:
    """Return the providers of devices, without additions; the host is not changed."""
    return Provider(host.name, host.inventories).add_parts(DEVICES, inventory)


def _additions(
    provider: Provider, plain: Provider
) -> tuple[dict[Any, Inventory], tuple[Share, ...]]:
    """Return the inventories and shares of a provider in addition to those of its devices."""
    inventories = {
        kind: inventory
        for kind, inventory in provider.inventories.items()
        if kind not in plain.inventories
    }
    return inventories, tuple(share for share in provider.shares if share not in plain.shares)


def _differs_in_additions(stored: Provider, discovered: Provider | None, host: Provider) -> bool:
    """Return True if the additions of a stored provider would change; without any they do not."""

    def additions(provider: Provider) -> tuple[Any, ...]:
        plain = _device_providers(host, provider.inventories[DEVICES])[0]
        inventories, shares = _additions(provider, plain)
        figures = {
            str(kind): [record.definition() for record in inventory.to_records()]
            for kind, inventory in inventories.items()
        }
        return figures, {*map(str, shares)}, {child.name for child in provider.children}

    before = additions(stored)
    return any(before) and (discovered is None or additions(discovered) != before)


def _with_additions_of(source: Provider, provider: Provider, host: Provider) -> Provider:
    providers = _device_providers(host, source.inventories[DEVICES])
    plain = next((plain for plain in providers if plain.name == provider.name), provider)
    inventories, shares = _additions(source, plain)
    children = source.children
    if {*stored_classes(provider.inventories)} != {*stored_classes(plain.inventories)}:
        inventories, shares, children = {}, (), ()  # they are about classes that are not stored yet
    return Provider(
        provider.name,
        {**provider.inventories, **inventories},
        traits=provider.traits,
        uuid=source.uuid,
        generation=source.generation,
        children=children,
        aggregates=source.aggregates,
        shares=(*provider.shares, *shares),
    )
