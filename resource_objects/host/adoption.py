"""What a host's record says is used, and no consumer of the ledger explains. Pure.

A host that is in use before a ledger knows of it must not look empty there. So the first save of a
record *adopts*: whatever the record says is used, and consumers of the ledger do not hold, is from
then on held by the host's *unattributed* consumer, CPUs and devices by name. That happens once, and
is noted at the host (``Provider.adopted_at``). What a record says beyond the ledger after that is
*drift*: it is reported, and nothing is written, for the ledger knows better who holds what.

How much is unexplained is found part by part (a cell, a device), then for the host as a whole:

* what has a name (a dedicated CPU, a device) is explained by whoever holds it, or by somebody who
  took as many by count and did not name them;
* a count is explained by what is used of it there, by whomever;
* of the host's own counts the parts explain what they share with it. Nova's ``vcpus_used`` counts
  dedicated vCPUs too, and does not say how many; those that consumers of the ledger hold explain as
  many of it. Of the others nobody knows, so they count twice until somebody attributes them: a host
  is never freer after it was adopted than its record said.

``pci_stats`` counts free devices and names none: it is not adopted. Devices are adopted from an
inventory that lists them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects.host.columns import (
    COUNTS,
    aside_of,
    beside_of,
    columns,
    count_of,
    members,
)
from resource_objects.providers import Provider
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Key, Use
from resource_objects.resources import IntegerInventory, Inventories, Inventory
from resource_objects.resources.placed import PlacedInventory, unit_count
from resource_objects.resources.records import AmountRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """What a record of a host says is used.

    ``figures`` are used figures of counts that the record has no total of. What the host keeps for
    itself is within used figures of a record; ``knows_reserved`` is whether it is taken out here.
    """

    inventories: Inventories
    figures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    knows_reserved: bool = True

    def need(self, kept: Iterable[str]) -> dict[str, int]:
        """Return how much it says is used of each count of the host.

        :param kept: what lies over the tree of the host in the ledger: what other columns say is
            used beside a count can only be counted there
        """
        there, by_name = set(kept), members(self.inventories)
        found = dict(self.figures)
        for name, inventory in by_name.items():
            if isinstance(inventory, IntegerInventory):
                found[name] = inventory.used
        for name in COUNTS:
            beside = sum(
                column.beside(name, by_name, False)
                for column in columns()
                if column.resource not in there
            )
            if beside:
                found[name] = found.get(name, 0) + beside
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Drift:
    """What a record says and the ledger does not know. True if there is any.

    ``uses`` are what it says is used, of a host that was adopted: by provider and class, units by
    name.

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


def unexplained(
    record: Record, host: Provider, kept: Iterable[str], seen: Inventories, columns: Columns
) -> tuple[Use, ...]:
    """Return what a record says is used of a host and no consumer holds. Cost: linear in the rows.

    :param host: the provider, with all below it
    :param kept: what lies over its tree, by resource
    :param seen: what a view of the host has, as the ledger says
    :param columns: the rows of the tree
    """
    there = {one.name: one for one in host.walk()}
    found = list(_of_parts(record, host, set(kept), there, columns))
    explained: Counter[str] = Counter()
    for use in found:
        for share in there[use.provider].shares:
            if (share.resource_class, share.of) == (use.resource_class, host.name):
                explained[share.of_class] += use.amount * share.factor
    for name, need in record.need(kept).items():
        count = count_of(host.inventories, name)
        if count is None:
            continue
        explained[name] += count.used
        explained[name] += beside_of(name, seen, True) - beside_of(name, seen, False)
        if not record.knows_reserved:
            explained[name] += count.reserved - aside_of(name, seen)
        if need > explained[name]:
            found.append(Use(host.uuid or "", name, need - explained[name], (), host.name))
    return tuple(found)


def _of_parts(
    record: Record,
    host: Provider,
    kept: Collection[str],
    there: Mapping[str, Provider],
    columns: Columns,
) -> Iterator[Use]:
    """Yield what of the cells and devices of a record nobody holds."""
    taken = _Taken(columns)
    for kind, inventory in members(record.inventories).items():
        if not isinstance(inventory, PlacedInventory) or kind not in kept:
            continue
        by_part: dict[str, list[AmountRecord]] = defaultdict(list)
        for part, records in inventory.in_use():
            by_part[f"{host.name}/{part}"] += records
        for name, used in by_part.items():
            if name in there and kind in there[name].inventories:
                yield from taken.left(there[name], there[name].inventories[kind], used)


class _Taken:
    """What consumers hold in some columns, by provider's uuid and class."""

    def __init__(self, columns: Columns) -> None:
        uuid = columns.index.uuids
        #: all units that somebody has: one that moved to another part is taken there too
        self._units = {unit for _, unit, _, _ in zip(*columns.units, strict=True)}
        self._named: dict[Key, set[str]] = defaultdict(set)
        for number, unit, kind, _ in zip(*columns.units, strict=True):
            self._named[uuid[number], kind].add(unit)
        self._amounts: Counter[Key] = Counter()
        for number, kind, _, amount in zip(*columns.allocations, strict=True):
            self._amounts[uuid[number], kind] += amount

    def left(
        self, provider: Provider, inventory: Inventory, records: Iterable[AmountRecord]
    ) -> Iterator[Use]:
        """Yield what of some records nobody holds, by class."""
        amounts: Counter[str] = Counter()
        units: dict[str, list[str]] = defaultdict(list)
        by_count: dict[str, int] = {}
        uuid = provider.uuid or ""
        for record in sorted(records, key=lambda one: not one.units):
            name = record.resource_class
            if name not in by_count:
                named = unit_count(inventory, name, self._named[uuid, name])
                by_count[name] = self._amounts[uuid, name] - named
            if record.units and not self._units.isdisjoint(record.units):
                continue
            explained = min(record.amount, max(0, by_count[name]))
            by_count[name] -= explained
            if record.amount > explained:
                amounts[name] += record.amount - explained
                units[name] += record.units
        for name, amount in amounts.items():
            yield Use(uuid, name, amount, tuple(units[name]), provider.name)
