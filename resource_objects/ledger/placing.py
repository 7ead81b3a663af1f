"""Where a demand goes that does not say it all: decided on rows that were just read.

Two things have to be decided on fresh rows before a demand can be written:

* *located amounts*, which lie over a tree. What is assigned is taken as it is, if it is of that
  host; what is not, the inventories decide (D4), of all that is asked of one host at once (D13);
* *units that are named* by who decides elsewhere. A kind whose inventories lie over a tree says
  which units each part has; those of a part are taken there, and not of the host that it shares
  them with. Units of other providers are named as one likes.

What comes of it is a demand of uses alone; it requires the definitions that it was decided on. The
way back, from what is held to the assigned amount, is :func:`assigned_amounts`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from resource_objects import exceptions
from resource_objects.exceptions import Reason, Rule
from resource_objects.ledger.demand import Demand, LocatedDemand
from resource_objects.ledger.store import Store, claim_of
from resource_objects.providers import Claim
from resource_objects.providers.attribution import holders_of, true_of_all, with_holders
from resource_objects.providers.columns import Columns, records_by_provider
from resource_objects.providers.decision import absent, held_by, refusals
from resource_objects.providers.disabled import ends_of
from resource_objects.providers.dry_run import held_in, in_place, with_taken, without_consumers
from resource_objects.providers.located import (
    KeptLayouts,
    LocatedView,
    LocatedViews,
    cells_first,
    fit_jointly,
    free_of,
    located_amounts,
    near_to,
    removed_by_provider,
)
from resource_objects.providers.orders import UNLIMITED, ConsumerRecord, Key, Totals, Use
from resource_objects.resources import Amount, Amounts, Inventory, resource
from resource_objects.resources.context import ChosenCells
from resource_objects.resources.located import Located, cell_map_of, dependent_units, unit_count
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.in_place import MOST_PARTS

#: What a write decides again on what is kept then, and refuses with who has it.
_DECIDED_BY_THE_WRITE = frozenset(
    {
        *(Rule.CAPACITY, Rule.LIMIT, Rule.MAX_UNIT),
        *(Rule.UNIT_TAKEN, Rule.USED_BELOW_ZERO, Rule.NO_INVENTORY),
    }
)

#: How many units are named at most where one is not found.
_SHOWN = 16


class Placer:
    """Decides where demands go, on what a store reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._layouts = KeptLayouts()

    def read(
        self,
        demands: Iterable[Demand],
        places: Collection[str] = (),
        leaving: Collection[str] = (),
    ) -> Columns | None:
        """Return the trees on which demands are to be placed; None if that needs none.

        Who holds what is only in them where that is needed to place them.

        :param places: providers of trees that are wanted too, if any is
        :param leaving: the consumers that give back what they hold in the same write
        """
        keys = _keys(demands)
        if not keys:
            return None
        before = None if places or leaving else self._layouts.columns(keys)
        if before is not None:
            return self._store.backend.read_again(before, *keys)
        return self._store.backend.read(*keys, *places)

    def place(
        self,
        demands: Mapping[str, Demand],
        columns: Columns | None,
        leaving: Collection[str] = (),
        limits: Totals = UNLIMITED,
        overrides: bool = False,
    ) -> Mapping[str, Demand]:
        """Return demands with all that they ask placed; those of uses alone come first.

        What is told is what stands in the way: what others hold, what is out of service, and the
        limits. Where only limits do, the write tells them.
        Where ``columns`` do not tell what others hold, it is decided again on some that do.

        :param demands: by consumer
        :param columns: what :meth:`read` gave for them
        :param leaving: the consumers that give back what they hold in the same write. If that is
            what is asked it stays where it is
        :param limits: where they can be within these, they are put there; where they cannot, the
            write refuses what goes beyond one, and names it
        :param overrides: whether what is out of service may be used, where nothing else will do
        :raises CapacityException: if they do not fit, with who holds what and what is disabled
        :raises ForeignAmount: if one is assigned to what the host does not have
        :raises InvalidAmount: if one is asked of what is no host; or units are named that are not
            as many as the amount, or only some of those that go together
        :raises UnitNotFound: for a name that is no unit of that class there
        :raises ProviderNotFound: if a host is gone
        """
        if columns is None:
            return demands
        try:
            return self._placed(demands, columns, leaving, limits, overrides)
        except exceptions.CapacityException:
            if columns.cursor is not None:
                raise
        whole = self._store.backend.read(*_keys(demands.values()))
        return self._placed(demands, whole, leaving, limits, overrides)

    def _placed(
        self,
        demands: Mapping[str, Demand],
        columns: Columns,
        leaving: Collection[str],
        limits: Totals,
        overrides: bool,
    ) -> Mapping[str, Demand]:
        demands = {
            name: _with_units(demand, columns, name, name in leaving)
            for name, demand in demands.items()
        }
        if not any(demand.located for demand in demands.values()):
            return demands
        ground = columns
        for name in leaving:  # who is asked for stays, as far as its use can
            gone = in_place if name in demands else without_consumers
            ground = gone(ground, name)
        beside = (demand for demand in demands.values() if not demand.located)
        ground = with_taken(ground, (use for demand in beside for use in demand.uses))
        may_override = overrides and bool(ground.disabled)
        ways = [(limits, True), *([(limits, False)] if may_override else [])]
        if limits:
            ways.append((UNLIMITED, not may_override))
        besides: dict[Reason, None] = {}
        for within, in_service in ways[:-1]:
            try:
                return self._placing(columns, ground, within, in_service).every(demands, leaving)
            except exceptions.CapacityException as refusal:
                besides |= dict.fromkeys(true_of_all(refusal.reasons, ground))
        placed = self._placing(columns, ground, *ways[-1]).every(demands, leaving)
        if besides and limits and not may_override:  # the write would tell the limits alone
            beyond = list(_beyond(placed.values(), ground, limits))
            if beyond:
                raise exceptions.CapacityException.of([*beyond, *besides])
        return placed

    def _placing(
        self,
        columns: Columns,
        ground: Columns,
        limits: Totals,
        in_service: bool,
    ) -> _Placing:
        # what those have who leave may stay with them
        counts, out = free_of(removed_by_provider(columns))
        limited = _held_back(columns, limits, counts) if limits else {}
        views = self._layouts.views(ground, counts, out, limited)
        return _Placing(columns, ground, views, in_service)

    def with_units(self, demand: Demand, consumer: str) -> Demand:
        """Return a demand that requires the definitions of the parts whose units it names.

        Of a consumer that holds nothing yet. Cost: one read of the trees if it names units that
        no search found.

        :raises UnitNotFound, InvalidAmount, CapacityException: as :meth:`place`
        """
        if not demand.names_units:
            return demand
        named = dict.fromkeys(use.provider_uuid for use in _named_units(demand))
        if not named:
            return demand
        return _with_units(demand, self._store.backend.read(*named), consumer, leaving=False)

    def staying(
        self, consumer: str, host: str, amounts: Mapping[str, Amount]
    ) -> Mapping[str, Amount]:
        """Return the amounts that a consumer has of a host already, assigned.

        Cost: a read of the tree.
        """
        columns = self._store.backend.read(host)
        ground = in_place(columns, consumer)
        placing = self._placing(columns, ground, UNLIMITED, in_service=False)
        views = {
            name: placing.view(LocatedDemand(host, name, amount))
            for name, amount in amounts.items()
        }
        return placing.staying(amounts, views, consumer)

    def assigned(self, record: ConsumerRecord) -> dict[str, Amounts]:
        """Return what a consumer holds and where, by provider name, as it can be claimed again."""
        claim = claim_of(record)
        if not _located_in(claim):
            return claim.by_provider()
        places = dict.fromkeys(one.provider_uuid for one in record.held)
        return assigned_amounts(record, self._store.backend.read(*places, allocations=False))


def _keys(demands: Iterable[Demand]) -> Collection[str]:
    """Return the providers of the trees on which demands are to be placed, by uuid, each once."""
    keys: dict[str, None] = {}
    for demand in demands:  # most name neither: a plain loop, as every claim comes through here
        if demand.located:
            keys |= dict.fromkeys([one.host for one in demand.located])
        if demand.names_units:
            keys |= dict.fromkeys([use.provider_uuid for use in _named_units(demand)])
    return keys


def _disabled(columns: Columns) -> Collection[int]:
    """Return the providers that are out of service, themselves or with one above, by number."""
    disabled, given = columns.disabled, columns.providers
    if not disabled:
        return ()
    return ends_of(dict(zip(given.provider_id, given.parent_id, strict=True)), disabled).keys()


def _held_back(
    columns: Columns, limits: Totals, out: Mapping[tuple[int, str], int]
) -> dict[tuple[int, str], int]:
    """Return how much of the capacity of inventories is beyond limits.

    :param out: how much of it is out of service
    """
    uuids = dict(zip(columns.providers.provider_id, columns.providers.uuid, strict=True))
    table = columns.inventories
    rows = zip(table.provider_id, table.resource_class, table.capacity, strict=True)
    found = ((n, name, capacity, limits.get((uuids[n], name))) for n, name, capacity in rows)
    return {
        (number, name): left - total
        for number, name, capacity, total in found
        if total is not None and total < (left := capacity - out.get((number, name), 0))
    }


def _beyond(demands: Iterable[Demand], ground: Columns, limits: Totals) -> Iterator[Reason]:
    """Yield why placed demands are beyond limits, as a write would, with who holds what is used."""
    after = with_taken(ground, (use for demand in demands for use in demand.uses))
    given, used = ground.providers, iter(after.inventories.used)
    named = zip(given.provider_id, given.uuid, given.name, strict=True)
    names = {number: (uuid, name) for number, uuid, name in named}
    for number, *figures in zip(*ground.inventories, strict=True):
        (uuid, name), one = names[number], InventoryRecord(*figures)
        amount, limit = next(used) - one.used, limits.get((uuid, one.resource_class))
        if limit is not None and amount > 0:
            for reason in refusals(one, amount, name, limit=limit, aggregate=True):
                yield held_by(reason, holders_of(ground, number, one.resource_class).items())


# --- amounts that lie over a tree -----------------------------------------------------------------


class _Placing:
    """Places located amounts in trees, one demand after the other."""

    def __init__(
        self, kept: Columns, ground: Columns, views: LocatedViews, in_service: bool
    ) -> None:
        """:param ground: what was read, as it is for who is placed
        :param views: over the trees of that
        :param in_service: whether nothing is used that is out of service
        """
        self._kept = kept
        self._ground = ground
        self._views = views
        self._layout = views.layout
        self._left = 0  #: how many demands are placed after this one
        self._disabled = _disabled(kept) if in_service else ()

    def every(
        self, demands: Mapping[str, Demand], leaving: Collection[str]
    ) -> Mapping[str, Demand]:
        """Return demands placed, one beside the other."""
        self._left = sum(bool(demand.located) for demand in demands.values())
        return {
            name: self.demand(demand, name if name in leaving else None)
            if demand.located
            else demand
            for name, demand in demands.items()
        }

    def demand(self, demand: Demand, leaving: str | None) -> Demand:
        """Return a demand placed; the next one is placed beside it."""
        self._left -= 1
        uses = list(demand.uses)
        required = dict(demand.required)
        by_host: dict[str, list[LocatedDemand]] = defaultdict(list)
        for one in demand.located:
            by_host[one.host].append(one)
        for here in by_host.values():
            views = {one.resource_class: self.view(one) for one in here}
            for one in here:
                self._check_apart(one, views[one.resource_class], demand)
            for name, amount in self._assigned(here, views, demand, leaving).items():
                changes = views[name].deltas(amount)
                self._check_elsewhere(views[name], changes)
                uses += changes
                required.update(views[name].generations)
        return dataclasses.replace(
            demand, uses=tuple(uses), located=(), required=tuple(required.items())
        )

    def view(self, one: LocatedDemand) -> LocatedView:
        """Return the inventory over the host of a demand."""
        number = self._layout.numbers.get(one.host)
        if number is None:
            raise exceptions.ProviderNotFound(one.host)
        if self._layout.roots[number] != number:
            host = self._layout.names[self._layout.roots[number]]
            raise exceptions.InvalidAmount(
                f"{one.resource_class} of {self._layout.names[number]}",
                one.amount,
                f"it to be asked of the host, {host}: its whole tree gives it",
            )
        view = self._views.of_tree(number, one.resource_class)
        if view is None:
            sign = -1 if one.amount.is_negative else 1
            reason = absent(one.resource_class, sign, self._layout.names[number])
            raise exceptions.CapacityException.of([reason])
        return view

    def _check_apart(self, one: LocatedDemand, view: LocatedView, demand: Demand) -> None:
        """Refuse to change a part's counts in the write that changes the amount over it."""
        for use in demand.uses:
            is_part = use.provider_uuid in view.places  # else it is of another tree
            if is_part and use.key in self._layout.kept_as[one.resource_class]:
                raise exceptions.InvalidAmount(
                    f"{use.resource_class} of {view.spots[view.places[use.provider_uuid]].name}",
                    use.amount,
                    f"nothing beside {one.resource_class}, which says what of it is taken",
                )

    def _check_elsewhere(self, view: LocatedView, uses: Collection[Use]) -> None:
        """Refuse a unit that is still held as a unit of another part, which it was before."""
        wanted = {unit for use in uses if use.amount > 0 for unit in use.units}
        held = [row for row in zip(*self._ground.units, strict=True) if row[1] in wanted]
        if not held:
            return
        spots = {spot.number: spot.uuid for spot in view.spots}
        taken = {unit: (spots[number], who) for number, unit, _, who in held if number in spots}
        reasons = [
            _unit_taken(use, unit, view.host, taken[unit][1])
            for use in uses
            for unit in use.units
            if use.amount > 0 and taken.get(unit, (use.provider_uuid, ""))[0] != use.provider_uuid
        ]
        if reasons:
            raise exceptions.CapacityException.of(reasons)

    def _assigned(
        self,
        asks: Collection[LocatedDemand],
        views: Mapping[str, LocatedView],
        demand: Demand,
        leaving: str | None,
    ) -> dict[str, Amount]:
        """Return what is asked of a host, assigned, and let the views know that it is taken."""
        gives = {one.resource_class: one.amount for one in asks if one.amount.is_negative}
        for name, amount in gives.items():
            self._take_assigned(amount, views[name])
        amounts = {one.resource_class: one.amount for one in asks if not one.amount.is_negative}
        if not amounts:
            return gives
        every = self._over(asks, views, demand)
        held = _held(demand, every, {*gives, *amounts})
        if all(amount.is_assigned for amount in amounts.values()):
            if len(amounts) + len(held) > 1:
                self._check_near(amounts, every, held)
            for name, amount in amounts.items():
                self._take_assigned(amount, views[name])
            return {**gives, **amounts}
        found = self._fitted(amounts, every, held, leaving)
        for name, amount in found.items() if self._left else ():
            views[name].inventory.take(amount)
        return {**gives, **found}

    def _over(
        self, asks: Collection[LocatedDemand], views: Mapping[str, LocatedView], demand: Demand
    ) -> dict[str, LocatedView]:
        """Return the inventories over a host that decide: those asked of, and those near cells."""
        if not demand.keeps and all(cell_map_of(v.inventory) is None for v in views.values()):
            return dict(views)
        root = next(self._layout.numbers[one.host] for one in asks)
        return {**self._views.over(root), **views}

    def _fitted(
        self,
        amounts: Mapping[str, Amount],
        views: Mapping[str, LocatedView],
        held: Mapping[str, Amount],
        leaving: str | None,
    ) -> dict[str, Amount]:
        """Return the assigned amounts; what the consumer has already stays where it can."""
        stays = {} if leaving is None else self.staying(amounts, views, leaving)
        for count in range(len(stays), 0, -1):  # the last ones, which are near something, go first
            some = {name: stays[name] for name in list(stays)[:count]}
            with contextlib.suppress(exceptions.CapacityException):
                return fit_jointly({**amounts, **some}, views, held=held)
        within = self._in_service(amounts, views)
        for some_parts in self._used_parts_first(amounts, views, leaving, within):
            with contextlib.suppress(exceptions.CapacityException):
                return fit_jointly(amounts, views, some_parts, held=held)
        disabled = self._disabled_parts(within, views)
        if not all(within.values()):
            raise exceptions.CapacityException.of(disabled)
        try:
            return fit_jointly(amounts, views, within, held=held)
        except exceptions.CapacityException as refusal:
            told = [views[name] for name in amounts]
            found = with_holders(refusal, told, self._ground, amounts, within)
            reasons = (*found.reasons, *disabled)
            raise exceptions.CapacityException.of(reasons) from refusal

    def _used_parts_first(
        self,
        asked: Collection[str],
        views: Mapping[str, LocatedView],
        leaving: str | None,
        in_service: Mapping[str, list[int]],
    ) -> Iterator[dict[str, list[int]]]:
        """Yield places of parts: those that a consumer uses, then with one more at a time."""
        if leaving is None:
            return
        uuids = {use.provider_uuid for use in held_in(self._kept, leaving)}
        used, others = dict[str, list[int]](), dict[str, list[int]]()
        for name in asked:
            places = range(len(views[name].spots))
            used[name] = [n for n in places if views[name].spots[n].uuid in uuids]
            others[name] = [n for n in in_service.get(name, places) if n not in used[name]]
        if any(used.values()):
            for count in range(min(MOST_PARTS, max(map(len, others.values())))):
                yield {name: used[name] + others[name][:count] for name in asked}

    def _in_service(
        self, asked: Iterable[str], views: Mapping[str, LocatedView]
    ) -> dict[str, list[int]]:
        """Return the places of the parts that are in service, of each view where not all are."""
        found: dict[str, list[int]] = {}
        for name in asked if self._disabled else ():
            spots = views[name].spots
            places = [n for n, spot in enumerate(spots) if spot.number not in self._disabled]
            if len(places) < len(spots):
                found[name] = places
        return found

    def _disabled_parts(
        self, asked: Collection[str], views: Mapping[str, LocatedView]
    ) -> list[Reason]:
        """Return what is out of service of the parts of some views, or above them."""
        found: dict[int, None] = {}
        given = self._kept.providers
        parents = dict(zip(given.provider_id, given.parent_id, strict=True)) if asked else {}
        for spot in (spot for name in asked for spot in views[name].spots):
            at: int | None = spot.number
            while at is not None:
                if at in self._kept.disabled:
                    found[at] = None
                at = parents[at]
        return [
            Reason(Rule.DISABLED, 1, 0, 0, where=self._layout.names[n], disabled=facts)
            for n, facts in ((n, self._kept.disabled[n]) for n in found)
        ]

    def _check_near(
        self,
        amounts: Mapping[str, Amount],
        views: Mapping[str, LocatedView],
        held: Mapping[str, Amount],
    ) -> None:
        """Refuse assigned amounts that are not near each other; who has them the write says."""
        try:
            fit_jointly(amounts, views, held=held)
        except exceptions.ForeignAmount:
            return
        except exceptions.CapacityException as refusal:
            self._decided_here(refusal, [views[name] for name in amounts], amounts)

    def _take_assigned(self, amount: Amount, view: LocatedView) -> None:
        """Let the view know that an assigned amount is taken.

        Whether it is free the write decides, which knows who has it; what the write does not look
        at, such as memory that is given out once, is decided here.
        """
        try:
            view.inventory.consume(amount)
        except exceptions.ForeignAmount:  # what is given back may have become something else
            return
        except exceptions.CapacityException as refusal:
            self._decided_here(refusal, [view], {view.resource.name: amount})

    def _decided_here(
        self,
        refusal: exceptions.CapacityException,
        views: Collection[LocatedView],
        amounts: Mapping[str, Amount],
    ) -> None:
        """Raise a refusal unless it is one that the write decides."""
        if any(reason.rule not in _DECIDED_BY_THE_WRITE for reason in refusal.reasons):
            raise with_holders(refusal, views, self._ground, amounts) from refusal

    def staying(
        self, amounts: Mapping[str, Amount], views: Mapping[str, LocatedView], consumer: str
    ) -> dict[str, Amount]:
        """Return where a consumer has amounts already that can be there now."""
        held = list(held_in(self._kept, consumer))
        where = {name: amount for name, amount in amounts.items() if amount.is_assigned}
        found: dict[str, Amount] = {}
        for name in cells_first(amounts.keys() - where.keys(), views):
            near = near_to({**where, **found}, views)
            try:
                stays = views[name].placed(amounts[name], held, near)
                if views[name].inventory.can_provide(stays):
                    found[name] = stays
            except exceptions.ForeignAmount:  # or a CPU of it is offline, or serves others
                continue
        return found


def _held(
    demand: Demand, views: Mapping[str, LocatedView], but: Collection[str]
) -> dict[str, Amount]:
    """Return the assigned amounts that a consumer has over a host, without some resources."""
    host = next(iter(views.values())).host
    kept = demand.keeps.get(host, Amounts())
    return {
        name: amount
        for name, amount in kept.by_name()
        if name in views and name not in but and _is_there(amount, views[name])
    }


def _is_there(amount: Amount, view: LocatedView) -> bool:
    """Return whether an amount is still held as it was read; else the write is refused."""
    try:
        view.inventory.fit(-amount)
    except (exceptions.CapacityException, exceptions.InvalidInput):
        return False
    return True


# --- units that are named -------------------------------------------------------------------------


def _named_units(demand: Demand) -> tuple[Use, ...]:
    """Return what a demand takes by unit where it is not known yet which units there are."""
    known = {uuid for uuid, _ in demand.required}
    return tuple(
        use
        for use in demand.uses
        if use.units and use.amount > 0 and use.provider_uuid not in known
    )


def _with_units(demand: Demand, columns: Columns, consumer: str, leaving: bool) -> Demand:
    """Return a demand that requires the definitions of the parts whose units it names.

    What the consumer holds there already it may name, whatever became of it. Who names a unit that
    others go with (a physical function, and those split off it) gets all of them.

    :param leaving: whether the consumer gives back what it holds
    """
    named = {use.key for use in _named_units(demand)}
    if not named:
        return demand
    units = _PartUnits(columns, consumer, leaving)
    required = dict(demand.required)
    uses: list[Use] = []
    for use in demand.uses:
        if use.key in named:
            required.update(units.required(use))
            use = units.completed(use)
        uses.append(use)
    return dataclasses.replace(demand, uses=tuple(uses), required=tuple(required.items()))


class _PartUnits:
    """The units of the parts of some trees."""

    def __init__(self, columns: Columns, consumer: str, leaving: bool) -> None:
        given = columns.providers
        self._columns = columns
        self._number = dict(zip(given.uuid, given.provider_id, strict=True))
        self._name = dict(zip(given.provider_id, given.name, strict=True))
        self._root = dict(zip(given.provider_id, given.root_id, strict=True))
        self._generation = dict(zip(given.provider_id, given.generation, strict=True))
        self._consumer = consumer
        self._leaving = leaving
        self._records = records_by_provider(columns.inventories)
        #: the inventories that parts are kept as, and those of them that say which units they have
        self._kept = dict(self._inventories())
        self._of_parts = {
            key: units
            for key, inventory in self._kept.items()
            if isinstance(inventory, Located) and (units := inventory.units(key[1])) is not None
        }

    def _inventories(self) -> Iterator[tuple[tuple[int, str], Inventory]]:
        for number, kind, classes, body in zip(*self._columns.kinds, strict=True):
            own = [one for one in self._records.get(number, ()) if one.resource_class in classes]
            inventory = resource(kind).inventory_from_kept(own, body or None)
            yield from (((number, name), inventory) for name in classes)

    def _is_known(self, use: Use) -> bool:
        """Return whether a use is of a part, or of what parts with named units share with."""
        number = self._number.get(use.provider_uuid)
        if number is None:
            return False  # the write says that it is gone
        key = number, use.resource_class
        return key in self._of_parts or self._is_of_parts(*key)

    def required(self, use: Use) -> Iterator[tuple[str, int]]:
        """Yield the definition that what is taken by unit requires, if any."""
        if self._is_known(use):
            yield use.provider_uuid, self._generation[self._number[use.provider_uuid]]

    def completed(self, use: Use) -> Use:
        """Return what is taken by unit, checked, with the units that go with those it names."""
        if not self._is_known(use):
            return use
        number = self._number[use.provider_uuid]
        key = number, use.resource_class
        mine = {
            unit
            for at, unit, kind, who in zip(*self._columns.units, strict=True)
            if (at, kind, who) == (*key, self._consumer)
        }
        together: Mapping[str, frozenset[str]] = {}
        if key in self._kept:
            together = dependent_units(self._kept[key], use.resource_class)
        use = _with_companions(use, together)
        new = [unit for unit in use.units if unit not in mine]
        if new:
            self._check(use, number, new, frozenset().union(*together.values()))
        return use

    def _is_of_parts(self, number: int, name: str) -> bool:
        """Return whether parts with named units share with a provider."""
        table = self._columns.shares
        return any(
            (of, of_class) == (number, name) and (part, kind) in self._of_parts
            for part, kind, of, of_class, _ in zip(*table, strict=True)
        )

    def _check(self, use: Use, number: int, new: Collection[str], others: Collection[str]) -> None:
        """Raise unless units can be taken.

        :param others: those that go with units of this class
        """
        name = use.resource_class
        where = f"{name} at {self._name[number]}"
        there = self._of_parts.get((number, name))
        for unit in new:
            if there is None:
                raise exceptions.UnitNotFound(
                    unit, f"{where} has none, those it shares are of the providers below"
                )
            if unit not in there and unit not in others:
                raise exceptions.UnitNotFound(unit, f"{where} has {_shown(there)}")
        if self._count(number, use) != use.amount:
            raise exceptions.InvalidAmount(
                f"units of {where}", use.units, f"{use.amount}, as many as the amount"
            )
        reasons = [
            _unit_taken(use, unit, self._name[number], who)
            for unit, who in self._others(number, new)
        ]
        if reasons:
            raise exceptions.CapacityException.of(reasons)

    def _count(self, number: int, use: Use) -> int:
        inventory = self._kept.get((number, use.resource_class))
        if inventory is None:
            return len(use.units)
        return unit_count(inventory, use.resource_class, use.units)

    def _others(self, number: int, units: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the units that somebody took of another part of the tree, and who."""
        for at, unit, kind, who in zip(*self._columns.units, strict=True):
            goes = self._leaving and who == self._consumer
            is_part = (at, kind) in self._of_parts and at != number
            if unit in units and is_part and self._root[at] == self._root[number] and not goes:
                yield unit, who


def _unit_taken(use: Use, unit: str, where: str, who: str) -> Reason:
    """Return the reason that refuses a unit which another consumer holds."""
    return Reason(
        Rule.UNIT_TAKEN,
        use.amount,
        bound=0,
        used=1,
        resource=use.resource_class,
        where=where,
        holders=((who, 1),),
        unit=unit,
    )


def _with_companions(use: Use, together: Mapping[str, frozenset[str]]) -> Use:
    """Return a change with all units that go with those it names.

    :raises InvalidAmount: if it names some of them and not all
    """
    units = set(use.units)
    for unit, others in together.items():
        if not units.isdisjoint(others) and not {unit, *others} <= units:
            raise exceptions.InvalidAmount(
                f"units of {use.resource_class}",
                use.units,
                f"{unit} alone, or with all that go with it: {_shown(others)}",
            )
        if unit in units:
            units |= others
    return dataclasses.replace(use, units=tuple(sorted(units))) if together else use


def _shown(units: Collection[str]) -> str:
    """Return the names of units, the first of them if there are many, shorter ones first."""
    named = sorted(units, key=lambda unit: (len(unit), unit))
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return f"{', '.join(named[:_SHOWN])}{more}" if named else "none"


# --- from what is held to assigned amounts --------------------------------------------------------


def _located_in(claim: Claim) -> dict[str, Amount]:
    """Return the amounts of a claim's request that lie over a tree."""
    return {} if claim.request is None else located_amounts(claim.request.unnamed.resources)


def assigned_amounts(record: ConsumerRecord, columns: Columns) -> dict[str, Amounts]:
    """Return what a consumer holds, by provider; what lies over a tree as one amount of its host.

    :param columns: the trees of the providers it holds something of
    """
    located, left = _located_in(claim_of(record)), list(record.held)
    views = LocatedViews(columns)
    keys = views.layout.kept_as
    found: dict[str, Amounts] = {}
    cells: dict[str, ChosenCells] = {}
    for kind in sorted(located, key=lambda name: not _has_cells(name, views)):
        laid = _assigned(kind, located[kind], left, views, keys[kind], cells)
        if laid is not None:
            found[laid.host] = found.get(laid.host, Amounts()) + Amounts({kind: laid.amount})
            left = laid.rest
            if laid.near is not None:
                cells[laid.host] = laid.near
    rest = claim_of(dataclasses.replace(record, held=tuple(left))).by_provider()
    for name, amounts in rest.items():
        found[name] = found[name] + amounts if name in found else amounts
    return found


def _has_cells(kind: str, views: LocatedViews) -> bool:
    """Return whether other resources must be near to this one, so that it is assigned first."""
    located = (views.of_tree(root, kind) for root in views.trees(kind))
    return any(one is not None and cell_map_of(one.inventory) is not None for one in located)


@dataclasses.dataclass(frozen=True, slots=True)
class _Assigned:
    """An amount found in a tree."""

    host: str
    amount: Amount  #: assigned
    near: ChosenCells | None  #: the host cells it is on
    rest: list[Use]  #: what else is held
    is_alone: bool  #: whether nothing else is held of what the parts are kept as


def _assigned(
    kind: str,
    amount: Amount,
    held: Sequence[Use],
    views: LocatedViews,
    keys: Collection[Key],
    cells: Mapping[str, ChosenCells],
) -> _Assigned | None:
    """Return where an amount is, None if it is nowhere or nobody can tell where.

    :param cells: by host, the host cells of what the consumer holds there
    """
    ways: list[_Assigned] = []
    for root in views.trees(kind):
        located = views.of_tree(root, kind)
        assert located is not None, "trees() tells those that have some"
        spots = {spot.uuid for spot in located.spots}
        here = [one for one in held if one.provider_uuid in spots and one.key in keys]
        assigned = _placed(located, amount, here, cells.get(located.host)) if here else None
        if assigned is not None:
            rest = list(_less(held, located.deltas(-assigned)))
            is_alone = not any(one.key in keys and one.provider_uuid in spots for one in rest)
            near = near_to({kind: assigned}, {kind: located})
            ways.append(_Assigned(located.host, assigned, near, rest, is_alone))
    alone = [way for way in ways if way.is_alone] or ways
    return alone[0] if len(alone) == 1 else None


def _placed(
    located: LocatedView, amount: Amount, held: Sequence[Use], near: ChosenCells | None
) -> Amount | None:
    """Return where an amount is, near host cells if it is, None if nobody can tell where."""
    for cells in (None,) if near is None else (near, None):
        with contextlib.suppress(exceptions.ForeignAmount):
            return located.placed(amount, held, cells)
    return None


def _less(held: Iterable[Use], given: Iterable[Use]) -> Iterator[Use]:
    """Yield what is left of what is held once some of it is given back."""
    gone = {delta.key: delta for delta in given}
    for one in held:
        delta = gone.get(one.key)
        if delta is None:
            yield one
        elif one.amount + delta.amount:
            units = tuple(unit for unit in one.units if unit not in delta.units)
            yield dataclasses.replace(one, amount=one.amount + delta.amount, units=units)
