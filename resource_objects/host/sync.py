"""Keeping a host in a ledger as it is now, beside what of its devices is held."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects.exceptions import InUse, InvalidInput, InvalidTree, NotFound
from resource_objects.host.holdings import HostDevices, read_devices
from resource_objects.providers import Provider
from resource_objects.providers.provider import stored_classes
from resource_objects.resources import Inventory
from resource_objects.resources.pci import DEVICES, Device, DeviceUse, PCIInventory
from resource_objects.resources.pci.device import ALLOCATED, SPENT, parse_address

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger, SyncResult

__all__ = [
    "HeldTree",
    "HostSync",
    "StayingDevice",
    "beside_held",
    "sync_host",
    "with_held",
]

#: So often is looked again who holds devices, if somebody took one that was about to go.
_MOST_LOOKS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class HostSync:
    """What a sync of a host did, and the devices that are not kept as they were found."""

    result: SyncResult
    staying: tuple[StayingDevice, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (self.result, *self.staying)))


def sync_host(ledger: Ledger, tree: Provider, *, reset: Collection[str] = ()) -> HostSync:
    """Keep a host as ``ledger.sync`` does, but for devices that are held.

    These stay as :func:`~resource_objects.host.sync.with_held` says: a device that is gone
    does not keep the rest of the host from being kept. Cost: that of a sync, and a read.

    :param tree: what :func:`~resource_objects.host.tree.provider_tree` made of the host
    :param reset: addresses of devices that were for one use and can be given out again
    :raises InvalidInput: if a device to be reset is held, or was not for one use
    :raises InUse: if another provider or inventory that would be removed is allocated. This and the
        other errors are those of ``ledger.sync``; nothing changed

    >>> import resource_objects as ro
    >>> from resource_objects.host import provider_tree
    >>> from resource_objects.host.machine import Core, Machine, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> machine = Machine(hostname="box", cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=0,
    ...                   devices=(gpu,))
    >>> with ro.connect("memory://") as ledger:
    ...     print(sync_host(ledger, provider_tree(machine, rules=["10de:*=PGPU"])))
    ...     _ = ledger.claim("job-1", ledger.snapshot().candidates("DEVICES=PGPU"))
    ...     print(sync_host(ledger, provider_tree(machine)).staying[0])
    + box
    + box/0000:3b:00.0
    0000:3b:00.0 stays reserved: it is not offered any more, and job-1 holds it
    """
    before: HeldTree | None = None
    for _ in range(_MOST_LOOKS):
        held = beside_held(ledger, tree, reset)
        try:
            return HostSync(ledger.sync(held.tree), held.staying)
        except InUse:
            if before is not None and held == before:
                raise  # nobody took anything since: it is held for good
            before = held
    return HostSync(ledger.sync(held.tree), held.staying)


def beside_held(
    ledger: Ledger,
    tree: Provider,
    reset: Collection[str] = (),
    kept: HostDevices | None = None,
) -> HeldTree:
    """Return the tree to sync, beside what is held now: see :func:`with_held`.

    :param kept: the devices as they were just read; None: they are read now
    """
    if kept is None:
        kept = _kept(ledger, tree)
    found = [device for child in tree.children for device in _devices_of(child)]
    known = [one.device for one in kept.devices]
    if not any(device.one_time_use for device in (*found, *known)):
        return with_held(tree, kept, reset=reset)
    # what was written is read before what is held: a use between the two shows in either
    writes = _writes(ledger, tree)
    return with_held(tree, _kept(ledger, tree), writes=writes, reset=reset)


def _devices_of(provider: Provider) -> tuple[Device, ...]:
    inventory = provider.inventories.get(DEVICES)
    return inventory.devices if isinstance(inventory, PCIInventory) else ()


def _kept(ledger: Ledger, tree: Provider) -> HostDevices:
    try:
        return read_devices(ledger, tree.uuid or tree.name)[0]
    except NotFound as error:
        if not error.is_about("provider"):
            raise
        return HostDevices(tree.name)


def _writes(ledger: Ledger, tree: Provider) -> dict[str, int]:
    """Return how many allocations were ever written at each provider of a host, by name."""
    listed = ledger.providers(tree=tree.uuid or tree.name)
    return {one.name: one.allocation_writes for one in listed}


# --- devices that are held ------------------------------------------------------------------------
# What becomes of devices that somebody holds when a host is looked at again. Pure.
#
# A sync says how a host is now. What somebody holds of it must stay in the ledger nevertheless, as
# it was when it was given, and must not be given to anybody else (Nova's ``PciDevTracker``, c.2):
#
# =================  ===============================================================================
# a held device      what is synced
# =================  ===============================================================================
# is gone, or no     it stays as it was and is withheld: once released, it is not allocated again,
# rule is about it   and the next sync removes it. All of it is reserved, except where functions
#                    of the same card and class are present: there it counts as used
# is another now     it stays as it was; the next sync after it is given back changes it. Only facts
#                    that no request asks for (a MAC address) do not count as another
# is split           it stays split as it was, also if somebody has only a part of it
# of a whole card    its virtual functions stay too, and new ones wait: they went with the card
# is for one use     all of it is reserved, while it is held and after that, until it is reset; also
#                    if it was held and given back since the last sync. It stays even if it is gone
# =================  ===============================================================================
#
# What nobody holds is as it is now. Held are also devices that somebody took by count and did not
# name; which of several functions those are nobody can tell, so those stay that would have to.
#
# What else somebody added to the provider of a device before it is synced (slices, partitions below
# it, traits) is synced with it. What is about its classes waits while these are not as they were
# found.


@dataclasses.dataclass(frozen=True, slots=True)
class StayingDevice:
    """A device that is not synced as it was found: why, and who holds it."""

    address: str
    reason: str
    holders: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.holders:
            return f"{self.address} {self.reason}"
        verb = "holds" if len(self.holders) == 1 else "hold"
        return f"{self.address} {self.reason}, and {' and '.join(self.holders)} {verb} it"


@dataclasses.dataclass(frozen=True, slots=True)
class HeldTree:
    """The tree to sync, and the devices in it that are not as they were found."""

    tree: Provider
    staying: tuple[StayingDevice, ...] = ()


def with_held(
    found: Provider,
    kept: HostDevices,
    *,
    writes: Mapping[str, int] | None = None,
    reset: Collection[str] = (),
) -> HeldTree:
    """Return the tree of a host as it is to be synced, beside what of its devices is held.

    :param found: the tree that :func:`~resource_objects.host.tree.provider_tree` made
    :param kept: the devices that the ledger keeps of this host
    :param writes: how many allocations were ever written at each provider, by its name: read no
        later than ``kept``. Without it, only who is seen to hold a device has used it
    :param reset: addresses of devices that were for one use and can be given out again
    :raises InvalidInput: if a device to be reset is held, or was not for one use; if an address to
        be reset is none

    >>> import resource_objects as ro
    >>> from resource_objects.host.holdings import DeviceStatus
    >>> gpu = ro.Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")
    >>> held = DeviceStatus(
    ...     "box", "box/0000:3b:00.0", gpu, "allocated", ("job-1",), is_allocated=True
    ... )
    >>> now = with_held(Provider("box", "VCPU=4"), HostDevices("box", (held,)))
    >>> print(*now.staying)
    0000:3b:00.0 stays reserved: it is not offered any more, and job-1 holds it
    >>> print(*now.tree.find("box/0000:3b:00.0").inventories[DEVICES].to_records())
    InventoryRecord(resource_class='PGPU', total=1, reserved=1, min_unit=1, ...
    """
    if not isinstance(found, Provider):
        raise InvalidTree("found", found, "a provider, the root of the tree of a host")
    merged = _Merged(_offered(found), kept, writes or {}, {parse_address(one) for one in reset})
    tree = Provider(
        found.name,
        found.inventories,
        traits=found.traits,
        uuid=found.uuid,
        generation=found.generation,
        aggregates=found.aggregates,
        shares=found.shares,
    )
    given = {child.name: child for child in found.children if DEVICES in child.inventories}
    devices = []
    for one in _providers(tree, merged.inventory()):
        held = kept.providers.get(one.name)
        if held is not None and merged.stays_split(one.name, given.get(one.name), held, tree):
            devices.append(_with_added(one, held, tree))
        else:
            devices.append(_with_added(one, given[one.name], tree) if one.name in given else one)
    others = [child for child in found.children if child.name not in given]
    tree.update(children=(*devices, *others))
    return HeldTree(tree, tuple(merged.staying()))


def _providers(host: Provider, inventory: Inventory) -> tuple[Provider, ...]:
    """Return the providers that devices of a host are as such; the host stays as it is."""
    return Provider(host.name, host.inventories).add_parts(DEVICES, inventory)


def _added(found: Provider, host: Provider) -> tuple[dict[str, Any], set[str], set[str]]:
    """Return what a device's provider has besides the device: figures, shares, what is below."""
    plain = next(one for one in _providers(host, found.inventories[DEVICES]))
    figures = {
        str(kind): [record.definition() for record in one.to_records()]
        for kind, one in found.inventories.items()
        if kind not in plain.inventories
    }
    shares = {str(share) for share in found.shares} - {str(share) for share in plain.shares}
    return figures, shares, {child.name for child in found.children}


def _with_added(made: Provider, found: Provider, host: Provider) -> Provider:
    """Return the provider of a device with what somebody added to the one that was found."""
    as_found = _providers(host, found.inventories[DEVICES])
    plain = next((one for one in as_found if one.name == made.name), made)
    is_alike = {*stored_classes(made.inventories)} == {*stored_classes(plain.inventories)}
    added = {kind: one for kind, one in found.inventories.items() if kind not in plain.inventories}
    shares = [share for share in found.shares if share not in plain.shares]
    return Provider(
        made.name,
        {**made.inventories, **(added if is_alike else {})},
        traits=made.traits,
        uuid=found.uuid,
        generation=found.generation,
        children=found.children if is_alike else (),
        aggregates=found.aggregates,
        shares=(*made.shares, *(shares if is_alike else ())),
    )


def _offered(tree: Provider) -> Iterator[Device]:
    """Yield the devices that a tree offers."""
    for child in tree.children:
        inventory = child.inventories.get(DEVICES)
        if isinstance(inventory, PCIInventory):
            said = frozenset[str]().union(*(device.traits for device in inventory.devices))
            added = child.traits - said  # as they are read: traits of all its devices
            for device in inventory.devices:
                yield device.replace(traits=device.traits | added) if added else device


class _Merged:
    """Devices as they are found and as they are kept, become one inventory."""

    def __init__(
        self,
        found: Iterable[Device],
        kept: HostDevices,
        writes: Mapping[str, int],
        reset: Collection[str],
    ) -> None:
        self._found = {device.address: device for device in found}
        self._kept = {one.device.address: one for one in kept.devices}
        self._writes = writes
        self._reset = reset
        self._in_use = {address for address in self._kept if self._is_in_use(address)}
        self._now = dict(self._found)
        self._why: dict[str, str] = {}
        self._gone: set[str] = set()
        self._spent: set[str] = set()
        for address in sorted(reset):
            self._check_reset(address)
        for address in sorted(self._kept):
            self._merge(address)
        while self._resolve_conflict():
            pass  # each call resolves one conflict

    def _is_in_use(self, address: str) -> bool:
        one = self._kept[address]
        return one.is_allocated or self._is_held_whole(one.device.parent)

    def _is_held_whole(self, address: str | None) -> bool:
        """Tell whether somebody has a physical function, and so all that is split off it."""
        one = self._kept.get(address or "")
        return one is not None and one.is_allocated and one.device.can_be_split

    def _check_reset(self, address: str) -> None:
        one = self._kept.get(address)
        if one is None or not one.device.one_time_use:
            raise InvalidInput("device", "device to be reset", address, "one that was for one use")
        if address in self._in_use:
            who = " and ".join(one.holders)
            raise InvalidInput("device", "device to be reset", address, f"one that {who} gave back")

    # --- one device ---

    def _merge(self, address: str) -> None:
        old, new = self._kept[address].device, self._found.get(address)
        is_used = old.one_time_use and self._is_used(address)
        if address in self._in_use or (is_used and new is None):
            self._now[address] = old.replace(withdrawn=new is None)
            if new is None:
                self._gone.add(address)
                self._why[address] = "stays reserved: it is not offered any more"
            elif _matter(old) != _matter(new):
                self._why[address] = "stays as it was: it is another now"
        now = self._now.get(address)
        if now is None or not now.one_time_use:
            return
        if is_used:
            self._spent.add(address)
        if is_used and address not in self._in_use:
            self._why[address] = "stays reserved: it was for one use, until it is reset"
        counts_on = old.one_time_use and address not in self._reset
        before = old.writes_before if counts_on else self._written(address)
        self._now[address] = now.replace(writes_before=before)

    def _is_used(self, address: str) -> bool:
        """Tell whether a device for one use has had it."""
        one = self._kept[address]
        if address in self._in_use:
            return True
        if address in self._reset:
            return False
        # of several functions nobody can tell for which of them something was written
        is_alone = sum(each.provider == one.provider for each in self._kept.values()) == 1
        is_written = is_alone and self._written(address) > one.device.writes_before
        return one.state == SPENT or is_written

    def _written(self, address: str) -> int:
        return self._writes.get(self._kept[address].provider, 0)

    def stays_split(
        self, name: str, found: Provider | None, held: Provider, host: Provider
    ) -> bool:
        """Tell whether a device that somebody has is kept as it is split: it was found otherwise.

        :param name: of its provider
        :param found: the provider as it was found, None if it was not
        :param held: the provider as it is kept
        """
        taken = [each for each in self._in_use if self._kept[each].provider == name]
        before = _added(held, host)
        if not taken or not any(before) or (found is not None and _added(found, host) == before):
            return False
        for address in taken:
            self._why.setdefault(address, "stays split as it was")
        return True

    # --- functions of one device ---

    def _resolve_conflict(self) -> bool:
        """Resolve one conflict of a physical and a virtual function; return False if there is none.

        Discovered functions are compatible with each other, and so are stored ones, but a stored
        one may conflict with a discovered one. A virtual function that is not in use is removed
        from ``_now``. Else the physical function is removed or stays as stored. ``_why`` has the
        reason.
        """
        for device in sorted(self._now.values(), key=lambda device: device.address):
            whole = self._now.get(device.parent or "")
            if whole is not None and not self._go_together(device, whole):
                self._part(device, whole)
                return True
        return False

    def _go_together(self, part: Device, whole: Device) -> bool:
        is_new = part.address not in self._kept and self._is_held_whole(whole.address)
        return whole.can_be_split and part.resource_class != whole.resource_class and not is_new

    def _part(self, part: Device, whole: Device) -> None:
        before = self._kept.get(whole.address)
        if part.address not in self._in_use:
            self._drop(part, f"waits until {whole.address} is given back")
        elif before is None or _matter(before.device) == _matter(whole):
            self._drop(whole, f"waits until {part.address} is given back")
        else:
            self._now[whole.address] = before.device
            self._why[whole.address] = f"stays as it was until {part.address} is given back"

    def _drop(self, device: Device, why: str) -> None:
        del self._now[device.address]
        self._why[device.address] = why

    # --- what comes of it ---

    def inventory(self) -> PCIInventory:
        """Return the devices to sync; those that cannot be allocated are withheld.

        A function that was removed while it is allocated counts as used already. It is not reserved
        besides, so that it does not hide functions of the same card and class that are free.
        """
        withheld = (self._gone | self._spent).intersection(self._now)
        present = {_counted_as(one) for at, one in self._now.items() if at not in withheld}
        uses = [
            DeviceUse(address, ALLOCATED, gone=True)
            if address not in self._spent
            and self._kept[address].is_allocated
            and _counted_as(self._now[address]) in present
            else DeviceUse(address, SPENT)
            for address in sorted(withheld)
        ]
        return PCIInventory([self._now[address] for address in sorted(self._now)], usage=uses)

    def staying(self) -> Iterator[StayingDevice]:
        """Yield what is not synced as it was found, by address."""
        for address, why in sorted(self._why.items()):
            one = self._kept.get(address)
            yield StayingDevice(address, why, () if one is None else one.holders)


def _counted_as(device: Device) -> tuple[str, str]:
    """Return the inventory that a device is counted in: of which card, and which class."""
    return device.parent or device.address, device.resource_class


def _matter(device: Device) -> Device:
    """Return what of a device requests may ask for."""
    return device.replace(facts={}, withdrawn=False, writes_before=0)
