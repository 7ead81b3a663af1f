"""The PCI devices of hosts as a ledger keeps them, with who holds what: read, to be shown.

What is decided is decided by the ledger; here everything is of one moment.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from resource_objects import names
from resource_objects.exceptions import InvalidDevice, InvalidInventory, ProviderNotFound
from resource_objects.providers.columns import Columns
from resource_objects.providers.located import Located, LocatedViews
from resource_objects.resources.pci import PCI_DEVICES, Device, PCIInventory, words

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["HostDevices", "KeptDevice", "read_devices"]

#: The fact, ``no``, of a device that its host does not offer any more, while somebody holds it.
OFFERED = "offered"


@dataclasses.dataclass(frozen=True, slots=True)
class KeptDevice:
    """A device that is kept, its state, and who holds it.

    ``state`` is as :mod:`resource_objects.resources.pci.words` has them: that of a device nobody
    holds follows from its relatives; ``spent`` waits for a reset, ``removed`` for the next sync.
    ``holders`` are the consumers that have it; where some took devices without saying which, all of
    those who may have this one. ``is_taken`` says that something is taken of it itself, not of its
    relatives; ``gone`` that the host does not offer it any more.
    """

    host: str
    provider: str
    device: Device
    state: str
    holders: tuple[str, ...] = ()
    is_taken: bool = False
    gone: bool = False

    @property
    def name(self) -> str:
        """Host and address, as devices are named across hosts."""
        return f"{self.host}/{self.device.address}"

    @property
    def is_free(self) -> bool:
        """Whether somebody could have it now."""
        return self.state == words.AVAILABLE


@dataclasses.dataclass(frozen=True, slots=True)
class HostDevices:
    """The devices of one host that are kept, by address; none if it is kept without."""

    host: str
    devices: tuple[KeptDevice, ...] = ()

    def find(self, address: str) -> KeptDevice:
        """Return the device at an address.

        :raises InvalidAddress: if it is none
        :raises InvalidDevice: if none is kept there
        """
        wanted = words.address(address)
        for one in self.devices:
            if one.device.address == wanted:
                return one
        raise InvalidDevice(f"device of {self.host}", address, "the address of one that is kept")

    def relatives(self, device: Device) -> tuple[KeptDevice, ...]:
        """Return the functions of the same physical one, itself not: they exclude each other."""
        family = device.parent or device.address
        return tuple(
            one
            for one in self.devices
            if one.device.address != device.address
            and family in (one.device.address, one.device.parent)
        )


def read_devices(ledger: Ledger, *hosts: str) -> tuple[HostDevices, ...]:
    """Return the devices of hosts and who holds them; without a host those of all that have some.

    Cost: one read of these trees, or of all.

    :param hosts: providers of their trees, by name or uuid
    :raises ProviderNotFound: if one is not there

    >>> import resource_objects as ro
    >>> from resource_objects.providers.located import add_parts
    >>> host = ro.Provider("host0", "VCPU=4")
    >>> gpus = [ro.Device(f"0000:3b:00.{n}", "10de", "2330", resource_class="PGPU") for n in (0, 1)]
    >>> _ = add_parts(host, "PCI_DEVICES", ro.PCIInventory(gpus))
    >>> with ro.connect("memory://") as ledger:
    ...     _ = ledger.sync(host)
    ...     _ = ledger.claim("job-1", ledger.snapshot().candidates("PCI_DEVICES=PGPU"))
    ...     for kept in read_devices(ledger, "host0")[0].devices:
    ...         print(kept.name, kept.state, *kept.holders)
    host0/0000:3b:00.0 allocated job-1
    host0/0000:3b:00.1 available
    """
    keys = [names.provider_key(host) for host in hosts]
    columns = ledger.backend.read(*keys)
    views = LocatedViews(columns)
    roots = [_root(columns, key) for key in keys] or views.trees(PCI_DEVICES.name)
    found = []
    for root in dict.fromkeys(roots):
        view = views.of_tree(root, PCI_DEVICES.name)
        if view is None:
            found.append(HostDevices(_name(columns, root)))
        else:
            found.append(HostDevices(view.host, tuple(_kept(columns, view))))
    return tuple(sorted(found, key=lambda one: one.host))


def _root(columns: Columns, key: str) -> int:
    given = columns.providers
    for root, name, uuid in zip(given.root_id, given.name, given.uuid, strict=True):
        if key in (name, uuid):
            return root
    raise ProviderNotFound(key)


def _name(columns: Columns, number: int) -> str:
    given = columns.providers
    return given.name[list(given.provider_id).index(number)]


def _kept(columns: Columns, view: Located) -> Iterator[KeptDevice]:
    """Yield the devices of a host by address."""
    inventory = view.inventory
    if not isinstance(inventory, PCIInventory):
        raise InvalidInventory(f"{PCI_DEVICES} of {view.host}", inventory, "a PCIInventory")
    spot_of = {
        device.address: spot
        for spot, part in zip(view.spots, inventory.parts(), strict=True)
        for device in part.inventory.devices
    }
    states, uses = inventory.states(), {use.address: use for use in inventory.usage}
    holders = _Holders(columns)
    for device in sorted(inventory.devices, key=lambda device: device.address):
        address, use = device.address, uses.get(device.address)
        who = () if use is None else holders.of(spot_of[address].number, device)
        is_gone = device.facts.get(OFFERED) == "no"
        is_removed = is_gone and states[address] == words.SPENT and not device.one_time_use
        yield KeptDevice(
            view.host,
            spot_of[address].name,
            device,
            words.REMOVED if is_removed else states[address],
            who,
            is_taken=bool(who) or (use is not None and use.state != words.SPENT),
            gone=is_gone,
        )


class _Holders:
    """Who holds which device, by the provider's number in some columns."""

    def __init__(self, columns: Columns) -> None:
        self._named: dict[tuple[int, str, str], str] = {}
        units: Counter[tuple[int, str, str]] = Counter()
        for number, unit, kind, consumer in zip(*columns.units, strict=True):
            self._named[number, kind, unit] = consumer
            units[number, kind, consumer] += 1
        #: those who did not say which
        self._others: dict[tuple[int, str], list[str]] = defaultdict(list)
        for number, kind, consumer, _ in zip(*columns.allocations, strict=True):
            if not units[number, kind, consumer]:
                self._others[number, kind].append(consumer)

    def of(self, number: int, device: Device) -> tuple[str, ...]:
        """Return who has a device that is taken; where nobody said which, all who may have it."""
        named = self._named.get((number, device.resource_class, device.address))
        if named is not None:
            return (named,)
        return tuple(sorted(self._others.get((number, device.resource_class), ())))
