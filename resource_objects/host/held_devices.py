"""What becomes of devices that somebody holds when a host is looked at again. Pure.

A sync says how a host is now. What somebody holds of it must stay in the ledger nevertheless, as it
was when it was given, and must not be given to anybody else (Nova's ``PciDevTracker``, c.2):

=================  =================================================================================
a held device      what is synced
=================  =================================================================================
is gone, or no     it stays as it was, all of it reserved: given back, nobody gets it again, and the
rule is about it   next sync removes it
is another now     it stays as it was; the next sync after it is given back changes it. Only facts
                   that no request asks for (a MAC address) do not count as another
of a whole card    its virtual functions stay too, and new ones wait: they went with the card
is for one use     all of it is reserved, while it is held and after that, until it is reset; also
                   if it was held and given back since the last sync. It stays even if it is gone
=================  =================================================================================

What nobody holds is as it is now. Held are also devices that somebody took by count and did not
name; which of several functions those are nobody can tell, so those stay that would have to.

What else somebody added to the provider of a device before it is synced (slices, partitions below
it, traits) is synced with it. What is about its classes waits while these are not as they were
found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects.exceptions import InvalidDevice, InvalidTree
from resource_objects.host.kept_devices import OFFERED, HostDevices
from resource_objects.providers import Provider
from resource_objects.providers.located import add_parts
from resource_objects.providers.provider import kept_classes
from resource_objects.resources import Inventory
from resource_objects.resources.pci import PCI_DEVICES, Device, DeviceUse, PCIInventory, words

__all__ = ["HeldTree", "StayingDevice", "with_held"]

#: The fact of a device for one use that says how often its provider was written to before.
BEFORE = "writes_before"


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

    :param found: the tree that :func:`~resource_objects.host.model.provider_tree` made
    :param kept: the devices that the ledger keeps of this host
    :param writes: how many allocations were ever written at each provider, by its name: read no
        later than ``kept``. Without it, only who is seen to hold a device has used it
    :param reset: addresses of devices that were for one use and can be given out again
    :raises InvalidDevice: if a device to be reset is held, or was not for one use
    :raises InvalidAddress: if an address to be reset is none

    >>> import resource_objects as ro
    >>> from resource_objects.host.kept_devices import KeptDevice
    >>> gpu = ro.Device("0000:3b:00.0", "10de", "2330", resource_class="PGPU")
    >>> held = KeptDevice("box", "box/0000:3b:00.0", gpu, "allocated", ("job-1",), is_taken=True)
    >>> now = with_held(Provider("box", "VCPU=4"), HostDevices("box", (held,)))
    >>> print(*now.staying)
    0000:3b:00.0 stays reserved: it is not offered any more, and job-1 holds it
    >>> print(*now.tree.find("box/0000:3b:00.0").inventories[PCI_DEVICES].to_records())
    InventoryRecord(resource_class='PGPU', total=1, reserved=1, min_unit=1, ...
    """
    if not isinstance(found, Provider):
        raise InvalidTree("found", found, "a provider, the root of the tree of a host")
    merged = _Merged(_devices(found), kept, writes or {}, {words.address(one) for one in reset})
    tree = Provider(
        found.name,
        found.inventories,
        traits=found.traits,
        uuid=found.uuid,
        generation=found.generation,
        aggregates=found.aggregates,
        shares=found.shares,
    )
    given = {child.name: child for child in found.children if PCI_DEVICES in child.inventories}
    made = _providers(tree, merged.inventory())
    devices = [
        _with_added(one, given[one.name], tree) if one.name in given else one for one in made
    ]
    others = [child for child in found.children if child.name not in given]
    tree.update(children=(*devices, *others))
    return HeldTree(tree, tuple(merged.staying()))


def _providers(host: Provider, inventory: Inventory) -> tuple[Provider, ...]:
    """Return the providers that devices of a host are as such; the host stays as it is."""
    return add_parts(Provider(host.name, host.inventories), PCI_DEVICES, inventory)


def _with_added(made: Provider, found: Provider, host: Provider) -> Provider:
    """Return the provider of a device with what somebody added to the one that was found."""
    as_found = _providers(host, found.inventories[PCI_DEVICES])
    plain = next((one for one in as_found if one.name == made.name), made)
    is_alike = {*kept_classes(made.inventories)} == {*kept_classes(plain.inventories)}
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


def _devices(tree: Provider) -> Iterator[Device]:
    """Yield the devices that a tree offers."""
    for child in tree.children:
        inventory = child.inventories.get(PCI_DEVICES)
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
        while self._part_families():
            pass  # until all of them go together

    def _is_in_use(self, address: str) -> bool:
        one = self._kept[address]
        return one.is_taken or self._is_held_whole(one.device.parent)

    def _is_held_whole(self, address: str | None) -> bool:
        """Tell whether somebody has a physical function, and so all that is split off it."""
        one = self._kept.get(address or "")
        return one is not None and one.is_taken and one.device.can_be_split

    def _check_reset(self, address: str) -> None:
        one = self._kept.get(address)
        if one is None or not one.device.one_time_use:
            raise InvalidDevice("device to be reset", address, "one that was for one use")
        if address in self._in_use:
            who = " and ".join(one.holders)
            raise InvalidDevice("device to be reset", address, f"one that {who} gave back")

    # --- one device ---

    def _merge(self, address: str) -> None:
        old, new = self._kept[address].device, self._found.get(address)
        is_used = old.one_time_use and self._is_used(address)
        if address in self._in_use or (is_used and new is None):
            self._now[address] = _with_fact(old, OFFERED, "no" if new is None else None)
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
        before = _before(old) if counts_on else self._written(address)
        self._now[address] = _with_fact(now, BEFORE, str(before) if before else None)

    def _is_used(self, address: str) -> bool:
        """Tell whether a device for one use has had it."""
        one = self._kept[address]
        if address in self._in_use:
            return True
        if address in self._reset:
            return False
        # of several functions nobody can tell for which of them something was written
        is_alone = sum(each.provider == one.provider for each in self._kept.values()) == 1
        is_written = is_alone and self._written(address) > _before(one.device)
        return one.state == words.SPENT or is_written

    def _written(self, address: str) -> int:
        return self._writes.get(self._kept[address].provider, 0)

    # --- functions of one device ---

    def _part_families(self) -> bool:
        """Make a physical function and one split off it go together; return whether it was needed.

        What is found goes together, and so does what is kept; but not always some of each.
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
        """Return the devices to sync; those that nobody may get are reserved."""
        reserved = (self._gone | self._spent).intersection(self._now)
        uses = [DeviceUse(address, words.SPENT) for address in sorted(reserved)]
        return PCIInventory([self._now[address] for address in sorted(self._now)], usage=uses)

    def staying(self) -> Iterator[StayingDevice]:
        """Yield what is not synced as it was found, by address."""
        for address, why in sorted(self._why.items()):
            one = self._kept.get(address)
            yield StayingDevice(address, why, () if one is None else one.holders)


def _before(device: Device) -> int:
    text = device.facts.get(BEFORE, "0")
    return int(text) if text.isdecimal() else 0


def _with_fact(device: Device, name: str, value: str | None) -> Device:
    """Return a device with a fact, or without it."""
    if device.facts.get(name) == value:
        return device
    facts = {key: said for key, said in device.facts.items() if key != name}
    return device.replace(facts=facts if value is None else {**facts, name: value})


def _matter(device: Device) -> Device:
    """Return what of a device requests may ask for."""
    return device.replace(facts={})
