"""A driver for one machine: the facts that discovery reads, put into the tree that is kept.

Of the tree of a host this driver owns what :func:`~resource_objects.host.tree.provider_tree`
makes, and only that:

* of the root its inventories, and the traits that discovery says
  (:func:`~resource_objects.host.tree.is_discovered`);
* the providers with ``NUMA_TOPOLOGY`` or ``DEVICES``: their inventories and shares, and the traits
  that rules gave their devices. Those that are not found any more go.

Everything else in the tree is somebody else's and stays as it is: other providers and what they
have, other traits, aggregates; and what is below a device or uses slices of it
(:func:`~resource_objects.host.partitions.add_partition`), for as long as the device is there.

What is available is the machine itself, without what changes as it is used: so as long as nobody
builds anything into it, and nobody changes its tree, a look at it costs the reading alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from resource_objects import clock, names
from resource_objects.exceptions import DiscoveryError, InvalidInput, ResourceObjectsError
from resource_objects.host.device_rules import machine_devices
from resource_objects.host.discovery import discover
from resource_objects.host.machine import Machine
from resource_objects.host.partitions import PLACEMENT
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker.driver import Driver, record_invalid
from resource_objects.host.tree import is_discovered, provider_tree
from resource_objects.providers import Provider
from resource_objects.providers.columns import TIMES
from resource_objects.providers.provider import stored_classes
from resource_objects.resources import Inventory
from resource_objects.resources.numa import NUMA_TOPOLOGY
from resource_objects.resources.pci import DEVICES, PCIInventory

__all__ = ["MachineDriver", "merge_discovered"]

#: The resources whose providers discovery makes.
_OWN = (str(NUMA_TOPOLOGY), str(DEVICES))


class MachineDriver(Driver):
    """Says what one machine has, as discovery finds it.

    :param reading: what reads the machine: a driver of :mod:`resource_objects.host.discovery` by
        its name, or a callable that returns a :class:`~resource_objects.host.machine.Machine`
    :param options: of a driver that is named, such as ``{"disk_path": "/var/lib/machines"}``
    :param uuid: what the machine calls itself; a host of its name with another uuid was replaced
    :param max_age: so long is a reading good for; None: it is read at every look
    :param settings: as :func:`~resource_objects.host.tree.provider_tree` has them; so are ``name``,
        ``numa``, ``physnets`` and ``tunneled``
    :raises InvalidInput: for an argument of another type

    >>> from resource_objects.host.machine import MIB, Core, PCIDevice
    >>> gpu = PCIDevice("0000:3b:00.0", "10de", "2330", "030200")
    >>> box = Machine(hostname="box", cpus=(0,), cores=(Core(0, 0, (0,)),), memory_bytes=512 * MIB,
    ...               devices=(gpu,))
    >>> driver = MachineDriver(lambda: box, HostSettings(device_rules=["10de:*=PGPU"]))
    >>> tree = Provider("box", traits=["CUSTOM_RACK_1"], children=[Provider("box/nic", "FPGA=1")])
    >>> driver.update_provider_tree(tree, driver.get_available_resource("box"))
    >>> print(*tree.walk(), sep="\\n")
    box: VCPU=1,MEMORY_MB=512
    box/nic: FPGA=1
    box/0000:3b:00.0: DEVICES=1*PGPU
    >>> tree.traits
    frozenset({'CUSTOM_RACK_1'})
    """

    def __init__(
        self,
        reading: str | Callable[[], Machine] = "linux",
        settings: HostSettings | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        uuid: str | None = None,
        max_age: datetime.timedelta | None = None,
        name: str | None = None,
        numa: bool = False,
        physnets: Mapping[int, Iterable[str]] | None = None,
        tunneled: Iterable[int] = (),
    ) -> None:
        if callable(reading) and options:
            raise InvalidInput("value", "options", options, "none: a callable is asked without any")
        if not callable(reading) and not isinstance(reading, str):
            raise InvalidInput(
                "value", "reading", reading, "the name of a discovery driver, or a callable"
            )
        kept = datetime.timedelta() if max_age is None else max_age
        if not isinstance(kept, datetime.timedelta) or kept < datetime.timedelta():
            raise InvalidInput("value", "max_age", max_age, "a timedelta of 0 or more, or None")
        if settings is not None and not isinstance(settings, HostSettings):
            raise InvalidInput("value", "settings", settings, "HostSettings, or None")
        self._name = None if name is None else names.provider_name(name)
        self._reading = reading
        self._options = dict(options or {})
        self._uuid = None if uuid is None else names.uuid_text(uuid)
        self._keep_seconds = kept.total_seconds()
        self._settings = settings or HostSettings()
        self._cells: dict[str, Any] = {
            "numa": numa,
            "physnets": physnets,
            "tunneled": tuple(tunneled),
        }
        self._read: tuple[float, Machine] | None = None
        self._unused: tuple[Machine, Machine] | None = None  # as it was read, and without use

    def machine(self) -> Machine:
        """Return the machine as it is read, or was within the time that a reading is good for.

        :raises DiscoveryError: if it cannot be read
        """
        now = clock.monotonic()
        if self._read is None or now - self._read[0] >= self._keep_seconds:
            reading = self._reading
            found = discover(reading, **self._options) if isinstance(reading, str) else reading()
            if not isinstance(found, Machine):
                raise InvalidInput("value", "what was read", found, "a Machine")
            self._read = now, found
        return self._read[1]

    def hosts(self) -> Iterable[str]:
        """Return the name of the machine; it is read for it once, unless it was given."""
        if self._name is None:
            self._name = provider_tree(self.machine()).name
        return [self._name]

    def identity(self, host: str) -> str | None:
        """Return the uuid that was given for the machine."""
        return self._uuid

    def get_available_resource(self, host: str) -> Machine:
        """Return the machine, without what changes as it is used."""
        machine = self.machine()
        if self._unused is None or self._unused[0] is not machine:
            self._unused = machine, machine.without_use()
        return self._unused[1]

    def warnings(self, host: str) -> Iterable[ResourceObjectsError]:
        """Return what could not be read of the machine, and devices that rules take in vain."""
        machine = self.machine() if self._read is None else self._read[1]
        for finding in machine.findings:
            yield DiscoveryError(finding.subject, finding.detail)
        for finding in machine_devices(machine, self._settings.device_rules).skipped:
            expected = f"one that can be offered: {finding.detail}"
            yield InvalidInput("device", "device of a rule", finding.subject, expected)

    def update_provider_tree(self, tree: Provider, available: Any) -> None:
        """Put what is found into a tree, as :func:`merge_discovered` does.

        An inventory of the host that is invalid, such as one of which more is reserved than there
        is, stays as it is stored (:meth:`~Driver.invalid_inventories`).
        """
        errors: list[InvalidInput] = []

        def stored(name: str, error: InvalidInput) -> Inventory | None:
            errors.append(error)
            return dict(tree.inventories.by_name()).get(name)

        found = provider_tree(
            available, self._settings, name=tree.name, on_invalid=stored, **self._cells
        )
        wanted = merge_discovered(tree, found)
        record_invalid(self, tree.name, errors)
        tree.update(inventories=wanted.inventories, traits=wanted.traits, children=wanted.children)


# --- what is found, and what is kept --------------------------------------------------------------


def merge_discovered(kept: Provider, found: Provider) -> Provider:
    """Return a tree that is kept with what was found in it, as this module's text says. Pure.

    Cost: linear in providers.

    :param found: what :func:`~resource_objects.host.tree.provider_tree` made; providers of both
        are the same where they have the same name
    """
    left = {child.name: child for child in found.children}
    children = [child for one in kept.children for child in _below(one, left)]
    return Provider(
        kept.name,
        found.inventories,
        traits=found.traits.union(name for name in kept.traits if not is_discovered(name)),
        uuid=kept.uuid,
        generation=kept.generation,
        children=[*children, *(_copied(child) for child in left.values())],
        aggregates=kept.aggregates,
        shares=kept.shares,
    )


def _below(kept: Provider, left: dict[str, Provider]) -> Iterator[Provider]:
    """Yield a provider as it shall be, nothing if it goes; what is found is not left any more."""
    found = left.pop(kept.name, None)
    children = [child for one in kept.children for child in _below(one, left)]
    if found is not None:
        yield _found_at(kept, found, children)
    elif not any(key in kept.inventories for key in _OWN):
        yield _copied(kept, children=children)


def _found_at(kept: Provider, found: Provider, children: list[Provider]) -> Provider:
    """Return a provider that is kept as it was found, with what others have there."""
    placed = {child.name: child for child in found.children}
    # the placements of a card that rules split are the driver's, as its slices are
    children = [c for c in children if c.name in placed or not PLACEMENT.search(c.name)]
    known = {child.name for child in children}
    children += [_copied(child) for name, child in placed.items() if name not in known]
    below = [share for child in children for one in child.walk() for share in one.shares]
    used = {share.of_class for share in below if share.of == kept.name}
    stays = {key: kept.inventories[key] for key in used if key in kept.inventories}
    stays = {key: one for key, one in stays.items() if key not in found.inventories}
    # who has the whole of it uses these too
    shares = [one for one in kept.shares if one.of == kept.name and one.of_class in stays]
    there = {*stays, *stored_classes(found.inventories)}
    return Provider(
        kept.name,
        {**found.inventories, **stays},
        traits=found.traits | (kept.traits - _given(kept.inventories.get(DEVICES))),
        uuid=kept.uuid,
        generation=kept.generation,
        children=children,
        aggregates=kept.aggregates,
        shares=[
            *found.shares,
            *(one for one in shares if one.resource_class in there and one not in found.shares),
        ],
    )


def _given(inventory: Inventory | None) -> frozenset[str]:
    """Return the traits that rules gave the devices of a provider."""
    devices = inventory.devices if isinstance(inventory, PCIInventory) else ()
    return frozenset[str]().union(*(device.traits for device in devices))


def _copied(one: Provider, *, children: Iterable[Provider] | None = None) -> Provider:
    """Return a copy of a provider, with other children if they are given."""
    return Provider(
        one.name,
        one.inventories,
        traits=one.traits,
        uuid=one.uuid,
        generation=one.generation,
        children=[_copied(child) for child in one.children] if children is None else children,
        aggregates=one.aggregates,
        shares=one.shares,
        disabled=one.disabled,
        **{name: getattr(one, name) for name in TIMES},
    )
