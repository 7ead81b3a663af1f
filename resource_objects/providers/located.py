"""Inventories that lie over a tree: gathered from the providers that keep their parts (law 1).

A kind such as NUMA keeps each part of an inventory (a cell) at a provider of its own. Here the
parts of each tree become one inventory again, a view, which says where an amount goes; and what it
says becomes allocations of those providers. Rooms above ask this module and name no kind (D11).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers.allocation import Allocation
from resource_objects.providers.columns import Columns
from resource_objects.providers.orders import Delta, Held
from resource_objects.providers.part_rows import PartRows
from resource_objects.providers.provider import Provider, Share
from resource_objects.resources import Amount, Amounts, Inventory, Resource, resource
from resource_objects.resources.records import AmountRecord, Part
from resource_objects.resources.together import Cells


class Spot(NamedTuple):
    """A provider that keeps a part."""

    uuid: str
    name: str
    number: int  #: the backend's, good only within the columns it came in


class Near(NamedTuple):
    """Host cells, and those of them that are chosen, by id."""

    cells: Cells
    chosen: Collection[int]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Located:
    """The inventory of a resource over one tree, with the provider of each of its parts."""

    resource: Resource
    host: str  #: name of the root
    inventory: Inventory
    spots: tuple[Spot, ...]
    classes: frozenset[str] = frozenset()  #: those that its parts are kept as

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

    def is_about(self, reason: Reason) -> bool:
        """Return whether a reason may be about this, rather than another resource of the tree."""
        return reason.resource == self.resource.name or reason.resource in self.classes

    def in_the_way(self, amount: Amount, reason: Reason) -> dict[Spot, frozenset[str]]:
        """Return the units that somebody has and a refused amount would need, by provider."""
        found = self.inventory.in_the_way(amount, reason) if self.is_about(reason) else {}
        return {self.spots[place]: units for place, units in found.items()}

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

    def placed(self, amount: Amount, held: Iterable[Held], near: Near | None = None) -> Amount:
        """Return the assigned amount of which ``held`` is kept, of these providers.

        :param near: the host cells there are, and those that who holds it has beside it
        :raises ForeignAmount: if ``amount`` cannot take that
        """
        places = {spot.uuid: place for place, spot in enumerate(self.spots)}
        records: dict[int, list[AmountRecord]] = defaultdict(list)
        for one in held:
            if one.provider_uuid in places:
                record = AmountRecord(one.resource_class, one.amount, one.units)
                records[places[one.provider_uuid]].append(record)
        if near is None:
            return self.inventory.placed(amount, records)
        return self.inventory.placed_near(amount, records, *near)


class LocatedViews:
    """The views over every tree of some columns, each made when it is first asked for.

    Cost: one pass over the rows, when a view is first asked for; then that of gathering a view.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        given = columns.providers
        self._row_of = {number: row for row, number in enumerate(given.provider_id)}
        self._parts: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        self._classes: dict[tuple[int, str], set[str]] = defaultdict(set)
        kinds = {kind for kind in set(columns.kinds.resource_class) if resource(kind).is_located}
        for number, kind, classes, body in zip(*columns.kinds, strict=True):
            if kind in kinds:
                self._parts[self.root_of(number), kind].append((number, body))
                self._classes[self.root_of(number), kind].update(classes)
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
            [self._rows.part(number, body, used) for number, body in parts], room
        )
        spots = tuple(self._spot(number) for number, _ in parts)
        classes = frozenset(self._classes[root, kind])
        return Located(resource(kind), self._spot(root).name, inventory, spots, classes)

    def root_of(self, number: int) -> int:
        """Return the number of the root of a provider."""
        return self._columns.providers.root_id[self._row_of[number]]

    def trees(self, kind: str) -> list[int]:
        """Return the numbers of the roots whose trees have some of a resource."""
        return [root for root, name in self._parts if name == kind]

    def over(self, root: int) -> dict[str, Located]:
        """Return the inventories over the tree of a root, by resource; not those that are none."""
        found: dict[str, Located] = {}
        for kind in sorted(self.kinds()):
            try:
                located = self.of_tree(root, kind)
            except exceptions.InvalidInventory:
                continue
            if located is not None:
                found[kind] = located
        return found

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
    def _rows(self) -> PartRows:
        return PartRows(self._columns, {part for some in self._parts.values() for part, _ in some})


# --- making a tree --------------------------------------------------------------------------------


def add_parts(host: Provider, key: Resource | str, inventory: Inventory) -> tuple[Provider, ...]:
    """Add a provider below ``host`` for each part of an inventory; return them.

    What parts use of the host they share with it, where the host has an inventory of it; what
    they use of themselves, such as a physical function the functions split off it, they share too.

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
    >>> host = Provider("host0", "PCPU=8,MEMORY_MB=2048")
    >>> cells = [HostCell(n, dedicated=range(4 * n, 4 * n + 4), memory_mb=1024) for n in (0, 1)]
    >>> for cell in add_parts(host, "NUMA_TOPOLOGY", NUMATopologyInventory(cells)):
    ...     print(cell.name, *cell.shares)
    host0/numa0 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
    host0/numa1 PCPU uses 1 PCPU of host0 MEMORY_MB uses 1 MEMORY_MB of host0
    """
    kind = resource(key)
    made = [_provider(host, kind, part) for part in inventory.parts()]
    host.update(children=(*host.children, *made))
    return tuple(made)


def _provider(host: Provider, kind: Resource, part: Part) -> Provider:
    """Return the provider of a part."""
    name = f"{host.name}/{part.name}"
    of_host = [
        Share(resource_class=count, of=host.name, of_class=count)
        for count in part.of_host
        if count in host.inventories
    ]
    within = [
        Share(resource_class=count, of=name, of_class=other, factor=factor)
        for count, factor, other in part.within
    ]
    return Provider(name, {kind: part.inventory}, traits=part.traits, shares=[*of_host, *within])


def located_amounts(amounts: Amounts) -> dict[str, Amount]:
    """Return the amounts whose kinds lie over trees."""
    return {kind.name: amount for kind, amount in amounts.items() if kind.is_located}
