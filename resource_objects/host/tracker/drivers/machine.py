"""A driver for one machine: merges the discovered tree into the stored tree.

The driver edits only those parts of the tree of a host that
:func:`~resource_objects.host.tree.provider_tree` makes:

* at the root: the inventories, and the discovered traits
  (:func:`~resource_objects.host.tree.is_discovered`);
* the providers with ``NUMA_TOPOLOGY`` or ``DEVICES``: their inventories and shares, and the traits
  that rules add to devices. If they are no longer discovered, they are removed.

Everything else stays as it is stored: other providers, traits and aggregates; and what is below a
device or shares its slices (:func:`~resource_objects.host.partitions.add_partition`), while the
device exists.

The reported value is the machine without its current use. So while its hardware and its tree are
unchanged, an update only reads the machine.
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
from resource_objects.resources.pci import DEVICES

__all__ = ["MachineDriver", "merge_discovered"]

#: The resources of the providers that discovery makes.
_DISCOVERED = (str(NUMA_TOPOLOGY), str(DEVICES))


class MachineDriver(Driver):
    """Reports one machine as it is discovered.

    A tracker with this driver never resets a device for one use: it stays reserved until a call of
    :func:`~resource_objects.host.sync.sync_host` with ``reset``.

    :param reading: the name of a driver of :mod:`resource_objects.host.discovery`, or a callable
        that returns a :class:`~resource_objects.host.machine.Machine`
    :param options: the options of a named driver, such as ``{"disk_path": "/var/lib/machines"}``
    :param uuid: the uuid of the machine; a stored host of its name with another uuid was replaced
    :param max_age: the time for which a reading is used; None: each update reads the machine
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
            raise InvalidInput("value", "options", options, "none for a callable")
        if not callable(reading) and not isinstance(reading, str):
            raise InvalidInput(
                "value", "reading", reading, "the name of a discovery driver, or a callable"
            )
        age = datetime.timedelta() if max_age is None else max_age
        if not isinstance(age, datetime.timedelta) or age < datetime.timedelta():
            raise InvalidInput("value", "max_age", max_age, "a timedelta of 0 or more, or None")
        if settings is not None and not isinstance(settings, HostSettings):
            raise InvalidInput("value", "settings", settings, "HostSettings, or None")
        self._name = None if name is None else names.provider_name(name)
        self._reading = reading
        self._options = dict(options or {})
        self._uuid = None if uuid is None else names.uuid_text(uuid)
        self._max_age = age.total_seconds()
        self._settings = settings or HostSettings()
        self._cells: dict[str, Any] = {
            "numa": numa,
            "physnets": physnets,
            "tunneled": tuple(tunneled),
        }
        self._last: tuple[float, Machine] | None = None  # the time of the reading, and the machine
        self._without_use: tuple[Machine, Machine] | None = None  # as it was read, and without use

    def machine(self) -> Machine:
        """Return the machine, read now or at most ``max_age`` ago.

        :raises DiscoveryError: if it cannot be read
        """
        now = clock.monotonic()
        if self._last is None or now - self._last[0] >= self._max_age:
            read = self._reading
            machine = discover(read, **self._options) if isinstance(read, str) else read()
            if not isinstance(machine, Machine):
                raise InvalidInput("value", "the result of the reading", machine, "a Machine")
            self._last = now, machine
        return self._last[1]

    def hosts(self) -> Iterable[str]:
        """Return the name of the machine, which is read once unless the caller passed its name."""
        if self._name is None:
            self._name = provider_tree(self.machine()).name
        return [self._name]

    def identity(self, host: str) -> str | None:
        """Return the uuid that the caller passed."""
        return self._uuid

    def get_available_resource(self, host: str) -> Machine:
        """Return the machine without its current use."""
        machine = self.machine()
        if self._without_use is None or self._without_use[0] is not machine:
            self._without_use = machine, machine.without_use()
        return self._without_use[1]

    def warnings(self, host: str) -> Iterable[ResourceObjectsError]:
        """Return the facts that could not be read, and devices of rules that cannot be offered."""
        machine = self.machine() if self._last is None else self._last[1]
        for finding in machine.findings:
            yield DiscoveryError(finding.subject, finding.detail)
        for finding in machine_devices(machine, self._settings.device_rules).skipped:
            expected = f"one that can be offered: {finding.detail}"
            yield InvalidInput("device", "device of a rule", finding.subject, expected)

    def update_provider_tree(self, tree: Provider, available: Any) -> None:
        """Merge the discovered tree into a tree, as :func:`merge_discovered`.

        An invalid inventory of the host, such as one with more reserved than its total, stays as it
        is stored (:meth:`~Driver.invalid_inventories`).
        """
        errors: list[InvalidInput] = []

        def stored(name: str, error: InvalidInput) -> Inventory | None:
            errors.append(error)
            return dict(tree.inventories.by_name()).get(name)

        discovered = provider_tree(
            available, self._settings, name=tree.name, on_invalid=stored, **self._cells
        )
        merged = merge_discovered(tree, discovered)
        record_invalid(self, tree.name, errors)
        tree.update(inventories=merged.inventories, traits=merged.traits, children=merged.children)


def merge_discovered(stored: Provider, discovered: Provider) -> Provider:
    """Return a stored tree with the discovered one merged into it; the module describes the rules.

    Pure. Cost: linear in providers.

    :param discovered: the result of :func:`~resource_objects.host.tree.provider_tree`; providers
        of the same name are the same
    """
    new = {child.name: child for child in discovered.children}
    children = [merged for child in stored.children for merged in _merged(child, new)]
    foreign = (name for name in stored.traits if not is_discovered(name))
    return Provider(
        stored.name,
        discovered.inventories,
        traits=discovered.traits.union(foreign),
        uuid=stored.uuid,
        generation=stored.generation,
        children=[*children, *map(_copy, new.values())],
        aggregates=stored.aggregates,
        shares=stored.shares,
    )


def _merged(stored: Provider, new: dict[str, Provider]) -> Iterator[Provider]:
    """Yield a stored provider as it is from now on, nothing if it is removed.

    :param new: the discovered providers, from which the stored one is removed
    """
    discovered = new.pop(stored.name, None)
    children = [merged for child in stored.children for merged in _merged(child, new)]
    if discovered is not None:
        yield _merged_device(stored, discovered, children)
    elif not any(key in stored.inventories for key in _DISCOVERED):
        yield _copy(stored, children)


def _merged_device(stored: Provider, discovered: Provider, children: list[Provider]) -> Provider:
    """Return a discovered provider with the additions to the stored one: slices and partitions."""
    placements = {child.name: child for child in discovered.children}
    # the placements of a partitioned card are discovered, as its slices are
    children = [c for c in children if c.name in placements or not PLACEMENT.search(c.name)]
    present = {child.name for child in children}
    children += [_copy(child) for name, child in placements.items() if name not in present]
    added = {  # classes of which children share slices
        share.of_class
        for child in children
        for below in child.walk()
        for share in below.shares
        if share.of == stored.name and share.of_class not in discovered.inventories
    }
    slices = {name: stored.inventories[name] for name in added if name in stored.inventories}
    # a consumer of the whole device uses its slices too
    classes = {*slices, *stored_classes(discovered.inventories)}
    shares = [
        share
        for share in stored.shares
        if share.of == stored.name
        and share.of_class in slices
        and share.resource_class in classes
        and share not in discovered.shares
    ]
    devices = stored.inventories.get(DEVICES)
    by_rules = [device.traits for device in getattr(devices, "devices", ())]
    return Provider(
        stored.name,
        {**discovered.inventories, **slices},
        traits=discovered.traits | stored.traits.difference(*by_rules),
        uuid=stored.uuid,
        generation=stored.generation,
        children=children,
        aggregates=stored.aggregates,
        shares=[*discovered.shares, *shares],
    )


def _copy(provider: Provider, children: Iterable[Provider] | None = None) -> Provider:
    """Return a copy of a provider, by default with copies of its children."""
    return Provider(
        provider.name,
        provider.inventories,
        traits=provider.traits,
        uuid=provider.uuid,
        generation=provider.generation,
        children=map(_copy, provider.children) if children is None else children,
        aggregates=provider.aggregates,
        shares=provider.shares,
        disabled=provider.disabled,
        **{name: getattr(provider, name) for name in TIMES},
    )
