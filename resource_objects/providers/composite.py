"""Views: the inventory of a placed resource, assembled from its parts in a provider tree.

A placed resource, such as a NUMA topology, stores each of its parts (a cell) at a provider of its
own. A view is the inventory over all parts of one tree. It assigns amounts, and converts assigned
amounts to allocations at the providers of the parts and back. The packages above use this module
for every placed resource and name none.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from resource_objects import exceptions, fields
from resource_objects.providers.allocation import Allocation
from resource_objects.providers.columns import AllocationColumns, Columns, UnitColumns
from resource_objects.providers.orders import Use
from resource_objects.providers.tree_shape import (
    NO_EXCLUSIONS,
    Exclusions,
    Part,
    ResourceParts,
    TreeShape,
    TreeUsage,
)
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import Amount, Amounts, Inventory, placed, resource
from resource_objects.resources.context import ChosenCells, Context
from resource_objects.resources.placed import HasAffinity, HasNamedUnits, PlacedInventory
from resource_objects.resources.records import AmountRecord


def located_amounts(amounts: Amounts) -> dict[str, Amount]:
    """Return the amounts of placed resources."""
    return {kind.name: amount for kind, amount in amounts.items() if kind.is_placed}


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LocatedView:
    """The inventory of a placed resource over one tree, with the provider of each part."""

    inventory: PlacedInventory[Amount]
    shape: ResourceParts

    @property
    def host(self) -> str:
        """The name of the root."""
        return self.shape.host

    @property
    def parts(self) -> tuple[Part, ...]:
        """The provider of each part, in the order of ``inventory.parts()``."""
        return self.shape.parts

    def part_of(self, reason: Reason) -> Part | None:
        """Return the provider of the part that a reason is about, None for the whole host."""
        ids = self.inventory.part_ids()
        return self.parts[ids.index(reason.cell)] if reason.cell in ids else None

    def is_about(self, reason: Reason) -> bool:
        """Return True if a reason may be about this resource, not another one of the tree."""
        return reason.resource == self.shape.resource.name or reason.resource in self.shape.classes

    def blocking_units(
        self, amount: Amount, reason: Reason, within: Collection[int] | None = None
    ) -> dict[Part, Mapping[str, frozenset[str]]]:
        """Return the unavailable units that a refused amount would need, by provider.

        Each unit comes with the allocated or removed units that block it.

        :param within: positions of the parts that may be used, None for all
        """
        if not isinstance(self.inventory, HasNamedUnits) or not self.is_about(reason):
            return {}
        return {
            self.parts[position]: units
            for position, units in self.inventory.blocking_units(amount, reason).items()
            if within is None or position in within
        }

    def records(self, assigned: Amount) -> Iterator[tuple[Part, AmountRecord]]:
        """Yield the amounts that an assigned amount uses of each provider; negative to release."""
        for position, records in self.inventory.to_allocations(assigned):
            for record in records:
                yield self.parts[position], record

    def deltas(self, assigned: Amount) -> tuple[Use, ...]:
        """Return the changes of usage that an assigned amount makes in a ledger."""
        return tuple(
            Use(part.uuid, record.resource_class, record.amount, record.units)
            for part, record in self.records(assigned)
        )

    def allocations(self, assigned: Amount) -> tuple[Allocation, ...]:
        """Return an assigned amount as allocations."""
        return tuple(
            Allocation(
                provider=part.name,
                provider_uuid=part.uuid,
                resource_class=record.resource_class,
                amount=resource(record.resource_class).make_amount(record.amount),
                units=record.units,
            )
            for part, record in self.records(assigned)
        )

    def assigned_amount(
        self, amount: Amount, uses: Iterable[Use], near: ChosenCells | None = None
    ) -> Amount:
        """Return the assigned amount that is stored as ``uses`` of the parts here.

        :param near: the host cells, and those that the consumer uses for another resource
        :raises ForeignAmount: if ``amount`` cannot be stored so
        """
        positions = self.shape.positions
        records: dict[int, list[AmountRecord]] = defaultdict(list)
        for use in uses:
            if use.provider_uuid in positions:
                record = AmountRecord(use.resource_class, use.amount, use.units)
                records[positions[use.provider_uuid]].append(record)
        return self.inventory.from_allocations(amount, records, Context(chosen=near))


class LocatedViews:
    """The views over every tree of some columns, each assembled when it is first needed.

    The same view is returned every time, so an amount that one caller allocates of its inventory is
    allocated for the next one. Cost: a pass over the rows for the first view, then that of
    assembling each view.
    """

    def __init__(
        self,
        columns: Columns,
        exclusions: Exclusions = NO_EXCLUSIONS,
        shape: TreeShape | None = None,
    ) -> None:
        """:param shape: that of the same definition, with the inventories that it caches; None:
        computed from the columns, and nothing is cached
        """
        self.shape = shape or TreeShape(columns)
        self._is_cached = shape is not None and not any(exclusions)
        self._exclusions = exclusions
        self._usage = TreeUsage(columns)
        self._views: dict[tuple[int, str], LocatedView] = {}

    def __bool__(self) -> bool:
        return bool(self.shape.parts)

    def of_tree(self, root: int, kind: str) -> LocatedView | None:
        """Return the view of a resource over the tree of a root, None if the tree has no part.

        :param root: the backend's number of the root, as in the columns
        :raises InvalidInventory: if the stored parts contradict each other
        """
        key = root, kind
        if key not in self._views and key in self.shape.parts:
            parts = self.shape.resource_parts(root, kind)
            inventory = parts.copy(self._usage) if self._is_cached else None
            if inventory is None:
                inventory = parts.inventory(self._usage, self._exclusions)
            self._views[key] = LocatedView(inventory, parts)
        return self._views.get(key)

    def excluding(self, root: int, kind: str, exclusions: Exclusions) -> LocatedView:
        """Return a new view over a tree that has parts, in which less can be allocated.

        :param exclusions: those that apply, in place of the exclusions of all views
        """
        parts = self.shape.resource_parts(root, kind)
        return LocatedView(parts.inventory(self._usage, exclusions), parts)

    def trees(self, kind: str) -> list[int]:
        """Return the numbers of the roots whose trees have parts of a resource."""
        return [root for root, name in self.shape.parts if name == kind]

    def kinds(self) -> set[str]:
        """Return the placed resources of all trees."""
        return {kind for _, kind in self.shape.parts}

    def of_host(self, root: int) -> dict[str, LocatedView]:
        """Return the views over the tree of a root, without parts that contradict each other."""
        views: dict[str, LocatedView] = {}
        for kind in sorted(self.kinds()):
            try:
                view = self.of_tree(root, kind)
            except exceptions.InvalidInventory:
                continue
            if view is not None:
                views[kind] = view
        return views


class ShapeCache:
    """The shapes of the trees that were read last, each valid until its definition changes.

    Threads may share it: a shape is added and removed as a whole.
    """

    #: The maximum number of providers of all shapes, which need 2 to 3 KB each.
    MOST = 8192

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], TreeShape] = {}
        self._count = 0

    def columns(self, keys: Iterable[str]) -> Columns | None:
        """Return the definition of some trees as it was read last, None if it is not cached.

        :param keys: uuids of their roots
        """
        shape = self._shapes.get(tuple(sorted(keys)))
        return None if shape is None else shape.columns

    def views(self, columns: Columns, exclusions: Exclusions = NO_EXCLUSIONS) -> LocatedViews:
        """Return the views over the trees of some columns."""
        providers = columns.providers
        pairs = zip(providers.uuid, providers.parent_id, strict=True)
        key = tuple(sorted([uuid for uuid, parent in pairs if parent is None]))
        shape = self._shapes.get(key)
        if shape is None or not shape.defines(columns):
            if shape is None:
                self._count += len(providers.uuid)
            if self._count > self.MOST:
                self._shapes, self._count = {}, len(providers.uuid)
            definition = dataclasses.replace(
                columns, allocations=AllocationColumns(), units=UnitColumns(), cursor=None, now=None
            )
            shape = self._shapes[key] = TreeShape(definition)
        return LocatedViews(columns, exclusions, shape)


# --- several resources at once: cells, and devices near them --------------------------------------
#
# ``resources.placed`` makes the decision, for the search, for claims and for inventories without a
# ledger. Here views are converted to its arguments.


def fit_together(
    amounts: Mapping[str, Amount],
    views: Mapping[str, LocatedView],
    within: Mapping[str, Collection[int]] = fields.FrozenDict(),
    retained: Mapping[str, Amount] = fields.FrozenDict(),
) -> dict[str, Amount]:
    """Return the assigned amounts that are feasible at the same time. The views do not change.

    :param amounts: by resource; each has a view
    :param views: all resources of the tree: those that are not requested are left to others
    :param within: by resource, positions of the parts that may be used; absent for all
    :param retained: assigned amounts of other resources that the consumer has in the tree: the
        requested amounts have to be near these
    :raises CapacityException: with reasons that name the host
    :raises ForeignAmount: if an amount is assigned to parts that do not exist here
    :raises SearchLimitReached: if the budget was exhausted before the result was known
    """
    inventories: dict[str, Inventory] = {name: view.inventory for name, view in views.items()}
    for name, amount in retained.items():
        inventories[name] = inventories[name].without_allocation(amount)
    ids: dict[str, list[int]] = {}
    for name, positions in within.items():
        part_ids = views[name].inventory.part_ids()
        ids[name] = [part_ids[position] for position in sorted(positions)]
    requested = {**amounts, **retained}
    try:
        assigned = placed.fit_together(requested, inventories, within=ids)
    except exceptions.CapacityException as refusal:
        more = _affinity_reasons(requested, inventories, ids, refusal)
        host = views[next(iter(amounts))].host
        raise exceptions.CapacityException(
            dataclasses.replace(reason, where=reason.where or host)
            for reason in (*refusal.reasons, *more)
        ) from refusal
    for name, positions in within.items():  # the caller may have assigned an amount itself
        view = views[name]
        used = {position for position, _ in view.inventory.to_allocations(assigned[name])}
        if not used.issubset(positions):
            reason = Reason(
                Rule.HOST_CELLS, len(used), len(used.intersection(positions)), 0, name, view.host
            )
            raise exceptions.CapacityException([reason])
    return {name: assigned[name] for name in amounts}


def _affinity_reasons(
    amounts: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    within: Mapping[str, Collection[int]],
    refusal: exceptions.CapacityException,
) -> Iterator[Reason]:
    """Yield why no host cell that all amounts are near has capacity, if affinity was refused.

    Each amount is feasible individually, but the cells near enough may be allocated to others. One
    guest cell on such a host cell is enough, so their number is no reason.
    """
    maps = {name: placed.cell_map_of(inventories[name]) for name in amounts}
    base = next((name for name in maps if maps[name] is not None), None)
    if base is None or amounts[base].is_assigned:
        return
    if any(reason.rule is not Rule.AFFINITY for reason in refusal.reasons):
        return
    cells = maps[base]
    assert cells is not None, "the base has cells"
    constraints = [
        constraint
        for name, amount in amounts.items()
        if name != base
        and isinstance(inventory := inventories[name], HasAffinity)
        and (constraint := inventory.affinity(amount, cells, within.get(name))) is not None
    ]
    allowed = within.get(base, cells.sockets)
    try:
        near = [
            cell
            for cell in cells.sockets
            if cell in allowed and all(constraint.is_met([cell]) for constraint in constraints)
        ]
        if near:
            inventories[base].fit(amounts[base], None, Context(allowed=near))
    except exceptions.CapacityException as more:
        of_all = (Rule.HOST_CELLS, Rule.TOGETHER)
        yield from (reason for reason in more.reasons if reason.rule not in of_all)
    except exceptions.SearchLimitReached:
        return


def chosen_cells(
    amounts: Mapping[str, Amount], views: Mapping[str, LocatedView]
) -> ChosenCells | None:
    """Return the host cells of the first assigned amount that has cells, None without one."""
    for name, amount in amounts.items():
        cells = placed.cell_map_of(views[name].inventory) if name in views else None
        if cells is not None and amount.is_assigned:
            return ChosenCells(cells, amount.host_cells)
    return None


def in_dependency_order(kinds: Iterable[str], views: Mapping[str, LocatedView]) -> list[str]:
    """Return resources with host cells first: the others may have to be near these."""
    return sorted(
        kinds,
        key=lambda name: name not in views or placed.cell_map_of(views[name].inventory) is None,
    )
