"""Inventories that lie over a tree: gathered from the providers that keep their parts (law 1).

A kind such as NUMA keeps each part of an inventory (a cell) at a provider of its own. Here the
parts of each tree become one inventory again, a view, which says where an amount goes; and what it
says becomes allocations of those providers. Rooms above ask this module and name no kind (D11).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers.allocation import Allocation
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Delta, Held
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Amount, Amounts, Inventory, Resource, resource
from resource_objects.resources.records import AmountRecord, InventoryRecord, KeptPart


class Spot(NamedTuple):
    """A provider that keeps a part."""

    uuid: str
    name: str
    number: int  #: the backend's, good only within the columns it came in


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Located:
    """The inventory of a resource over one tree, with the provider of each of its parts."""

    resource: Resource
    host: str  #: name of the root
    inventory: Inventory
    spots: tuple[Spot, ...]

    def fit(self, amount: Amount, within: Collection[int] | None = None) -> Amount:
        """Return the assigned amount: where it would go.

        :param within: places of the spots that may be used, None for all
        :raises CapacityException: with reasons that name the host
        :raises ForeignAmount: if it is assigned to what is not here
        """
        try:
            if within is None:
                return self.inventory.fit(amount)
            return self._fit_within(amount, within)
        except exceptions.CapacityException as refusal:
            raise exceptions.CapacityException.of(
                dataclasses.replace(reason, where=reason.where or self.host)
                for reason in refusal.reasons
            ) from refusal

    def _fit_within(self, amount: Amount, within: Collection[int]) -> Amount:
        ids = self.inventory.part_ids()
        found = self.inventory.fit_within(amount, [ids[place] for place in sorted(within)])
        used = {place for place, _ in self.inventory.spread(found)}
        if not used.issubset(within):  # it was assigned already
            there, name = len(used.intersection(within)), self.resource.name
            raise exceptions.CapacityException.of(
                [Reason(Rule.HOST_CELLS, len(used), there, 0, name)]
            )
        return found

    def spot_of(self, reason: Reason) -> Spot | None:
        """Return the provider of the part that a reason is about, None for the host as a whole."""
        ids = self.inventory.part_ids()
        return self.spots[ids.index(reason.cell)] if reason.cell in ids else None

    def taken(self, assigned: Amount) -> Iterator[tuple[Spot, AmountRecord]]:
        """Yield what an assigned amount takes of each provider; negative if it gives back."""
        for number, records in self.inventory.spread(assigned):
            for record in records:
                yield self.spots[number], record

    def deltas(self, assigned: Amount) -> tuple[Delta, ...]:
        """Return what an assigned amount changes in a ledger."""
        return tuple(
            Delta(spot.uuid, record.resource_class, record.amount, record.units)
            for spot, record in self.taken(assigned)
        )

    def allocations(self, assigned: Amount) -> tuple[Allocation, ...]:
        """Return what an assigned amount takes, as allocations."""
        return tuple(
            Allocation(
                provider=spot.name,
                provider_uuid=spot.uuid,
                resource_class=record.resource_class,
                amount=resource(record.resource_class).make_amount(record.amount),
                units=record.units,
            )
            for spot, record in self.taken(assigned)
        )

    def placed(self, amount: Amount, held: Iterable[Held]) -> Amount:
        """Return the assigned amount of which ``held`` is kept, of these providers.

        :raises ForeignAmount: if ``amount`` cannot take that
        """
        places = {spot.uuid: place for place, spot in enumerate(self.spots)}
        records: dict[int, list[AmountRecord]] = defaultdict(list)
        for one in held:
            if one.provider_uuid in places:
                record = AmountRecord(one.resource_class, one.amount, one.units)
                records[places[one.provider_uuid]].append(record)
        return self.inventory.placed(amount, records)


class LocatedViews:
    """The views over every tree of some columns, each made when it is first asked for.

    Cost: one pass over the rows, when a view is first asked for; then that of gathering a view.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        given = columns.providers
        self._row_of = {number: row for row, number in enumerate(given.provider_id)}
        self._parts: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        kinds = {kind for kind in set(columns.kinds.resource_class) if resource(kind).is_located}
        for number, kind, _, body in zip(*columns.kinds, strict=True):
            if kind in kinds:
                self._parts[self.root_of(number), kind].append((number, body))
        self._views: dict[tuple[int, str], Located] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def of_tree(self, root: int, kind: str) -> Located | None:
        """Return the inventory of a resource over the tree of a root, None if it has none.

        :param root: the backend's number of the root, as in the columns
        :raises InvalidInventory: if what is kept cannot be gathered
        """
        key = root, kind
        if key not in self._views and key in self._parts:
            self._views[key] = self.beside(root, kind, {})
        return self._views.get(key)

    def beside(self, root: int, kind: str, used: Mapping[tuple[int, str], int]) -> Located:
        """Return the inventory over a tree that has some, with more of it in use.

        :param used: how much more, by the provider's number and class, through shares too
        """
        parts = sorted(self._parts[root, kind], key=lambda part: self._order(part[0]))
        room: dict[str, int] = {}
        for number, _ in parts:
            for name, left in self._rows.left(number, used):
                room[name] = min(left, room.get(name, left))
        inventory = resource(kind).gather(
            [
                KeptPart(self._rows.records(number, used), body, self._rows.units(number))
                for number, body in parts
            ],
            room,
        )
        spots = tuple(self._spot(number) for number, _ in parts)
        return Located(resource(kind), self._spot(root).name, inventory, spots)

    def root_of(self, number: int) -> int:
        """Return the number of the root of a provider."""
        return self._columns.providers.root_id[self._row_of[number]]

    def trees(self, kind: str) -> list[int]:
        """Return the numbers of the roots whose trees have some of a resource."""
        return [root for root, name in self._parts if name == kind]

    def kinds(self) -> set[str]:
        """Return the resources that lie over trees here."""
        return {kind for _, kind in self._parts}

    def _spot(self, number: int) -> Spot:
        given, row = self._columns.providers, self._row_of[number]
        return Spot(given.uuid[row], given.name[row], number)

    def _order(self, number: int) -> tuple[int, str]:
        """Sort names that end in numbers by these: ``numa2`` before ``numa10``."""
        name = self._columns.providers.name[self._row_of[number]]
        return len(name), name

    @functools.cached_property
    def _rows(self) -> _Rows:
        return _Rows(self._columns, {part for some in self._parts.values() for part, _ in some})


class _Rows:
    """The rows of the providers that keep parts, and of what these share, by provider."""

    def __init__(self, columns: Columns, keeping: Collection[int]) -> None:
        self._columns = columns
        self._shares = _places(columns.shares.provider_id, keeping)
        of = columns.shares.of_id
        targets = {of[row] for rows in self._shares.values() for row in rows}
        self._inventories = _places(columns.inventories.provider_id, targets.union(keeping))
        self._units = _places(columns.units.provider_id, keeping)

    def records(
        self, number: int, used: Mapping[tuple[int, str], int]
    ) -> tuple[InventoryRecord, ...]:
        """Return the figures of a provider, with more in use."""
        table: Sequence[Sequence[Any]] = self._columns.inventories[1:]
        found = (
            InventoryRecord(*[column[row] for column in table])
            for row in self._inventories.get(number, ())
        )
        if not used:
            return tuple(found)
        return tuple(
            dataclasses.replace(one, used=one.used + used.get((number, one.resource_class), 0))
            for one in found
        )

    def units(self, number: int) -> dict[str, tuple[str, ...]]:
        """Return the units that are taken of a provider, by class."""
        table, found = self._columns.units, defaultdict[str, list[str]](list)
        for row in self._units.get(number, ()):
            found[table.resource_class[row]].append(table.unit[row])
        return {name: tuple(units) for name, units in found.items()}

    def left(self, number: int, used: Mapping[tuple[int, str], int]) -> Iterator[tuple[str, int]]:
        """Yield what each share of a provider leaves of it, by the provider's own class."""
        table = self._columns.shares
        for row in self._shares.get(number, ()):
            of = table.of_id[row], table.of_class[row]
            free = self._free(*of) - used.get(of, 0)
            yield table.resource_class[row], free // table.factor[row]

    def _free(self, number: int, name: str) -> int:
        table = self._columns.inventories
        for row in self._inventories.get(number, ()):
            if table.resource_class[row] == name:
                return table.capacity[row] - table.used[row]
        return 0


def _places(numbers: Iterable[int], wanted: Collection[int]) -> dict[int, list[int]]:
    """Return the rows of each provider that is wanted."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        if number in wanted:
            found[number].append(row)
    return found


# --- making a tree --------------------------------------------------------------------------------


def add_parts(host: Provider, key: Resource | str, inventory: Inventory) -> tuple[Provider, ...]:
    """Add a provider below ``host`` for each part of an inventory; return them.

    What parts use of the host they share with it, where the host has an inventory of it.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
    >>> host = Provider("host0", "PCPU=8,MEMORY_MB=2048")
    >>> cells = [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1024) for n in (0, 1)]
    >>> for cell in add_parts(host, "NUMA_TOPOLOGY", NUMATopologyInventory(cells)):
    ...     print(cell.name, *cell.shares)
    host0/numa0 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
    host0/numa1 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
    """
    kind = resource(key)
    made = [
        Provider(
            f"{host.name}/{part.name}",
            {kind: part.inventory},
            shares=[
                Share(resource_class=name, of=host.name, of_class=name)
                for name in part.of_host
                if name in host.inventories
            ],
        )
        for part in inventory.parts()
    ]
    host.update(children=(*host.children, *made))
    return tuple(made)


def located_amounts(amounts: Amounts) -> dict[str, Amount]:
    """Return the amounts whose kinds lie over trees."""
    return {kind.name: amount for kind, amount in amounts.items() if kind.is_located}
