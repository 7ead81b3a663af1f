"""Assignment of placed amounts and named units, decided on rows that were just read.

Two things of a demand are decided on fresh rows before the demand is written:

* *placed amounts* (a NUMA topology, devices) of a whole tree. Assigned ones are checked against the
  tree; the others are assigned by the inventories, all of one host together;
* *named units*. A placed resource defines the units of each of its parts; these are allocated at
  the part, not at the host that it shares them with. Units of other providers have any name.

The result is a demand of uses alone, which requires the definitions that it was decided on.
:meth:`Assigner.assigned_amounts` is the way back, from the uses of a consumer to its amounts.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from resource_objects import exceptions
from resource_objects.ledger.context import LedgerContext, claim_of
from resource_objects.ledger.demand import Demand, Demands, providers_to_read
from resource_objects.providers.columns import Columns
from resource_objects.providers.composite import (
    LocatedView,
    LocatedViews,
    ShapeCache,
    chosen_cells,
    fit_together,
    in_dependency_order,
    located_amounts,
)
from resource_objects.providers.dry_run import held_in, in_place, with_taken, without_consumers
from resource_objects.providers.holders import (
    absent,
    held_by,
    holders_of,
    reasons_without_limits,
    with_holders,
)
from resource_objects.providers.orders import UNLIMITED, ConsumerRecord, Key, Use, UseLimits
from resource_objects.providers.tree_shape import free_removed_units
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, Amounts, Inventory, resource
from resource_objects.resources.context import ChosenCells
from resource_objects.resources.placed import (
    PlacedInventory,
    cell_map_of,
    dependent_units,
    unit_count,
)
from resource_objects.resources.records import InventoryRecord
from resource_objects.search.candidate import MOST_PARTS

#: The rules that the write checks again on locked rows, and refuses with the consumers.
_CHECKED_BY_THE_WRITE = (
    Rule.CAPACITY,
    Rule.LIMIT,
    Rule.MAX_UNIT,
    Rule.UNIT_TAKEN,
    Rule.USED_BELOW_ZERO,
    Rule.NO_INVENTORY,
)

#: The maximum number of units that an error names.
_SHOWN = 16


class Assigner:
    """Assigns the placed amounts and the named units of demands, on rows that it reads."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context
        self._shapes = ShapeCache()

    def read(self, keys: Collection[str], leaving: Collection[str] = ()) -> Columns:
        """Return the trees on which demands are to be assigned.

        The columns have allocations only if these are needed for the assignment.

        :param keys: of :func:`~resource_objects.ledger.demand.providers_to_read`
        :param leaving: the consumers that release their allocations in the same write
        """
        before = None if leaving else self._shapes.columns(keys)
        if before is not None:
            return self._context.backend.read_again(before, *keys)
        return self._context.backend.read(*keys)

    def assign(
        self,
        demands: Demands,
        columns: Columns,
        leaving: Collection[str] = (),
        limits: UseLimits = UNLIMITED,
        ignores_maintenance: bool = False,
    ) -> Demands:
        """Return demands that are completely assigned, so that all fit at once.

        A refusal is decided again on columns that have allocations, to name the consumers.

        :param demands: by consumer
        :param columns: what :meth:`read` returned for the demands
        :param leaving: the consumers that release their allocations in the same write. The new
            amounts of such a consumer are assigned where the released ones are, if possible
        :param limits: amounts are assigned within the limits if possible; else the write refuses
            the amounts that exceed one
        :param ignores_maintenance: whether disabled providers may be used where no other is free
        :raises CapacityException: with the consumers, the disabled providers and the limits
        :raises ForeignAmount: if an amount is assigned to parts that the host does not have
        :raises InvalidInput: for a placed amount of a provider that is no host; for units whose
            number is not the amount, or an incomplete set of dependent units
        :raises NotFound: for a name that is no unit of the class there; if a host was removed
        """
        try:
            return self._assign_on(demands, columns, leaving, limits, ignores_maintenance)
        except exceptions.CapacityException:
            if columns.cursor is not None:
                raise
        columns = self._context.backend.read(*providers_to_read(demands.values()))
        return self._assign_on(demands, columns, leaving, limits, ignores_maintenance)

    def _assign_on(
        self,
        demands: Demands,
        columns: Columns,
        leaving: Collection[str],
        limits: UseLimits,
        ignores_maintenance: bool,
    ) -> Demands:
        demands = {
            name: _with_units(demand, columns, name, name in leaving)
            for name, demand in demands.items()
        }
        if not any(demand.located for demand in demands.values()):
            return demands
        rows = _Rows(columns, demands, leaving)
        may_override = ignores_maintenance and bool(columns.disabled)
        # with limits or without, without disabled providers or with: the strictest bounds first
        bounds = [(limits, True), *([(limits, False)] if may_override else [])]
        if limits:
            bounds.append((UNLIMITED, not may_override))
        reasons: dict[Reason, None] = {}
        for limited, in_service in bounds[:-1]:
            try:
                return self._assignment(rows, limited, in_service).assign_all(demands)
            except exceptions.CapacityException as refusal:
                reasons |= dict.fromkeys(reasons_without_limits(refusal.reasons, rows.columns))
        assigned = self._assignment(rows, *bounds[-1]).assign_all(demands)
        if reasons and limits and not may_override:  # the write would report the limits alone
            exceeding = list(rows.exceeding(assigned.values(), limits))
            if exceeding:
                raise exceptions.CapacityException([*exceeding, *reasons])
        return assigned

    def _assignment(self, rows: _Rows, limits: UseLimits, in_service: bool) -> _Assignment:
        reserved = rows.reserved_by(limits) if limits else {}
        views = self._shapes.views(rows.columns, rows.removed._replace(by_limits=reserved))
        return _Assignment(rows, views, in_service)

    def with_units(self, demand: Demand, consumer: str) -> Demand:
        """Return a demand that requires the definitions of the parts whose units it names.

        The consumer has no allocations. Cost: a read of the trees if the demand names units that no
        search found. Errors are those of :meth:`assign`.
        """
        providers = dict.fromkeys(use.provider_uuid for use in demand.named_units())
        if not providers:
            return demand
        return _with_units(demand, self._context.backend.read(*providers), consumer, False)

    def retained(
        self, consumer: str, host: str, amounts: Mapping[str, Amount]
    ) -> Mapping[str, Amount]:
        """Return the amounts that a consumer has allocated of a host already, assigned.

        Cost: a read of the tree.
        """
        rows = _Rows(self._context.backend.read(host), {consumer: Demand(())}, [consumer])
        assignment = self._assignment(rows, UNLIMITED, in_service=False)
        views = {name: assignment.view(host, name, amount) for name, amount in amounts.items()}
        return assignment.retained(amounts, views, consumer)

    def assigned_amounts(self, record: ConsumerRecord) -> dict[str, Amounts]:
        """Return the allocations of a consumer by provider name, as they can be claimed again."""
        request = None if record.request is None else record.request.request
        placed = {} if request is None else located_amounts(request.unnamed.resources)
        if not placed:
            return claim_of(record).by_provider()
        providers = dict.fromkeys(use.provider_uuid for use in record.held)
        columns = self._context.backend.read(*providers, allocations=False)
        return _assigned_amounts(record, placed, LocatedViews(columns))


class _Rows:
    """The rows on which demands are assigned.

    ``columns`` are without the allocations of the leaving consumers, and with the counts of demands
    that have no placed amounts. ``released`` are allocations that a consumer may retain;
    ``removed`` the free units that were removed from the host, which a consumer that releases them
    may retain.
    """

    def __init__(self, columns: Columns, demands: Demands, leaving: Collection[str]) -> None:
        self.released = {name: tuple(held_in(columns, name)) for name in leaving if name in demands}
        self.removed = free_removed_units(columns)
        for name in leaving:
            remove = in_place if name in demands else without_consumers
            columns = remove(columns, name)
        plain = (demand for demand in demands.values() if not demand.located)
        self.columns = with_taken(columns, (use for demand in plain for use in demand.uses))

    def reserved_by(self, limits: UseLimits) -> dict[tuple[int, str], int]:
        """Return the part of the available capacity of each inventory that exceeds its limit."""
        uuids = self.columns.index.uuids
        table, reserved = self.columns.inventories, dict[tuple[int, str], int]()
        for number, name, capacity in zip(
            table.provider_id, table.resource_class, table.capacity, strict=True
        ):
            limit = limits.get((uuids[number], name))
            available = capacity - self.removed.amounts.get((number, name), 0)
            if limit is not None and limit < available:
                reserved[number, name] = available - limit
        return reserved

    def exceeding(self, demands: Iterable[Demand], limits: UseLimits) -> Iterator[Reason]:
        """Yield why assigned demands exceed limits, as a write would, with the consumers."""
        columns, index = self.columns, self.columns.index
        after = with_taken(columns, (use for demand in demands for use in demand.uses))
        rows = zip(*columns.inventories, strict=True)
        for (number, *figures), used in zip(rows, after.inventories.used, strict=True):
            record = InventoryRecord(*figures)
            name, amount = record.resource_class, used - record.used
            limit = limits.get((index.uuids[number], name))
            if limit is not None and amount > 0:
                provider = index.names[number]
                for reason in resource(name).refusals(
                    record, amount, provider, limit=limit, aggregate=True
                ):
                    yield held_by(reason, holders_of(columns, number, name).items())


# --- placed amounts -------------------------------------------------------------------------------


class _Assignment:
    """Assigns placed amounts in trees, one demand after the other."""

    def __init__(self, rows: _Rows, views: LocatedViews, in_service: bool) -> None:
        """:param in_service: whether disabled providers are excluded"""
        self._columns = rows.columns
        self._released = rows.released
        self._views = views
        self._shape = views.shape
        self._index = rows.columns.index
        self._disabled = rows.columns.disabled if in_service else {}

    def assign_all(self, demands: Demands) -> Demands:
        """Return demands assigned, one next to the other."""
        last = [name for name, demand in demands.items() if demand.located][-1]
        return {
            name: self._assign(demand, name, name == last) if demand.located else demand
            for name, demand in demands.items()
        }

    def _assign(self, demand: Demand, consumer: str, is_last: bool) -> Demand:
        uses, required = list(demand.uses), dict(demand.required)
        by_host: dict[str, dict[str, Amount]] = defaultdict(dict)
        for located in demand.located:
            by_host[located.provider][located.resource_class] = located.amount
        for host, amounts in by_host.items():
            views = {name: self.view(host, name, amount) for name, amount in amounts.items()}
            for name, view in views.items():
                self._check_not_counted_twice(name, view, demand)
            assigned = self._assign_at(host, amounts, views, demand, consumer, is_last)
            for name, amount in assigned.items():
                changes = views[name].deltas(amount)
                parts = {part.number: part.uuid for part in views[name].parts}
                check_units_free(changes, self._columns, parts, views[name].host)
                uses += changes
                required.update(views[name].shape.generations)
        return dataclasses.replace(
            demand, uses=tuple(uses), located=(), required=tuple(required.items())
        )

    def view(self, host: str, kind: str, amount: Amount) -> LocatedView:
        """Return the view over a host of which an amount is requested."""
        number = self._index.numbers.get(host)
        if number is None:
            raise exceptions.NotFound("provider", host)
        names, root = self._index.names, self._index.roots[number]
        if root != number:
            expected = f"a request to the host, {names[root]}: it is allocated of the whole tree"
            raise exceptions.InvalidInput("amount", f"{kind} of {names[number]}", amount, expected)
        view = self._views.of_tree(number, kind)
        if view is None:
            sign = -1 if amount.is_negative else 1
            raise exceptions.CapacityException([absent(kind, sign, names[number])])
        return view

    def _check_not_counted_twice(self, kind: str, view: LocatedView, demand: Demand) -> None:
        """Refuse counts of a part in the write that allocates the placed amount over it."""
        for use in demand.uses:
            position = view.shape.positions.get(use.provider_uuid)  # None: of another tree
            if position is not None and use.key in self._shape.keys[kind]:
                counted = f"{use.resource_class} of {view.parts[position].name}"
                expected = f"none next to {kind}, which allocates it"
                raise exceptions.InvalidInput("amount", counted, use.amount, expected)

    def _assign_at(
        self,
        host: str,
        amounts: Mapping[str, Amount],
        views: Mapping[str, LocatedView],
        demand: Demand,
        consumer: str,
        is_last: bool,
    ) -> dict[str, Amount]:
        """Return all amounts of one host assigned, and allocate them of the views.

        :param is_last: whether no demand follows that needs to know of the allocation
        """
        released = {name: amount for name, amount in amounts.items() if amount.is_negative}
        for name, amount in released.items():
            self._allocate(amount, views[name])
        requested = {name: amount for name, amount in amounts.items() if name not in released}
        if not requested:
            return released
        if demand.retained or any(
            cell_map_of(view.inventory) is not None for view in views.values()
        ):
            views = {**self._views.of_host(self._index.numbers[host]), **views}
        host_name = self._index.names[self._index.numbers[host]]
        retained = {  # amounts of other resources that the consumer has, near which these must be
            name: amount
            for name, amount in demand.retained.get(host_name, Amounts()).by_name()
            if name in views and name not in amounts and _is_allocated(amount, views[name])
        }
        if not all(amount.is_assigned for amount in requested.values()):
            assigned = self._fit(requested, views, retained, consumer)
            for name, amount in assigned.items() if not is_last else ():
                views[name].inventory.apply(amount)
            return {**released, **assigned}
        if len(requested) + len(retained) > 1:
            try:
                fit_together(requested, views, retained=retained)
            except exceptions.ForeignAmount:
                pass
            except exceptions.CapacityException as refusal:
                raise_before_write(refusal, views, self._columns, requested)
        for name, amount in requested.items():
            self._allocate(amount, views[name])
        return {**released, **requested}

    def _fit(
        self,
        amounts: Mapping[str, Amount],
        views: Mapping[str, LocatedView],
        retained: Mapping[str, Amount],
        consumer: str,
    ) -> dict[str, Amount]:
        """Return the assigned amounts; those that the consumer releases are reused if possible."""
        within = self._enabled_parts(amounts, views)
        for preferred, positions in self._preferences(amounts, views, consumer, within):
            with contextlib.suppress(exceptions.CapacityException):
                return fit_together(preferred, views, positions, retained=retained)
        parts = (part.number for name in within for part in views[name].parts)
        numbers = dict.fromkeys(number for part in parts for number in self._disabled_at(part))
        names, facts = self._index.names, self._disabled
        disabled = [
            Reason(Rule.DISABLED, 1, 0, 0, where=names[number], disabled=facts[number])
            for number in numbers
        ]
        if not all(within.values()):
            raise exceptions.CapacityException(disabled)
        try:
            return fit_together(amounts, views, within, retained=retained)
        except exceptions.CapacityException as refusal:
            requested = [views[name] for name in amounts]
            explained = with_holders(refusal, requested, self._columns, amounts, within)
            reasons = (*explained.reasons, *disabled)
            raise exceptions.CapacityException(reasons) from refusal

    def _preferences(
        self,
        amounts: Mapping[str, Amount],
        views: Mapping[str, LocatedView],
        consumer: str,
        enabled: Mapping[str, list[int]],
    ) -> Iterator[tuple[Mapping[str, Amount], Mapping[str, list[int]]]]:
        """Yield the attempts for a consumer that releases allocations: amounts, and parts to use.

        First all released amounts are reused, then all but the last, which depend on the others;
        then the amounts use the parts that the consumer uses, and one more part at a time.
        """
        if consumer not in self._released:
            return
        retained = list(self.retained(amounts, views, consumer).items())
        for count in range(len(retained), 0, -1):
            yield {**amounts, **dict(retained[:count])}, {}
        uuids = {use.provider_uuid for use in self._released[consumer]}
        used, unused = dict[str, list[int]](), dict[str, list[int]]()
        for name in amounts:
            parts = views[name].parts
            positions = range(len(parts))
            used[name] = [position for position in positions if parts[position].uuid in uuids]
            unused[name] = [n for n in enabled.get(name, positions) if n not in used[name]]
        if any(used.values()):
            for count in range(min(MOST_PARTS, max(map(len, unused.values())))):
                yield amounts, {name: used[name] + unused[name][:count] for name in amounts}

    def retained(
        self, amounts: Mapping[str, Amount], views: Mapping[str, LocatedView], consumer: str
    ) -> dict[str, Amount]:
        """Return the amounts that a consumer releases and could have again, assigned."""
        assigned = {name: amount for name, amount in amounts.items() if amount.is_assigned}
        retained: dict[str, Amount] = {}
        for name in in_dependency_order(amounts.keys() - assigned.keys(), views):
            near = chosen_cells({**assigned, **retained}, views)
            try:
                amount = views[name].assigned_amount(amounts[name], self._released[consumer], near)
                if views[name].inventory.can_provide(amount):
                    retained[name] = amount
            except exceptions.ForeignAmount:  # or a CPU of it is offline, or serves others
                continue
        return retained

    def _disabled_at(self, number: int) -> list[int]:
        """Return the numbers of the disabled providers among a provider and its ancestors."""
        return [n for n in self._index.ancestors(number) if n in self._disabled]

    def _enabled_parts(
        self, kinds: Iterable[str], views: Mapping[str, LocatedView]
    ) -> dict[str, list[int]]:
        """Return the positions of the enabled parts, of each view that has others."""
        enabled: dict[str, list[int]] = {}
        for name in kinds if self._disabled else ():
            parts = enumerate(views[name].parts)
            positions = [n for n, part in parts if not self._disabled_at(part.number)]
            if len(positions) < len(views[name].parts):
                enabled[name] = positions
        return enabled

    def _allocate(self, amount: Amount, view: LocatedView) -> None:
        """Allocate an assigned amount of a view.

        The write decides whether the amount is free, as it knows the consumers. Rules that the
        write does not check, such as memory that is allocated once, are decided here.
        """
        try:
            view.inventory.consume(amount)
        except exceptions.ForeignAmount:  # a part may have changed since the amount was allocated
            return
        except exceptions.CapacityException as refusal:
            name = view.shape.resource.name
            raise_before_write(refusal, {name: view}, self._columns, {name: amount})


def raise_before_write(
    refusal: exceptions.CapacityException,
    views: Mapping[str, LocatedView],
    columns: Columns,
    amounts: Mapping[str, Amount],
) -> None:
    """Raise a refusal with the consumers, unless the write will refuse the same amounts."""
    if any(reason.rule not in _CHECKED_BY_THE_WRITE for reason in refusal.reasons):
        raise with_holders(refusal, [views[n] for n in amounts], columns, amounts) from refusal


def check_units_free(
    uses: Iterable[Use], columns: Columns, parts: Mapping[int, str], host: str
) -> None:
    """Refuse a unit that is still allocated as a unit of another part, which it was before.

    :param parts: the uuids of the parts of a tree, by number
    """
    allocating = [use for use in uses if use.amount > 0 and use.units]
    named = {unit for use in allocating for unit in use.units}
    allocated = [row for row in zip(*columns.units, strict=True) if row[1] in named]
    reasons = [
        Reason(
            Rule.UNIT_TAKEN,
            requested=use.amount,
            bound=0,
            used=1,
            resource=use.resource_class,
            where=host,
            holders=((consumer, 1),),
            unit=unit,
        )
        for use in allocating
        for number, unit, _, consumer in allocated
        if unit in use.units and parts.get(number, use.provider_uuid) != use.provider_uuid
    ]
    if reasons:
        raise exceptions.CapacityException(reasons)


def _is_allocated(amount: Amount, view: LocatedView) -> bool:
    """Return True if an amount is still allocated as it was read; else the write is refused."""
    try:
        view.inventory.fit(-amount)
    except (exceptions.CapacityException, exceptions.InvalidInput):
        return False
    return True


# --- named units ----------------------------------------------------------------------------------


def _with_units(demand: Demand, columns: Columns, consumer: str, is_leaving: bool) -> Demand:
    """Return a demand that requires the definitions of the parts whose units it names.

    A consumer may name any unit that it has there already. A unit that others depend on (a physical
    function, with its virtual functions) is allocated with all of them.

    :param is_leaving: whether the consumer releases its allocations
    """
    named = {use.key for use in demand.named_units()}
    if not named:
        return demand
    units = _PartUnits(columns, consumer, is_leaving)
    providers = columns.providers
    generations = dict(zip(providers.uuid, providers.generation, strict=True))
    required, uses = dict(demand.required), list[Use]()
    for use in demand.uses:
        if use.key in named and units.is_identified(use):
            required[use.provider_uuid] = generations[use.provider_uuid]
            use = units.with_dependent_units(use)
        uses.append(use)
    return dataclasses.replace(demand, uses=tuple(uses), required=tuple(required.items()))


class _PartUnits:
    """The named units of the parts of some trees, for one consumer."""

    def __init__(self, columns: Columns, consumer: str, is_leaving: bool) -> None:
        self._columns = columns
        self._index = columns.index
        self._consumer = consumer
        self._is_leaving = is_leaving
        #: the structured inventories, by each class in which they are counted
        self._inventories: dict[tuple[int, str], Inventory] = {}
        for number, kind, classes, _ in zip(*columns.kinds, strict=True):
            inventory = columns.index.inventories_of(number)[kind]
            self._inventories.update(dict.fromkeys([(number, name) for name in classes], inventory))
        #: the units of the inventories that name their units
        self._units = {
            key: units
            for key, inventory in self._inventories.items()
            if isinstance(inventory, PlacedInventory)
            and (units := inventory.units(key[1])) is not None
        }

    def _key(self, use: Use) -> tuple[int, str]:
        return self._index.numbers[use.provider_uuid], use.resource_class

    def is_identified(self, use: Use) -> bool:
        """Return True for a use of a part with named units, or of an inventory that one shares."""
        if use.provider_uuid not in self._index.numbers:
            return False  # the write reports that it was removed
        key, shares = self._key(use), zip(*self._columns.shares, strict=True)
        return key in self._units or any(
            (of, of_class) == key and (part, name) in self._units
            for part, name, of, of_class, _ in shares
        )

    def with_dependent_units(self, use: Use) -> Use:
        """Return a use after all checks, with the units that depend on the named ones.

        :raises InvalidInput: if it names some of the dependent units and not all
        """
        key, units = self._key(use), set(use.units)
        inventory = self._inventories.get(key)
        dependent = {} if inventory is None else dependent_units(inventory, use.resource_class)
        for unit, dependents in dependent.items():
            if not units.isdisjoint(dependents) and not {unit, *dependents} <= units:
                expected = f"{unit} individually, or with all dependent units: {_shown(dependents)}"
                raise exceptions.InvalidInput(
                    "amount", f"units of {use.resource_class}", use.units, expected
                )
            if unit in units:
                units |= dependents
        if dependent:
            use = dataclasses.replace(use, units=tuple(sorted(units)))
        allocated = {
            unit
            for number, unit, name, consumer in zip(*self._columns.units, strict=True)
            if (number, name, consumer) == (*key, self._consumer)
        }
        new = tuple(unit for unit in use.units if unit not in allocated)
        if new:
            self._check(use, key, new, frozenset().union(*dependent.values()))
        return use

    def _check(
        self, use: Use, key: tuple[int, str], new: tuple[str, ...], dependent: Collection[str]
    ) -> None:
        """Raise unless new units can be allocated."""
        index, number = self._index, key[0]
        inventory_name, units = f"{key[1]} at {index.names[number]}", self._units.get(key)
        if units is None:
            hint = f"{inventory_name} has no units of its own: name those of the providers below"
            raise exceptions.NotFound("unit", new[0], hint)
        for unit in new:
            if unit not in units and unit not in dependent:
                raise exceptions.NotFound("unit", unit, f"{inventory_name} has {_shown(units)}")
        inventory, count = self._inventories.get(key), len(use.units)
        if inventory is not None:
            count = unit_count(inventory, use.resource_class, use.units)
        if count != use.amount:
            expected = f"{use.amount}, as many as the amount"
            raise exceptions.InvalidInput(
                "amount", f"units of {inventory_name}", use.units, expected
            )
        tree = index.subtree(index.roots[number])
        with_units = {part for part, _ in self._units}
        parts = {part: index.uuids[part] for part in tree if part in with_units}
        columns = self._columns
        if self._is_leaving:
            columns = without_consumers(columns, self._consumer)
        named = [dataclasses.replace(use, units=new)]
        check_units_free(named, columns, parts, index.names[number])


def _shown(units: Collection[str]) -> str:
    """Return the names of units, at most 16 of them, shorter ones first."""
    ordered = sorted(units, key=lambda unit: (len(unit), unit))
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f"{', '.join(ordered[:_SHOWN])}{more}" if ordered else "none"


# --- from uses to assigned amounts ----------------------------------------------------------------


def _assigned_amounts(
    record: ConsumerRecord, placed: Mapping[str, Amount], views: LocatedViews
) -> dict[str, Amounts]:
    """Return the allocations of a consumer by provider; a placed amount is that of its host.

    A placed amount is recognized by the request. If it could be at several hosts, the allocations
    of its parts are returned in its place.

    :param placed: the placed amounts of the request
    :param views: over the trees of the providers of the allocations
    """
    uses = list(record.held)
    amounts: dict[str, Amounts] = {}
    cells: dict[str, ChosenCells] = {}
    for kind in sorted(placed, key=lambda name: not _has_cells(name, views)):
        options = list(_assignments(kind, placed[kind], uses, views, cells))
        complete = [option for option in options if option.is_complete] or options
        if len(complete) == 1:
            view, amount, uses, _ = complete[0]
            amounts[view.host] = amounts.get(view.host, Amounts()) + Amounts({kind: amount})
            chosen = chosen_cells({kind: amount}, {kind: view})
            if chosen is not None:
                cells[view.host] = chosen
    remaining = claim_of(dataclasses.replace(record, held=tuple(uses))).by_provider()
    for name, plain in remaining.items():
        amounts[name] = amounts[name] + plain if name in amounts else plain
    return amounts


def _has_cells(kind: str, views: LocatedViews) -> bool:
    """Return True if a resource has host cells, which other resources may be near."""
    trees = (views.of_tree(root, kind) for root in views.trees(kind))
    return any(view is not None and cell_map_of(view.inventory) is not None for view in trees)


class _Option(NamedTuple):
    """A tree in which an amount may be allocated."""

    view: LocatedView
    amount: Amount  #: assigned
    remaining: list[Use]  #: the other uses of the consumer
    is_complete: bool  #: whether the amount is all that the consumer uses of the parts


def _assignments(
    kind: str,
    amount: Amount,
    uses: Sequence[Use],
    views: LocatedViews,
    cells: Mapping[str, ChosenCells],
) -> Iterator[_Option]:
    """Yield each tree in which a consumer may have an amount allocated.

    :param cells: by host, the host cells that the consumer uses
    """
    keys = views.shape.keys[kind]
    for root in views.trees(kind):
        view = views.of_tree(root, kind)
        assert view is not None, "the tree has parts"
        positions = view.shape.positions
        here = [use for use in uses if use.provider_uuid in positions and use.key in keys]
        near = cells.get(view.host)
        attempts = [None] if near is None else [near, None]
        for chosen in attempts if here else []:
            with contextlib.suppress(exceptions.ForeignAmount):
                assigned = view.assigned_amount(amount, here, chosen)
                # a release may be of units that cannot be allocated any more
                remaining = list(_after(uses, view.deltas(-assigned)))
                is_complete = not any(
                    use.key in keys and use.provider_uuid in positions for use in remaining
                )
                yield _Option(view, assigned, remaining, is_complete)
                break


def _after(uses: Iterable[Use], releases: Iterable[Use]) -> Iterator[Use]:
    """Yield the remainder of uses after releases, which have negative amounts."""
    released: Mapping[Key, Use] = {release.key: release for release in releases}
    for use in uses:
        release = released.get(use.key)
        if release is None:
            yield use
        elif use.amount + release.amount:
            units = tuple(unit for unit in use.units if unit not in release.units)
            yield dataclasses.replace(use, amount=use.amount + release.amount, units=units)
