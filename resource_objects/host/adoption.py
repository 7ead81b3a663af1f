"""The state of a host in a ledger, and the adoption of hosts that were in use before. Pure.

A host that is in use before a ledger knows it must not look empty there. So the first save of its
record *adopts* it: the usage that the record reports and that no consumer of the ledger explains is
allocated to the host's *unattributed* consumer, dedicated CPUs and devices by name. That happens
once and is recorded at the host (``Provider.adopted_at``). What a record reports beyond the ledger
later is *drift*: it is returned and not written, because the ledger knows the consumers.

Usage is compared part by part (a cell, a device), then for the host as a whole:

* a unit (a dedicated CPU, a device) is explained by its consumer, or by a consumer that allocated
  the same number of units without naming them;
* an amount is explained by the usage of the same class at the same part;
* a count of the host is also explained by the shares that parts use of it. Nova's ``vcpus_used``
  includes dedicated vCPUs without a figure of their own: the dedicated CPUs of the ledger's
  consumers explain as many of it. Others are counted twice until they are attributed. So a host
  never has more free capacity after its adoption than its record reported.

``pci_stats`` counts free devices and names none: it is not adopted. Devices are adopted from an
inventory that lists them.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from resource_objects.host.columns import (
    COUNTS,
    columns,
    count_of,
    members,
    reserved_elsewhere,
    used_elsewhere,
)
from resource_objects.host.holdings import Holdings
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import LocatedView, ShapeCache
from resource_objects.providers.dry_run import with_taken
from resource_objects.providers.holders import unattributed
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Use
from resource_objects.providers.tree_shape import free_removed_units
from resource_objects.resources import IntegerInventory, Inventories, Inventory, resource
from resource_objects.resources.placed import PlacedInventory, unit_count
from resource_objects.resources.records import AmountRecord


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedUsage:
    """The usage that the record of a host reports.

    ``without_total`` are used figures of counts that the record has no total of. The used figures
    of a record include the amounts that the host reserves for itself; ``knows_reserved`` is whether
    these are subtracted here.
    """

    inventories: Inventories
    without_total: Mapping[str, int] = dataclasses.field(default_factory=dict)
    knows_reserved: bool = True

    @property
    def is_in_use(self) -> bool:
        """Whether anything is used."""
        used: list[Any] = [self.without_total]
        for inventory in members(self.inventories).values():
            if isinstance(inventory, PlacedInventory):
                used += [records for _, records in inventory.in_use()]
            elif isinstance(inventory, IntegerInventory):
                used.append(inventory.used)
        return any(used)

    def counts(self, placed: Iterable[str]) -> dict[str, int]:
        """Return the recorded usage of each count of the host.

        :param placed: the placed resources of the host in the ledger: what other ones use next to
            a count can only be counted in it
        """
        stored, by_name = set(placed), members(self.inventories)
        counts = dict(self.without_total)
        for name, inventory in by_name.items():
            if isinstance(inventory, IntegerInventory):
                counts[name] = inventory.used
        for name in COUNTS:
            separate = sum(
                column.used_elsewhere(name, by_name, False)
                for column in columns()
                if column.resource not in stored
            )
            if separate:
                counts[name] = counts.get(name, 0) + separate
        return counts


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """The usage that a record reports and the ledger of its adopted host lacks. True if any.

    >>> print(Drift((Use("", "PCPU", 1, ("cpu4",), "host0/numa0"),)))
    host0/numa0: PCPU=1 (cpu4) that no consumer holds
    """

    uses: tuple[Use, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.uses)

    def __str__(self) -> str:
        lines = []
        for use in self.uses:
            units = f" ({' '.join(use.units)})" if use.units else ""
            amount = f"{use.resource_class}={use.amount}{units}"
            lines.append(f"{use.provider}: {amount} that no consumer holds")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class HostState:
    """A host in its tree, as it was read at one moment.

    ``shapes`` are those of definitions that were read before.
    """

    number: int
    columns: Columns
    shapes: ShapeCache = dataclasses.field(default_factory=ShapeCache, compare=False, repr=False)

    @classmethod
    def find(cls, columns: Columns, key: str, shapes: ShapeCache | None = None) -> HostState | None:
        """Return the host of a name or uuid, None if it does not exist."""
        index = columns.index
        number = index.numbers.get(key, index.numbers_by_name.get(key))
        return None if number is None else cls(number, columns, shapes or ShapeCache())

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.columns.index.names[self.number]

    @property
    def uuid(self) -> str:
        """The uuid of the host."""
        return self.columns.index.uuids[self.number]

    @property
    def adopted_at(self) -> datetime.datetime | None:
        """The time of its adoption, None if it was not adopted."""
        providers = self.columns.providers
        return providers.adopted_at[providers.provider_id.index(self.number)]

    @functools.cached_property
    def counts(self) -> Inventories:
        """The inventories of the host itself."""
        return self.columns.index.inventories_of(self.number)

    @functools.cached_property
    def holdings(self) -> Holdings:
        """The allocations in its tree."""
        return Holdings(self.columns)

    @functools.cached_property
    def placed(self) -> Mapping[str, LocatedView]:
        """The placed inventories over its tree that have a column, by resource.

        A provider below a root has none: cells and devices belong to the whole tree.
        """
        if self.columns.index.parents[self.number] is not None:
            return {}
        # removed devices are excluded: what a caller allocates can be saved
        views = self.shapes.views(self.columns, free_removed_units(self.columns))
        kinds = [column.resource for column in columns() if resource(column.resource).is_placed]
        of_tree = ((kind, views.of_tree(self.number, kind)) for kind in kinds)
        return {kind: view for kind, view in of_tree if view is not None}

    @functools.cached_property
    def inventories(self) -> dict[str, Inventory]:
        """Copies of all inventories that a compute node has of the host, by resource."""
        counts, inventories = members(self.counts), dict[str, Inventory]()
        for column in columns():
            view = self.placed.get(column.resource)
            accepted = {} if view is None else column.accept(view.inventory, {})
            for name, inventory in accepted.items():
                if name == column.resource:
                    inventories[name] = inventory
                elif name in counts:
                    inventories[name] = counts[name].obj_clone()
        for name in COUNTS:
            if name in counts:
                inventories[name] = counts[name].obj_clone()
        return inventories

    def count(self, name: str) -> IntegerInventory | None:
        """Return the inventory of a count of the host, None if it has none."""
        return count_of(self.counts, name)

    def allocating(self, uses: Iterable[Use]) -> HostState:
        """Return the state after its unattributed consumer allocated uses."""
        columns = with_taken(self.columns, uses, unattributed(self.name))
        return dataclasses.replace(self, columns=columns)


def adoption_order(
    host: HostState, record: RecordedUsage, stored: ConsumerRecord | None
) -> ConsumerOrder | None:
    """Return the order that allocates the unattributed usage of a host; None if there is none.

    :param stored: the unattributed consumer of the host, None if it has no allocations
    """
    uses = unattributed_usage(host, record)
    return allocation_of_used(unattributed(host.name), uses, stored, aggregate=True)


def allocation_of_used(
    consumer: str, uses: tuple[Use, ...], stored: ConsumerRecord | None, **fields: object
) -> ConsumerOrder | None:
    """Return the order that allocates amounts that are already in use; None without any.

    :param stored: the record of the consumer, None if it has no allocations
    """
    fields |= {"adopts": True}
    if not uses:
        return None
    if stored is None:
        return ConsumerOrder.claim(consumer, uses, **fields)
    return ConsumerOrder.adjust(consumer, uses, generation=stored.generation, **fields)


def unattributed_usage(host: HostState, record: RecordedUsage) -> tuple[Use, ...]:
    """Return the usage that a record reports and no consumer explains. Cost: linear in the rows."""
    index, inventories = host.columns.index, host.inventories
    uses = list(_usage_of_parts(host, record))
    explained: Counter[str] = Counter()
    for use in uses:
        for name, of, of_class, factor in index.shares.get(index.numbers[use.provider_uuid], ()):
            if (name, of) == (use.resource_class, host.number):
                explained[of_class] += use.amount * factor
    for name, amount in record.counts(host.placed).items():
        count = host.count(name)
        if count is None:
            continue
        explained[name] += count.used
        explained[name] += used_elsewhere(name, inventories, True) - used_elsewhere(
            name, inventories, False
        )
        if not record.knows_reserved:
            explained[name] += count.reserved - reserved_elsewhere(name, inventories)
        if amount > explained[name]:
            uses.append(Use(host.uuid, name, amount - explained[name], (), host.name))
    return tuple(uses)


def _usage_of_parts(host: HostState, record: RecordedUsage) -> Iterator[Use]:
    """Yield the usage of recorded cells and devices that no consumer explains, by provider."""
    for kind, inventory in members(record.inventories).items():
        if not isinstance(inventory, PlacedInventory) or kind not in host.placed:
            continue
        by_name: dict[str, list[AmountRecord]] = defaultdict(list)
        for part, records in inventory.in_use():
            by_name[f"{host.name}/{part}"] += records
        for provider in host.placed[kind].parts:
            if provider.name in by_name:
                stored = host.columns.index.inventories_of(provider.number)[kind]
                uses = _unexplained(by_name[provider.name], provider.uuid, stored, host.holdings)
                for use in uses:
                    yield dataclasses.replace(use, provider=provider.name)


def _unexplained(
    records: Iterable[AmountRecord], provider: str, inventory: Inventory, holdings: Holdings
) -> Iterator[Use]:
    """Yield the usage of one part that no consumer explains, by class."""
    amounts: Counter[str] = Counter()
    units: dict[str, list[str]] = defaultdict(list)
    without_units: dict[str, int] = {}  # the amounts that are allocated without names of units
    for record in sorted(records, key=lambda record: not record.units):
        name = record.resource_class
        if name not in without_units:
            named = unit_count(inventory, name, holdings.units(provider, name).keys())
            without_units[name] = sum(holdings.of(provider, name).values()) - named
        # a unit that moved to another part is allocated there
        if record.units and not holdings.all_units.isdisjoint(record.units):
            continue
        explained = min(record.amount, max(0, without_units[name]))
        without_units[name] -= explained
        if record.amount > explained:
            amounts[name] += record.amount - explained
            units[name] += record.units
    for name, amount in amounts.items():
        yield Use(provider, name, amount, tuple(units[name]))
