"""Inventories that lie over a tree: gathered from the providers that keep their parts (law 1).

A kind such as NUMA keeps each part of an inventory (a cell) at a provider of its own. Here the
parts of each tree become one inventory again, a view, which says where an amount goes; and what it
says becomes allocations of those providers. Rooms above ask this module and name no kind (D11).
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions, fields
from resource_objects.exceptions import Reason, Rule
from resource_objects.providers.allocation import Allocation
from resource_objects.providers.columns import Columns
from resource_objects.providers.definition import (
    DefinitionChanges,
    KeptDefinitions,
    ProviderDefinition,
)
from resource_objects.providers.disabled import RemovedUnit
from resource_objects.providers.orders import ConsumerOrder, Key, Mode, Use
from resource_objects.resources import Amount, Amounts, Inventory, Resource, resource
from resource_objects.resources.context import ChosenCells, Context
from resource_objects.resources.located import (
    Affine,
    Identified,
    Located,
    cell_map_of,
    fit_together,
)
from resource_objects.resources.records import AmountRecord, InventoryRecord, KeptPart

#: How many, by the provider's number and the class.
_Counts: TypeAlias = "Counter[tuple[int, str]]"


class Spot(NamedTuple):
    """A provider that keeps a part."""

    uuid: str
    name: str
    number: int  #: the backend's, good only within the columns it came in


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LocatedView:
    """The inventory of a resource over one tree, with the provider of each of its parts."""

    resource: Resource
    host: str  #: name of the root
    inventory: Located[Amount]
    spots: tuple[Spot, ...]
    classes: frozenset[str]  #: those that its parts are kept as
    places: Mapping[str, int]  #: of the spots, by uuid
    generations: Mapping[str, int]  #: of the providers that keep parts, by uuid

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
        found = self.inventory.fit(amount, None, Context(allowed=[ids[place] for place in within]))
        used = {place for place, _ in self.inventory.to_allocations(found)}
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

    def blocking_units(
        self, amount: Amount, reason: Reason, within: Collection[int] | None = None
    ) -> dict[Spot, Mapping[str, frozenset[str]]]:
        """Return the units that a refused amount would need and cannot have, by provider.

        Of each it is told which units are in the way; those that are out of service are among them.

        :param within: places of the spots that may be used, None for all
        """
        if not isinstance(self.inventory, Identified) or not self.is_about(reason):
            return {}
        found = self.inventory.blocking_units(amount, reason)
        return {
            self.spots[place]: units
            for place, units in found.items()
            if within is None or place in within
        }

    def taken(self, assigned: Amount) -> Iterator[tuple[Spot, AmountRecord]]:
        """Yield what an assigned amount takes of each provider; negative if it gives back."""
        for number, records in self.inventory.to_allocations(assigned):
            for record in records:
                yield self.spots[number], record

    def deltas(self, assigned: Amount) -> tuple[Use, ...]:
        """Return what an assigned amount changes in a ledger."""
        return tuple(
            Use(spot.uuid, record.resource_class, record.amount, record.units)
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

    def placed(
        self, amount: Amount, held: Iterable[Use], near: ChosenCells | None = None
    ) -> Amount:
        """Return the assigned amount of which ``held`` is kept, of these providers.

        :param near: the host cells there are, and those that who holds it has beside it
        :raises ForeignAmount: if ``amount`` cannot take that
        """
        places = self.places
        records: dict[int, list[AmountRecord]] = defaultdict(list)
        for one in held:
            if one.provider_uuid in places:
                record = AmountRecord(one.resource_class, one.amount, one.units)
                records[places[one.provider_uuid]].append(record)
        return self.inventory.from_allocations(amount, records, Context(chosen=near))


class LocatedViews:
    """The views over every tree of some columns, each made when it is first asked for.

    Cost: one pass over the rows, when a view is first asked for; then that of gathering a view.
    """

    def __init__(
        self,
        columns: Columns,
        held_back: Mapping[tuple[int, str], int] = fields.FrozenDict(),
        out: Mapping[int, Collection[str]] = fields.FrozenDict(),
        limited: Mapping[tuple[int, str], int] = fields.FrozenDict(),
        layout: Layout | None = None,
    ) -> None:
        """:param held_back: how much of some inventories counts as in use besides, by the
        provider's number and class

        :param out: units that are not given, by the provider's number; ``held_back`` counts them
        :param limited: how much a limit holds back of some inventories, as for ``held_back``
        :param layout: of the same definition, if there is one: with what was gathered of it before
        """
        self.layout = layout or Layout(columns)
        self._keeps = layout is not None
        self._held_back = held_back
        self._out = out
        self._limited = limited
        self._use = _Use(columns)
        self._since: tuple[_Use, tuple[list[int], set[int]]] | None = None
        self._views: dict[tuple[int, str], LocatedView] = {}

    def __bool__(self) -> bool:
        return bool(self.layout.parts)

    def of_tree(self, root: int, kind: str) -> LocatedView | None:
        """Return the inventory of a resource over the tree of a root, None if it has none.

        :param root: the backend's number of the root, as in the columns
        :raises InvalidInventory: if what is kept cannot be gathered
        """
        key = root, kind
        if key not in self._views and key in self.layout.parts:
            self._views[key] = self.beside(root, kind, {})
        return self._views.get(key)

    def described(self, root: int, kind: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the providers that keep a resource in a tree that has some, and how it is told.

        :param root: the backend's number of the root, as those returned
        """
        numbers, texts = zip(*self.layout.parts[root, kind], strict=True)
        return numbers, texts

    def beside(
        self,
        root: int,
        kind: str,
        used: Mapping[tuple[int, str], int],
        out: Mapping[int, Collection[str]] = fields.FrozenDict(),
        limited: Mapping[tuple[int, str], int] = fields.FrozenDict(),
    ) -> LocatedView:
        """Return the inventory over a tree that has some, with more of it in use.

        :param used: how much more, by the provider's number and class, through shares too
        :param out: units that are not given, by the provider's number; ``used`` counts them
        :param limited: how much a limit holds back besides
        """
        out, limited = out or self._out, limited or self._limited
        if self._held_back:
            back = Counter(self._held_back)
            back.update(used)
            used = back
        spread = self.layout.spread(root, kind)
        is_plain = not (used or out or limited)
        made = self._kept(spread) if self._keeps and is_plain else None
        if made is None:
            every = range(len(spread.spots))
            parts = [spread.part(place, self._use, used, out) for place in every]
            if limited:
                used = Counter(used)
                used.update(limited)
                parts = [
                    dataclasses.replace(spread.part(place, self._use, used, out), unlimited=part)
                    for place, part in enumerate(parts)
                ]
            made = spread.gathered(parts, spread.room(self._use, used))
        return LocatedView(
            spread.resource,
            spread.host,
            made,
            spread.spots,
            spread.classes,
            spread.places,
            spread.generations,
        )

    def _kept(self, spread: _Spread) -> Located[Amount] | None:
        """Return an inventory made of the one that was kept last; None where none can be kept.

        What is kept nobody changes: each who asks has a copy.
        """
        before, use = spread.kept, self._use
        made: Located[Amount] | None = None
        room = spread.room(use, _NO_MORE)
        if before is None:
            parts = [spread.part(place, use) for place in range(len(spread.spots))]
        else:
            rows, numbers = self._changed_since(before.use)
            parts = spread.changed_parts(before.parts, rows, numbers, use)
            made = before.inventory.with_use(before.parts, parts, room)
        if made is None:
            made = spread.gathered(parts, room)
        own = made.with_use(parts, parts, room)
        if own is not None:
            spread.kept = _Kept(use, parts, room, made)
        return own

    def _changed_since(self, before: _Use) -> tuple[list[int], set[int]]:
        """Return what is used in another way, as :meth:`_Use.since`; asked for each kind."""
        if self._since is None or self._since[0] is not before:
            self._since = before, self._use.since(before)
        return self._since[1]

    def root_of(self, number: int) -> int:
        """Return the number of the root of a provider."""
        return self.layout.roots[number]

    def trees(self, kind: str) -> list[int]:
        """Return the numbers of the roots whose trees have some of a resource."""
        return [root for root, name in self.layout.parts if name == kind]

    def over(self, root: int) -> dict[str, LocatedView]:
        """Return the inventories over the tree of a root, by resource; not those that are none."""
        found: dict[str, LocatedView] = {}
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
        return {kind for _, kind in self.layout.parts}


def removed_units(kinds: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the class of each unit of one provider that was removed while it was allocated.

    Such a unit counts as used while it is allocated. After its release it is not allocatable, and
    no part of the capacity.

    :param kinds: the structured resources of the provider, each with its description
    """
    removed: dict[str, str] = {}
    for kind, body in kinds:
        made = resource(kind).inventory_kind
        if body and issubclass(made, Identified):
            removed.update(made.removed_of_description(body))
    return removed


def removed_of(
    kinds: Iterable[tuple[str, str]], allocated: Collection[str]
) -> tuple[RemovedUnit, ...]:
    """Return the units of one provider that were removed while they were allocated.

    :param kinds: the structured resources of the provider, each with its description
    :param allocated: the units of the provider that are allocated
    """
    return tuple(
        RemovedUnit(unit, resource_class, unit not in allocated)
        for unit, resource_class in sorted(removed_units(kinds).items())
    )


def removed_by_provider(columns: Columns) -> dict[int, tuple[RemovedUnit, ...]]:
    """Return the units that were removed while they were allocated, by provider.

    Cost: a look at each description; where there are such units, linear in the rows.
    """
    made = {kind: resource(kind).inventory_kind for kind in {*columns.kinds.resource_class}}
    identified = {kind: one for kind, one in made.items() if issubclass(one, Identified)}
    kinds: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for number, kind, _, body in zip(*columns.kinds, strict=True):
        if kind in identified and body and identified[kind].removed_of_description(body):
            kinds[number].append((kind, body))
    allocated: dict[int, set[str]] = defaultdict(set)
    for number, unit, _, _ in zip(*columns.units, strict=True) if kinds else ():
        allocated[number].add(unit)
    return {number: removed_of(some, allocated[number]) for number, some in kinds.items()}


def free_of(
    removed: Mapping[int, Iterable[RemovedUnit]],
) -> tuple[_Counts, dict[int, set[str]]]:
    """Return which removed units are free: the number by class, and the units by provider."""
    counts: Counter[tuple[int, str]] = Counter()
    units: dict[int, set[str]] = defaultdict(set)
    for number, some in removed.items():
        for one in some:
            if one.is_free:
                counts[number, one.resource_class] += 1
                units[number].add(one.unit)
    return counts, dict(units)


def located_amounts(amounts: Amounts) -> dict[str, Amount]:
    """Return the amounts whose kinds lie over trees."""
    return {kind.name: amount for kind, amount in amounts.items() if kind.is_located}


# --- what trees are, and what is used of them -----------------------------------------------------
#
# The definition of a tree changes seldom, what is used of it with each claim. So what follows from
# the definition is made once, a :class:`Layout`, and kept as long as that stands; and a view is
# made of the one before it: parts of which nothing else is used are taken over.


_NO_MORE: Mapping[tuple[int, str], int] = fields.FrozenDict()
_NONE_OUT: Mapping[int, Collection[str]] = fields.FrozenDict()


class Layout:
    """What some trees are, whatever is used of them: good for all columns that define the same.

    What is derived when it is first asked for is the same for everybody, so threads may share it.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        given = columns.providers
        self.roots: Mapping[int, int] = dict(zip(given.provider_id, given.root_id, strict=True))
        #: by root and resource: the number of each provider that keeps some, and its description
        self.parts: dict[tuple[int, str], list[tuple[int, str]]] = defaultdict(list)
        self._classes: dict[tuple[int, str], set[str]] = defaultdict(set)
        kinds = {kind for kind in set(columns.kinds.resource_class) if resource(kind).is_located}
        for number, kind, classes, body in zip(*columns.kinds, strict=True):
            if kind in kinds:
                self.parts[self.roots[number], kind].append((number, body))
                self._classes[self.roots[number], kind].update(classes)
        self._spreads: dict[tuple[int, str], _Spread] = {}

    def defines(self, columns: Columns) -> bool:
        """Return whether columns say the same of the same trees, but for what is used of them.

        It is compared what they say, so it does not matter what became of the trees meanwhile.
        """
        before = self.columns
        return (
            _are_equal(before.providers[:6], columns.providers[:6])
            and _are_equal(before.inventories[:-1], columns.inventories[:-1])
            and _are_equal(before.kinds, columns.kinds)
            and _are_equal(before.shares, columns.shares)
            and _are_equal(before.traits, columns.traits)
        )

    def spread(self, root: int, kind: str) -> _Spread:
        """Return the parts of a resource over a tree that has some."""
        key = root, kind
        found = self._spreads.get(key)
        if found is None:
            spots = [self._spot(number) for number, _ in self.parts[key]]
            # names that end in numbers are sorted by these: ``numa2`` before ``numa10``
            order = sorted(range(len(spots)), key=lambda at: (len(spots[at].name), spots[at].name))
            found = self._spreads[key] = _Spread(
                resource(kind),
                self.names[root],
                tuple(spots[at] for at in order),
                frozenset(self._classes[key]),
                [self._part(*self.parts[key][at]) for at in order],
                {spot.uuid: self._generation_of(spot) for spot in spots},
            )
        return found

    def _spot(self, number: int) -> Spot:
        given, row = self.columns.providers, self._row_of[number]
        return Spot(given.uuid[row], given.name[row], number)

    def _generation_of(self, spot: Spot) -> int:
        return self.columns.providers.generation[self._row_of[spot.number]]

    def _part(self, number: int, body: str) -> _DefinedPart:
        inventories, shares = self.columns.inventories, self.columns.shares
        table: Sequence[Sequence[Any]] = inventories[1:-1]
        records = [
            (row, InventoryRecord(*[column[row] for column in table]))
            for row in self._inventories.get(number, ())
        ]
        drawn: list[_Drawn] = []
        for row in self._shares.get(number, ()):
            of, of_class = shares.of_id[row], shares.of_class[row]
            rows = self._inventories.get(of, ())
            there = next((at for at in rows if inventories.resource_class[at] == of_class), None)
            capacity = 0 if there is None else inventories.capacity[there]
            name, factor = shares.resource_class[row], shares.factor[row]
            drawn.append(_Drawn(name, factor, there, capacity, (of, of_class)))
        return _DefinedPart(body, records, drawn, frozenset(self._traits.get(number, ())))

    @functools.cached_property
    def names(self) -> Mapping[int, str]:
        """The name of each provider, by number."""
        return dict(
            zip(self.columns.providers.provider_id, self.columns.providers.name, strict=True)
        )

    @functools.cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each provider, by uuid."""
        return dict(
            zip(self.columns.providers.uuid, self.columns.providers.provider_id, strict=True)
        )

    @functools.cached_property
    def kept_as(self) -> Mapping[str, Collection[Key]]:
        """The inventories that the parts of each structured resource are kept as."""
        given = self.columns.providers
        uuids = dict(zip(given.provider_id, given.uuid, strict=True))
        found: dict[str, set[Key]] = defaultdict(set)
        for number, kind, classes, _ in zip(*self.columns.kinds, strict=True):
            found[kind].update((uuids[number], name) for name in classes)
        return found

    @functools.cached_property
    def _row_of(self) -> dict[int, int]:
        return {number: row for row, number in enumerate(self.columns.providers.provider_id)}

    @functools.cached_property
    def _keeping(self) -> set[int]:
        return {number for some in self.parts.values() for number, _ in some}

    @functools.cached_property
    def _shares(self) -> dict[int, list[int]]:
        return places(self.columns.shares.provider_id, self._keeping)

    @functools.cached_property
    def _inventories(self) -> dict[int, list[int]]:
        of = self.columns.shares.of_id
        targets = {of[row] for rows in self._shares.values() for row in rows}
        return places(self.columns.inventories.provider_id, targets.union(self._keeping))

    @functools.cached_property
    def _traits(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = defaultdict(list)
        for number, trait in zip(*self.columns.traits, strict=True):
            if number in self._keeping:
                found[number].append(trait)
        return found


def definition_of(columns: Columns) -> Columns:
    """Return what columns say of the definition alone."""
    return Columns(
        columns.providers,
        columns.inventories,
        columns.traits,
        aggregates=columns.aggregates,
        shares=columns.shares,
        kinds=columns.kinds,
    )


def _are_equal(these: Sequence[Sequence[Any]], those: Sequence[Sequence[Any]]) -> bool:
    """Return whether columns are equal; those that are the very same cost nothing."""
    for one, other in zip(these, those, strict=True):
        if one is not other and (len(one) != len(other) or list(one) != list(other)):
            return False
    return True


class _Drawn(NamedTuple):
    """What a part shares with another inventory."""

    resource_class: str  #: of the part
    factor: int
    row: int | None  #: of the other inventory, None if it is not there
    capacity: int  #: of it
    of: tuple[int, str]

    def left(self, use: _Use, more: Mapping[tuple[int, str], int]) -> int:
        """Return how much of the part the other inventory leaves."""
        used = 0 if self.row is None else use.used[self.row]
        return (self.capacity - used - more.get(self.of, 0)) // self.factor


class _DefinedPart(NamedTuple):
    """What a provider keeps of a resource, whatever is used of it."""

    body: str
    records: Sequence[tuple[int, InventoryRecord]]  #: each with its row
    shares: Sequence[_Drawn]
    traits: frozenset[str]


class _Use:
    """What is used of some trees at one moment."""

    def __init__(self, columns: Columns) -> None:
        self.used = columns.inventories.used
        self._units = columns.units

    @functools.cached_property
    def _taken(self) -> frozenset[tuple[int, str, str]]:
        table = self._units
        return frozenset(zip(table.provider_id, table.unit, table.resource_class, strict=True))

    @functools.cached_property
    def _rows(self) -> dict[int, list[int]]:
        return places(self._units.provider_id)

    def units(self, number: int) -> dict[str, tuple[str, ...]]:
        """Return the units that are taken of a provider, by class."""
        found: dict[str, list[str]] = {}
        for row in self._rows.get(number, ()):
            found.setdefault(self._units.resource_class[row], []).append(self._units.unit[row])
        return {name: tuple(units) for name, units in found.items()}

    def since(self, before: _Use) -> tuple[list[int], set[int]]:
        """Return the rows of inventories of which something else is used, and the providers of
        which other units are taken; of trees of the same definition."""
        pairs = enumerate(zip(before.used, self.used, strict=True))
        rows = [row for row, (was, now) in pairs if was != now]
        return rows, {number for number, _, _ in before._taken ^ self._taken}


class _Kept(NamedTuple):
    """A view as it was gathered last; nobody changes the inventory."""

    use: _Use
    parts: Sequence[KeptPart]
    room: Mapping[str, int]
    inventory: Located[Amount]


class _Spread:
    """The parts of one resource over one tree, in order."""

    def __init__(
        self,
        kind: Resource,
        host: str,
        spots: tuple[Spot, ...],
        classes: frozenset[str],
        parts: Sequence[_DefinedPart],
        generations: Mapping[str, int],
    ) -> None:
        self.resource = kind
        self.host = host
        self.spots = spots
        self.classes = classes
        self.generations = generations
        self.places = {spot.uuid: place for place, spot in enumerate(spots)}
        self.kept: _Kept | None = None
        self._parts = parts
        self._draws = list(dict.fromkeys(drawn for part in parts for drawn in part.shares))

    @functools.cached_property
    def _place_of(self) -> dict[int, int]:
        """The place of each provider's part."""
        return {spot.number: place for place, spot in enumerate(self.spots)}

    @functools.cached_property
    def _place_of_row(self) -> dict[int, int]:
        """The place of the part that each row of inventories is of."""
        return {row: at for at, part in enumerate(self._parts) for row, _ in part.records}

    @functools.cached_property
    def _drawing(self) -> dict[int, list[int]]:
        """The places of the parts that share with each row of inventories."""
        found: dict[int, list[int]] = defaultdict(list)
        for place, part in enumerate(self._parts):
            for row in {one.row for one in part.shares if one.row is not None}:
                found[row].append(place)
        return found

    def changed_parts(
        self, before: Sequence[KeptPart], rows: Iterable[int], numbers: Iterable[int], use: _Use
    ) -> list[KeptPart]:
        """Return the parts that were something, now that something else is used of some.

        :param rows, numbers: see :meth:`_Use.since`
        """
        parts = list(before)
        used = {self._place_of_row[row] for row in rows if row in self._place_of_row}
        used.update(self._place_of[number] for number in numbers if number in self._place_of)
        drawing = {place for row in rows for place in self._drawing.get(row, ())}
        for place in drawing - used:
            left = self._left(place, use)
            if left != parts[place].left:
                parts[place] = dataclasses.replace(parts[place], left=left)
        for place in used:
            parts[place] = self.part(place, use)
        return parts

    def part(
        self,
        place: int,
        use: _Use,
        more: Mapping[tuple[int, str], int] = _NO_MORE,
        out: Mapping[int, Collection[str]] = _NONE_OUT,
    ) -> KeptPart:
        """Return what a provider keeps of it.

        :param more: how much more is used, by the provider's number and class
        :param out: units that are not given, by the provider's number
        """
        number, defined = self.spots[place].number, self._parts[place]
        records = [
            one.using(use.used[row] + more.get((number, one.resource_class), 0))
            for row, one in defined.records
        ]
        return KeptPart(
            tuple(records),
            defined.body,
            use.units(number),
            defined.traits,
            self._left(place, use, more),
            frozenset(out.get(number, ())),
        )

    def _left(
        self, place: int, use: _Use, more: Mapping[tuple[int, str], int] = _NO_MORE
    ) -> dict[str, int]:
        """Return what its shares leave of a part, by class."""
        left: dict[str, int] = {}
        for drawn in self._parts[place].shares:
            name, room = drawn.resource_class, drawn.left(use, more)
            left[name] = min(room, left.get(name, room))
        return left

    def room(self, use: _Use, more: Mapping[tuple[int, str], int]) -> dict[str, int]:
        """Return what the providers have left that the parts share with, by class of the parts."""
        found: dict[str, int] = {}
        for drawn in self._draws:
            left = drawn.left(use, more)
            found[drawn.resource_class] = min(left, found.get(drawn.resource_class, left))
        return found

    def gathered(self, parts: Sequence[KeptPart], room: Mapping[str, int]) -> Located[Amount]:
        """Return the inventory over parts.

        :raises InvalidInventory: if they cannot be gathered
        """
        inventory = self.resource.from_parts(parts, room)
        if not isinstance(inventory, Located):
            name = self.resource.name
            raise exceptions.InvalidInventory(name, inventory, "one that has parts (Located)")
        return inventory


def places(numbers: Iterable[int], wanted: Collection[int] | None = None) -> dict[int, list[int]]:
    """Return the rows of each provider that is wanted; None is all."""
    found: dict[int, list[int]] = defaultdict(list)
    for row, number in enumerate(numbers):
        if wanted is None or number in wanted:
            found[number].append(row)
    return found


class KeptLayouts:
    """The layouts of the trees that were looked at last, each good as long as its definition is.

    Threads may share it: what is in it does not change, and is put in and taken out whole.
    """

    #: Of so many providers together, which take some 2 to 3 KB each.
    MOST = 8192

    def __init__(self) -> None:
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._count = 0

    def columns(self, keys: Iterable[str]) -> Columns | None:
        """Return how some trees were when they were looked at last, None if nobody knows.

        :param keys: uuids of their roots
        """
        found = self._layouts.get(tuple(sorted(keys)))
        return None if found is None else found.columns

    def views(
        self,
        columns: Columns,
        held_back: Mapping[tuple[int, str], int] = fields.FrozenDict(),
        out: Mapping[int, Collection[str]] = fields.FrozenDict(),
        limited: Mapping[tuple[int, str], int] = fields.FrozenDict(),
    ) -> LocatedViews:
        """Return the views over the trees of some columns, as :class:`LocatedViews` makes them."""
        given = columns.providers
        pairs = zip(given.uuid, given.parent_id, strict=True)
        key = tuple(sorted([uuid for uuid, parent in pairs if parent is None]))
        layout = self._layouts.get(key)
        if layout is None or not layout.defines(columns):
            if layout is None:
                self._count += len(given.uuid)
            if self._count > self.MOST:
                self._layouts, self._count = {}, len(given.uuid)
            layout = self._layouts[key] = Layout(definition_of(columns))
        return LocatedViews(columns, held_back, out, limited, layout)


# --- several amounts at once ----------------------------------------------------------------------
#
# Several amounts that lie over one tree, decided at once: cells, devices near them (D13). Pure.
#
# What is decided is decided by :mod:`resource_objects.resources.located`, for the search, for
# claims and for who has only the inventories at hand (law 5); here views become what it asks for.


_NOTHING: Mapping[str, object] = fields.FrozenDict()


def fit_jointly(
    amounts: Mapping[str, Amount],
    views: Mapping[str, LocatedView],
    within: Mapping[str, Collection[int]] = _NOTHING,  # type: ignore[assignment]  # it is empty
    held: Mapping[str, Amount] = _NOTHING,  # type: ignore[assignment]
) -> dict[str, Amount]:
    """Return the assigned amounts: where all of them would go together. Nothing changes.

    :param amounts: by resource; each has a view
    :param views: what lies over the tree, also what is not asked for: it is left to others
    :param within: by resource, places of the spots that may be used; absent is all
    :param held: other resources that who asks holds there already, assigned: what is asked has to
        be near these
    :raises CapacityException: with reasons that name the host
    :raises ForeignAmount: if something is assigned to what is not here
    :raises SearchLimitReached: if the budget ran out before it was known
    """
    inventories: dict[str, Inventory] = {name: view.inventory for name, view in views.items()}
    for name, amount in held.items():
        inventories[name] = inventories[name].without(amount)
    ids = {name: _ids(views[name], places) for name, places in within.items()}
    try:
        found = fit_together({**amounts, **held}, inventories, within=ids)
    except exceptions.CapacityException as refusal:
        more = _on_cells_near({**amounts, **held}, inventories, ids, refusal)
        reasons = (*refusal.reasons, *more)
        raise _at_host(reasons, views[next(iter(amounts))].host) from refusal
    for name, places in within.items():
        _check_within(views[name], found[name], places)
    return {name: found[name] for name in amounts}


def _at_host(reasons: Iterable[Reason], host: str) -> exceptions.CapacityException:
    """Return a refusal whose reasons say where."""
    return exceptions.CapacityException.of(
        dataclasses.replace(reason, where=reason.where or host) for reason in reasons
    )


def _on_cells_near(
    amounts: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    within: Mapping[str, Collection[int]],
    refusal: exceptions.CapacityException,
) -> Iterator[Reason]:
    """Yield what stands against host cells that all would be near to, if that is why it is refused.

    Each could be had by itself; the cells that are near enough may be what others hold. One guest
    cell on such a host cell is enough, so how many of them there are is no reason.
    """
    base = next((name for name in amounts if cell_map_of(inventories[name]) is not None), None)
    if base is None or amounts[base].is_assigned:
        return
    if any(reason.rule is not Rule.AFFINITY for reason in refusal.reasons):
        return
    cells = cell_map_of(inventories[base])
    assert cells is not None, "it has some"
    nears = [
        near
        for name, amount in amounts.items()
        if name != base
        and isinstance(other := inventories[name], Affine)
        and (near := other.affinity(amount, cells, within.get(name))) is not None
    ]
    some = within.get(base, cells.sockets)
    try:
        able = [c for c in cells.sockets if c in some and all(near.is_met([c]) for near in nears)]
        if able:
            inventories[base].fit(amounts[base], None, Context(allowed=able))
    except exceptions.CapacityException as more:
        of_all = (Rule.HOST_CELLS, Rule.TOGETHER)
        yield from (reason for reason in more.reasons if reason.rule not in of_all)
    except exceptions.SearchLimitReached:
        return


def _ids(view: LocatedView, places: Iterable[int]) -> list[int]:
    ids = view.inventory.part_ids()
    return [ids[place] for place in sorted(places)]


def _check_within(view: LocatedView, found: Amount, places: Collection[int]) -> None:
    """Refuse what was assigned already to parts that may not be used."""
    used = {place for place, _ in view.inventory.to_allocations(found)}
    if not used.issubset(places):
        there, name = len(used.intersection(places)), view.resource.name
        raise exceptions.CapacityException.of(
            [Reason(Rule.HOST_CELLS, len(used), there, 0, name, view.host)]
        )


def near_to(amounts: Mapping[str, Amount], views: Mapping[str, LocatedView]) -> ChosenCells | None:
    """Return the host cells that some assigned amounts are on, None if none is on any."""
    for name, amount in amounts.items():
        cells = cell_map_of(views[name].inventory) if name in views else None
        if cells is not None and amount.is_assigned:
            return ChosenCells(cells, amount.host_cells)
    return None


def cells_first(kinds: Iterable[str], views: Mapping[str, LocatedView]) -> list[str]:
    """Return resources in an order in which what is near something comes after it."""
    return sorted(
        kinds, key=lambda name: name not in views or cell_map_of(views[name].inventory) is None
    )


# --- whether the parts of a tree go together ------------------------------------------------------
#
# Whether what a tree keeps in parts goes together: asked before definitions are written. Pure.
#
# A kind such as NUMA keeps an inventory in parts, each at a provider of its own. Parts that
# contradict each other make no inventory, and the host would be lost to everybody. And a unit
# that somebody holds by name must not be given out in another way: a dedicated CPU not as a
# shared one, a device not as one of another class, nor of another provider.


#: What one provider keeps of inventories that lie over its tree, by resource.
_Parts = Mapping[str, Inventory]


@dataclasses.dataclass(frozen=True, slots=True)
class ChangedUnits:
    """Units of one tree that changes would give out in another way than by name.

    ``root`` is a uuid, and so are ``parts``: the providers that keep parts.
    """

    root: str
    units: Mapping[str, frozenset[str]]  #: by class
    parts: frozenset[str]


def check_parts(kept: KeptDefinitions, changes: DefinitionChanges) -> tuple[ChangedUnits, ...]:
    """Raise unless the parts of each tree that changes go together; return units that change.

    Cost: nothing where no part changes; else linear in the providers, and gathering those trees.

    :param kept: the trees as they are
    :raises InvalidTree: naming the tree and what contradicts
    """
    found: list[ChangedUnits] = []
    for top, name, was, here in _changed_trees(kept, changes):
        _gather(name, here)
        found += _changed(top, was, here)
        found += _moved(top, was, here)
    return tuple(found)


def _changed_trees(
    kept: KeptDefinitions, changes: DefinitionChanges
) -> Iterator[tuple[str, str, dict[str, _Parts], dict[str, _Parts]]]:
    """Yield (root, its name, parts before, parts after) of the trees whose parts change."""
    stated = (*changes.creates, *(update.definition for update in changes.updates))
    if not any(map(_has_parts, stated)):
        return
    before = {uuid: one.definition for uuid, one in kept.items()}
    above = {uuid: one.parent_uuid for uuid, one in before.items()}
    names = {uuid: one.name for uuid, one in before.items()}
    had = {uuid: dict(_parts_of(one)) for uuid, one in before.items() if _has_parts(one)}
    was_in = {uuid: _root(uuid, above) for uuid in had}
    has = dict(had)
    for one in stated:
        above[one.uuid], names[one.uuid] = one.parent_uuid, one.name
        has[one.uuid] = dict(_parts_of(one))
    for removal in changes.removals:
        has.pop(removal.uuid, None)
    is_in = {uuid: _root(uuid, above) for uuid, own in has.items() if own}
    after, before_by_tree = _by_tree(is_in, has), _by_tree(was_in, had)
    was_at = {uuid: own for uuid, own in had.items() if is_in.get(uuid) != was_in[uuid]}
    for top in dict.fromkeys(is_in[one.uuid] for one in stated if one.uuid in is_in):
        here = after[top]
        came = {uuid: own for uuid, own in was_at.items() if uuid in here}
        yield top, names[top], {**before_by_tree.get(top, {}), **came}, here


# --- allocations follow the units of renumbered parts ---------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class RenumberedParts:
    """The parts of a tree between which changes of definitions move units: CPUs of NUMA cells.

    Firmware may number cells anew, or report one cell as several. A consumer keeps its CPUs, so its
    allocations follow them to the providers that have them now. Providers are known by uuid.
    """

    root: str
    part_of: Mapping[str, str]  #: by unit that can be allocated, the part that has it now
    #: by former part, the parts that have its units now, those with most of them first
    successors: Mapping[str, Sequence[str]]
    classes: Mapping[str, frozenset[str]]  #: of each part now

    def held_after(self, held: Iterable[Use], free: Counter[Key]) -> tuple[Use, ...]:
        """Return what a consumer has allocated after the change.

        Units are allocated at the part that has them. All else of a part, such as memory, follows
        the units that the consumer has of it; without units it stays where there is room.

        :param free: what is free of each part; what is allocated is subtracted
        """
        amounts: Counter[Key] = Counter()
        units: dict[Key, tuple[str, ...]] = defaultdict(tuple)
        uses = list(held)
        for use in uses:
            uuid, name = use.key
            rest = use.amount
            for unit in use.units if uuid in self.successors else ():
                to = self._target(self.part_of.get(unit, uuid), use)
                units[to, name] += (unit,)
                amounts[to, name] += 1
                rest -= 1
            if uuid not in self.successors:
                units[use.key] += use.units
            if rest:
                to = self._target(self._main_part(uuid, uses, free), use)
                amounts[to, name] += rest
        free.subtract(amounts)
        return tuple(Use(*key, count, units[key]) for key, count in amounts.items())

    def _target(self, part: str, use: Use) -> str:
        """Return a part if it has the class of a use, else the former part."""
        return part if use.resource_class in self.classes.get(part, ()) else use.provider_uuid

    def _main_part(self, uuid: str, held: Sequence[Use], free: Mapping[Key, int]) -> str:
        """Return the part that what a consumer has of a former part follows to."""
        if uuid not in self.successors:
            return uuid
        own = [use for use in held if use.provider_uuid == uuid]
        now = Counter(self.part_of.get(unit, uuid) for use in own for unit in use.units)
        if now:
            return max(now, key=lambda part: (now[part], part == uuid))
        parts = self.successors[uuid]
        has_room = (
            part
            for part in parts
            if all(free.get((part, use.resource_class), 0) >= use.amount for use in own)
        )
        return next(has_room, parts[0])


def renumbered(kept: KeptDefinitions, changes: DefinitionChanges) -> Iterator[RenumberedParts]:
    """Yield the trees in which changes move the units of parts that are known by these."""
    for top, _, was, here in _changed_trees(kept, changes):
        before, after = _identified(was), _identified(here)
        successors: dict[str, list[str]] = {}
        for uuid, units in before.items():
            counts = {other: len(units & theirs) for other, theirs in after.items()}
            others = sorted(filter(counts.get, counts), key=lambda one: (-counts[one], one != uuid))
            if others not in ([], [uuid]):
                successors[uuid] = others
        if successors:
            classes = {uuid: frozenset(_classes([own])) for uuid, own in here.items()}
            part_of = {
                unit: uuid
                for uuid in after
                for inventory in here[uuid].values()
                if isinstance(inventory, Located)
                for name in classes[uuid]
                for unit in inventory.units(name) or ()
            }
            yield RenumberedParts(top, part_of, successors, classes)


def _identified(parts: Mapping[str, _Parts]) -> dict[str, frozenset[str]]:
    """Return the units by which parts are known when they are numbered anew."""
    found = {
        uuid: frozenset[str]().union(
            *(one.identifying_units() for one in own.values() if isinstance(one, Located))
        )
        for uuid, own in parts.items()
    }
    return {uuid: units for uuid, units in found.items() if units}


def held_otherwise(
    changed: ChangedUnits, columns: Columns, orders: Iterable[ConsumerOrder]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield (provider, class, unit, consumer) of units that somebody holds, and would go on to.

    :param columns: the tree, with allocations
    :param orders: what is written with the changes
    """
    given = columns.providers
    names = dict(zip(given.provider_id, zip(given.uuid, given.name, strict=True), strict=True))
    by_consumer = {order.consumer: order for order in orders}
    for number, unit, name, consumer in zip(*columns.units, strict=True):
        uuid, where = names[number]
        is_changed = uuid in changed.parts and unit in changed.units.get(name, ())
        if is_changed and _keeps(by_consumer.get(consumer), (uuid, name), unit):
            yield where, name, unit, consumer


def keeps_devices(definition: ProviderDefinition) -> bool:
    """Return whether a provider keeps a part whose units are devices."""
    return any(isinstance(inventory, Identified) for _, inventory in _structured(definition))


def holders_of(columns: Columns, name: str) -> Iterator[str]:
    """Yield who holds what of one provider, for people: the units, or how many of what."""
    number = dict(zip(columns.providers.name, columns.providers.provider_id, strict=True)).get(name)
    units: dict[tuple[str, str], list[str]] = defaultdict(list)
    for at, unit, kind, consumer in zip(*columns.units, strict=True):
        if at == number:
            units[consumer, kind].append(unit)
    for at, kind, consumer, amount in zip(*columns.allocations, strict=True):
        if at == number:
            what = ", ".join(sorted(units[consumer, kind])) or f"{amount} {kind}"
            yield f"{consumer} holds {what}"


def _keeps(order: ConsumerOrder | None, key: tuple[str, str], unit: str) -> bool:
    """Return whether somebody who has a unit has it after an order."""
    if order is None or order.mode is Mode.KEEP:
        return True
    said = [use for use in order.uses if use.key == key and unit in use.units]
    if order.mode is Mode.ADD:
        return not any(use.amount < 0 for use in said)
    return bool(said)


def _by_tree(roots: Mapping[str, str], parts: Mapping[str, _Parts]) -> dict[str, dict[str, _Parts]]:
    """Return what is kept by tree, then by provider."""
    found: dict[str, dict[str, _Parts]] = defaultdict(dict)
    for uuid, root in roots.items():
        found[root][uuid] = parts[uuid]
    return found


def _has_parts(definition: ProviderDefinition) -> bool:
    return any(resource(kind.resource_class).is_located for kind in definition.kinds)


def _parts_of(definition: ProviderDefinition) -> Iterator[tuple[str, Inventory]]:
    return ((name, one) for name, one in _structured(definition) if resource(name).is_located)


def _structured(definition: ProviderDefinition) -> Iterator[tuple[str, Inventory]]:
    """Yield the inventories of a provider that are more than a figure."""
    records = {record.resource_class: record for record in definition.inventories}
    for kind in definition.kinds:
        own = [records[name] for name in kind.classes if name in records]
        made = resource(kind.resource_class).inventory_from_kept(own, kind.body or None)
        yield kind.resource_class, made


def _root(uuid: str, above: Mapping[str, str | None]) -> str:
    top, seen = uuid, {uuid}
    while (up := above.get(top)) is not None and up in above and up not in seen:
        top = up
        seen.add(up)
    return top


def _gather(root: str, parts: Mapping[str, _Parts]) -> None:
    """Raise unless the parts of a tree make an inventory."""
    by_kind: dict[str, list[KeptPart]] = defaultdict(list)
    for own in parts.values():
        for name, inventory in own.items():
            by_kind[name].append(KeptPart(inventory.to_records(), inventory.describe()))
    for name, kept in by_kind.items():
        try:
            resource(name).from_parts(kept)
        except exceptions.InvalidInput as error:
            raise exceptions.InvalidTree(
                f"{name} of {root}, {error.what}", error.value, error.expected
            ) from error


def _changed(
    root: str, before: Mapping[str, _Parts], after: Mapping[str, _Parts]
) -> Iterator[ChangedUnits]:
    """Yield the units of a tree that nobody could take in another way before."""
    new = _owners(after).keys() - _owners(before).keys()  # devices that nobody has
    classes = _classes((*before.values(), *after.values()))
    units = {
        name: gone
        for name in classes
        if (gone := _elsewhere(after.values(), name) - _elsewhere(before.values(), name) - new)
    }
    if units:
        yield ChangedUnits(root, units, frozenset(after))


def _moved(
    root: str, before: Mapping[str, _Parts], after: Mapping[str, _Parts]
) -> Iterator[ChangedUnits]:
    """Yield the devices of a tree that another part would have: who has one has it where it was."""
    was, now = _owners(before), _owners(after)
    moved: dict[str, set[str]] = defaultdict(set)
    for unit, uuid in was.items():
        if now.get(unit, uuid) != uuid:
            moved[uuid].add(unit)
    for uuid, units in moved.items():  # as whatever it was taken, also with another
        given = dict.fromkeys(_classes([before[uuid]]), frozenset(units))
        yield ChangedUnits(root, given, frozenset([uuid]))


def _owners(parts: Mapping[str, _Parts]) -> dict[str, str]:
    """Return which part has which device, by the device's name."""
    return {
        unit: uuid
        for uuid, own in parts.items()
        for inventory in own.values()
        if isinstance(inventory, Identified) and isinstance(inventory, Located)
        for name in _classes([{"": inventory}])
        for unit in inventory.units(name) or ()
    }


def _classes(parts: Iterable[_Parts]) -> set[str]:
    inventories = (inventory for own in parts for inventory in own.values())
    return {one.resource_class for inventory in inventories for one in inventory.to_records()}


def _elsewhere(parts: Iterable[_Parts], name: str) -> frozenset[str]:
    inventories = (one for own in parts for one in own.values() if isinstance(one, Located))
    return frozenset().union(*(inventory.units_elsewhere(name) for inventory in inventories))
