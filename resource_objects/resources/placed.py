"""Placed resources: inventories over a tree of providers, and the joint decision over several.

An amount of a placed resource (a NUMA topology, devices) is allocated to specific cells, CPUs or
devices. Storage, search and explanation use the classes below and name no kind. A kind
inherits those that apply, before :class:`~resource_objects.resources.abstract.Inventory`:

========================  ====================================================================
:class:`PlacedInventory`  each part of it (a NUMA cell, a device) is stored at its own provider
:class:`HasAffinity`      it has host cells, or its units have to be near some
:class:`HasNamedUnits`    its units have an identity (devices)
========================  ====================================================================

:class:`PlacedResource` is the resource of such a kind; :func:`fit_together` decides several
amounts of one place.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from resource_objects import fields
from resource_objects.exceptions import (
    CapacityException,
    InvalidInput,
    InvalidInventory,
    SearchLimitReached,
)
from resource_objects.reasons import Reason, Rule
from resource_objects.resources.abstract import Amount, Inventory, Resource, on_class_or_instance
from resource_objects.resources.amounts import no_inventory
from resource_objects.resources.catalog import resource
from resource_objects.resources.context import (
    ANYWHERE,
    IN_PART,
    AffinityConstraint,
    CellMap,
    ChosenCells,
    Context,
)
from resource_objects.resources.integer import IntegerAmount, IntegerInventory
from resource_objects.resources.records import (
    AmountRecord,
    InventoryPart,
    InventoryRecord,
    StoredPart,
)

# At run time these classes are bases next to Inventory and Resource, so that no kind is deeper than
# any other. Type checkers see them as inventories and resources.
if TYPE_CHECKING:
    _Kind = Inventory
    _KindOfResource = Resource
else:
    _Kind = _KindOfResource = abc.ABC

_A = TypeVar("_A", bound=Amount)
_I = TypeVar("_I", bound=Inventory)
_NOTHING: Any = fields.FrozenDict()


class PlacedInventory(_Kind, Generic[_A]):
    """An inventory whose parts are stored at providers of their own.

    The host's counts include what is allocated of the parts. In
    :class:`~resource_objects.resources.Inventories` a placed inventory is therefore linked to the
    counts next to it, and :meth:`fit` and :meth:`apply` decide and change both together
    (:attr:`Amount.net_host_usage`). A kind implements :meth:`_fit` and :meth:`_apply` without them.

    ``taken`` is a journal: if it is set to (), :meth:`apply` records in it the net allocations, as
    assigned amounts. It is not the ``taken`` of :meth:`HasNamedUnits.select_units`, names of units.

    A part has an index among :meth:`parts`, and an id (:meth:`part_ids`), which reasons (``cell``)
    and :attr:`Context.allowed` refer to.
    """

    #: The linked inventories of the same place, by class. A copy has none.
    _counts: Mapping[str, Inventory] = {}
    #: The net allocations since the journal was started, None if there is no journal.
    taken: tuple[Any, ...] | None

    @abc.abstractmethod
    def _fit(self, amount: Amount, limit: Amount | None, context: Context) -> _A:
        """Return the assigned amount; ``context.room`` has the host's free counts."""

    @abc.abstractmethod
    def _apply(self, assigned: Amount) -> None:
        """Add an assigned amount to the usage of this inventory."""

    def link_counts(self, counts: Mapping[str, Inventory]) -> None:
        """Link these inventories of the same place, by class, and unlink all others."""
        object.__setattr__(self, "_counts", counts)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without links; ``Inventories`` restores them."""
        return {**super().__getstate__(), "_counts": {}}

    if TYPE_CHECKING:

        def consume(
            self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
        ) -> _A: ...

    def fit(self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE) -> _A:
        if not self._counts or not isinstance(amount, Amount):
            return self._fit(amount, limit, context)
        # Separately counted amounts may be consumed already: their share is available here.
        requested = amount.requested_host_usage if amount.counted_separately else _NOTHING
        separate = {name: requested.get(name, 0) for name in amount.counted_separately}
        if not amount.is_negative:
            room = dict(context.room)
            for name in amount.placed_counts:
                count = self._counts.get(name)
                if isinstance(count, IntegerInventory):
                    free = count.free + separate.get(name, 0)
                    room[name] = min(free, room.get(name, free))
            context = dataclasses.replace(context, room=room)
        try:
            assigned = self._fit(amount, limit, context)
        except CapacityException as refusal:
            raise CapacityException(
                [self._with_host_figures(reason, separate) for reason in refusal.reasons]
            ) from refusal
        for count, usage in self._linked_usage(assigned):
            count.fit(usage, None, IN_PART)
        return assigned

    def apply(self, assigned: Amount) -> None:
        self._apply(assigned)
        for count, usage in self._linked_usage(assigned):
            count.apply(usage)
        self.record_allocation(assigned)

    def _linked_usage(self, assigned: Amount) -> Iterator[tuple[Inventory, IntegerAmount]]:
        """Yield each linked count with the amount that it changes by."""
        for name, usage in assigned.net_host_usage.items() if self._counts else ():
            count = self._counts.get(name)
            if isinstance(count, IntegerInventory):
                yield count, IntegerAmount(usage)

    def _with_host_figures(self, reason: Reason, separate: Mapping[str, int]) -> Reason:
        """Return a reason about the host's room with the total and usage of the linked count."""
        name = reason.resource or ""
        count = self._counts.get(name)
        is_room = reason.rule is Rule.CAPACITY and reason.cell is None and reason.used == 0
        if not is_room or not isinstance(count, IntegerInventory):
            return reason
        if reason.bound not in (count.free, count.free + separate.get(name, 0)):
            return reason  # a limit was tighter
        return dataclasses.replace(reason, bound=count.capacity, used=count.capacity - reason.bound)

    def record_allocation(self, assigned: Any) -> None:
        """Record an allocation or release in the journal, if there is one, without any usage.

        An allocation and its release cancel each other.
        """
        if self.taken is None:
            return
        for index, entry in enumerate(self.taken):
            is_opposite = entry.is_negative != assigned.is_negative
            if (  # the placements are compared first, because it is cheaper
                is_opposite
                and entry.placed == assigned.placed
                and -entry.counting_separately(()) == assigned.counting_separately(())
            ):
                self._store("taken", (*self.taken[:index], *self.taken[index + 1 :]))
                return
        self._store("taken", self._recorded_in_part(self.taken, assigned))

    def _recorded_in_part(self, taken: tuple[Any, ...], assigned: Any) -> tuple[Any, ...]:
        """Return the journal with an amount that cancels no entry completely."""
        return (*taken, assigned)

    def merged(self, several: Sequence[Amount]) -> Amount | None:
        """Return one assigned amount in place of several, None if there is no such amount."""
        return several[0] if len(several) == 1 else None

    # --- storage ---

    @abc.abstractmethod
    def parts(self) -> tuple[InventoryPart, ...]:
        """Return the part of each provider below.

        :meth:`~.abstract.Resource.inventory_from_parts` is the inverse.
        """

    @abc.abstractmethod
    def part_ids(self) -> tuple[int, ...]:
        """Return the ids of the parts, in the order of :meth:`parts`."""

    @abc.abstractmethod
    def to_allocations(self, assigned: Amount) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return the records of an assigned amount with the index of their part.

        :raises InvalidInput: for an amount that is not assigned
        :raises ForeignAmount: if it is assigned to units that this inventory lacks
        """

    @abc.abstractmethod
    def from_allocations(
        self,
        amount: Amount,
        allocations: Mapping[int, Sequence[AmountRecord]],
        context: Context = ANYWHERE,
    ) -> Amount:
        """Return the assigned amount of stored allocations.

        :param allocations: the consumer's records, by the index of their part
        :param context: with the consumer's host cells (``chosen``)
        :raises ForeignAmount: if ``amount`` cannot have these allocations
        """

    @abc.abstractmethod
    def in_use(self) -> tuple[tuple[str, tuple[AmountRecord, ...]], ...]:
        """Return the usage of each part as allocations, by the part's name.

        A unit with a name (a dedicated CPU, a device) has a record of its own.
        """

    def with_use(
        self, before: Sequence[StoredPart], parts: Sequence[StoredPart], room: Mapping[str, int]
    ) -> Self | None:
        """Return the inventory of stored parts whose usage differs from those of this inventory.

        The result is that of :meth:`~.abstract.Resource.inventory_from_parts`, at the cost of the
        changed parts; None if all parts have to be read again. This inventory, which must be
        unchanged since it was read, stays unchanged.

        :param before: the parts that this inventory was made of
        :param parts: the same parts now; the identical object where nothing changed
        :param room: the host's free counts of the classes that it shares with its parts
        """
        return None

    @classmethod
    def from_storage(
        cls,
        parts: Sequence[StoredPart],
        resource_class: str,
        room: Mapping[str, int] | None = None,
        *,
        has_allocations: bool = True,
    ) -> Self:
        """Return the inventory of stored parts.

        :param room: the host's free counts of the classes that it shares with its parts
        :param has_allocations: whether the allocated units are known; if not, those that were
            removed from the host while allocated count as allocated
        :raises InvalidInventory: if a description is invalid, or contradicts its records
        """
        raise NotImplementedError(f"{cls.__name__} is not stored in parts")

    @classmethod
    def cell_of_description(cls, description: str) -> int | None:
        """Return the id of the host cell that a stored part is or is next to, None if unknown."""
        return None

    def summary(self) -> str:
        """Return a short text for people; nothing reads it back."""
        return str(self)

    def units(self, resource_class: str) -> frozenset[str] | None:
        """Return the names of the units of a class, none if it has none; None: no class has any."""
        return None

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        """Return names like those of a class's units that denote units of other classes here."""
        return frozenset()

    def identifying_units(self) -> frozenset[str]:
        """Return the units that identify this part if parts are numbered anew; none: its name does.

        Allocations follow these units to the part that has them.
        """
        return frozenset()

    def symmetry_key(self, place: int) -> Hashable | None:
        """Return a key that is equal for parts that differ in names and usage only, None if unique.

        :param place: the index of a part
        """
        return None


class HasAffinity(_Kind):
    """An inventory that has host cells, or whose units have to be near chosen host cells."""

    def cell_map(self) -> CellMap | None:
        """Return the host cells, None for an inventory without cells of its own."""
        return None

    def affinity(
        self, amount: Amount, cells: CellMap, allowed: Collection[int] | None = None
    ) -> AffinityConstraint | None:
        """Return the condition of an amount on the chosen host cells, None if any will do.

        :param allowed: ids of the parts that may be used, None for all
        """
        return None

    def device_counts(self) -> Mapping[int, int]:
        """Return the number of free devices by the id of their host cell."""
        return _NOTHING  # type: ignore[no-any-return]


class PartialRequest(NamedTuple):
    """A requested amount of some parts of an inventory, ``times`` times."""

    resource_class: str
    amount: Amount | int  #: a placed amount, or a count of units of the class
    parts: Collection[int]  #: ids of the parts that may provide it
    times: int


class HasNamedUnits(_Kind):
    """An inventory whose units have an identity (devices).

    A request for a count is allocated units by name. Several parts may share a count. An allocated
    unit stays at its part.
    """

    @abc.abstractmethod
    def unit_count(self, resource_class: str, units: Collection[str]) -> int:
        """Return the amount of a class in some units; dependent units do not count."""

    @abc.abstractmethod
    def dependent_units(self, resource_class: str) -> Mapping[str, frozenset[str]]:
        """Return the units that are allocated together with each unit of a class."""

    def is_requested(self, amount: Amount, unit: str) -> bool:
        """Return False if no request of an amount matches a unit or the unit that it depends on.

        Usage does not matter. A kind that does not know returns True.
        """
        return True

    def may_provide_all(self, requested: Iterable[PartialRequest]) -> bool:
        """Return False if these amounts cannot all be provided at once, on any host cells.

        A kind that does not know returns True.
        """
        return True

    @abc.abstractmethod
    def select_units(
        self, place: int, resource_class: str, count: int, taken: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Return free units of a part for a count, None if there are fewer free units.

        The result is () if a count of the class is not allocated by name.

        :param place: the index of the part
        :param taken: units that are going to be allocated to others
        """

    @abc.abstractmethod
    def blocking_units(
        self, amount: Amount, reason: Reason
    ) -> Mapping[int, Mapping[str, frozenset[str]]]:
        """Return the units that a refused amount needs and cannot have, by the index of their part.

        The value of a unit is the set of allocated units that block it: itself, or relatives.

        :param reason: a reason of the refusal, possibly one of another kind
        """

    @classmethod
    def removed_of_description(cls, description: str) -> Mapping[str, str]:
        """Return ``{unit: resource class}`` of the units that were removed while allocated."""
        return _NOTHING  # type: ignore[no-any-return]


class PlacedResource(_KindOfResource, Generic[_A, _I]):
    """A resource whose inventories are placed inventories.

    A kind declares the classes of its amounts and inventories, and ``requested``, the function that
    makes a requested amount.
    """

    is_placed = True
    amount_kind: ClassVar[type[Any]]
    inventory_kind: ClassVar[type[Any]]
    requested: ClassVar[Callable[..., Any]]
    part_kind: ClassVar[str]  #: the name of the class that inventories are made of

    @on_class_or_instance
    def make_amount(this: Any, /, *args: Any, **options: Any) -> _A:  # noqa: N805
        """Return the requested amount of the arguments that the kind's ``requested`` takes."""
        return this.requested(*args, **options)  # type: ignore[no-any-return]

    @on_class_or_instance
    def make_inventory(this: Any, /, *parts: Any, **figures: Any) -> _I:  # noqa: N805
        """Return an inventory of the arguments that its class takes; of none, an empty one."""
        figures.setdefault("resource_class", None if isinstance(this, type) else this.name)
        return this.inventory_kind(*parts, **figures)  # type: ignore[no-any-return]

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> _I:
        """Raise ``InvalidInventory``: a part without its description is unknown."""
        return self.inventory_from_storage(records, None)

    def inventory_from_storage(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> _I:
        """Return the inventory of one stored part whose allocated units are unknown.

        :raises InvalidInventory: if the description is invalid, or contradicts the records
        """
        return self.inventory_kind.from_storage(  # type: ignore[no-any-return]
            [StoredPart(tuple(records), description)], self.name, has_allocations=False
        )

    def inventory_from_parts(
        self, parts: Sequence[StoredPart], room: Mapping[str, int] | None = None
    ) -> _I:
        """Return the inventory of all stored parts.

        :raises InvalidInventory: if a description is invalid, or contradicts its records
        """
        return self.inventory_kind.from_storage(parts, self.name, room)  # type: ignore[no-any-return]

    def cell_of_part(self, description: str) -> int | None:
        """Return the id of the host cell that a stored part is or is next to, None if unknown."""
        return self.inventory_kind.cell_of_description(description)  # type: ignore[no-any-return]

    def parse_amount(self, text_form: str) -> _A:
        """Return the requested amount of a text."""
        return self.amount_kind.parse(text_form)  # type: ignore[no-any-return]

    def format_amount(self, amount: Amount) -> str:
        """Return the text of an amount; :meth:`parse_amount` reads that of a requested one.

        :raises InvalidInput: for an amount of another kind
        """
        if not isinstance(amount, self.amount_kind):
            kind = self.amount_kind.__name__
            raise InvalidInput("kind of amount", self.name, amount, f"a {kind}")
        return str(amount)

    def parse_inventory(self, text_form: str) -> _I:
        """Raise ``InvalidInput``: an inventory of a placed resource has no text form."""
        expected = f"one made of {self.part_kind} objects: it has no text form"
        raise InvalidInput("text", f"inventory of {self.name}", text_form, expected)

    def format_inventory(self, inventory: Inventory) -> str:
        """Return a summary of an inventory for people; it is not read back.

        :raises InvalidInventory: for an inventory of another kind
        """
        if not isinstance(inventory, self.inventory_kind):
            kind = self.inventory_kind.__name__
            raise InvalidInventory(f"inventory of {self.name}", inventory, f"a {kind}")
        return inventory.summary()  # type: ignore[no-any-return]


def cell_map_of(inventory: Inventory | None) -> CellMap | None:
    """Return the host cells of an inventory, None if it has none."""
    return inventory.cell_map() if isinstance(inventory, HasAffinity) else None


def parts_of(inventory: Inventory) -> tuple[InventoryPart, ...]:
    """Return the parts of an inventory, () if it is stored at one provider."""
    return inventory.parts() if isinstance(inventory, PlacedInventory) else ()


def has_named_units(resource_class: str) -> bool:
    """Return True if the inventories of a resource have units with an identity (devices)."""
    return issubclass(resource(resource_class).inventory_kind, HasNamedUnits)


def dependent_units(inventory: Inventory, resource_class: str) -> Mapping[str, frozenset[str]]:
    """Return :meth:`HasNamedUnits.dependent_units`, nothing if units are only counted."""
    if isinstance(inventory, HasNamedUnits):
        return inventory.dependent_units(resource_class)
    return _NOTHING  # type: ignore[no-any-return]


def unit_count(inventory: Inventory, resource_class: str, units: Collection[str]) -> int:
    """Return :meth:`HasNamedUnits.unit_count`, the number of units if units are only counted."""
    if isinstance(inventory, HasNamedUnits):
        return inventory.unit_count(resource_class, units)
    return len(units)


# --- several placed amounts at once ---------------------------------------------------------------


def fit_together(
    amounts: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    limits: Mapping[str, Amount] = _NOTHING,
    room: Mapping[str, int] = _NOTHING,
    within: Mapping[str, Collection[int]] = _NOTHING,
) -> dict[str, Amount]:
    """Return the assigned amounts of all placed amounts requested of one place. Nothing changes.

    The result is exact: the kind with host cells searches its placements, restricted by the
    affinity of every other kind (``Context.near``); then each kind with a constraint decides, given
    the chosen cells (``Context.chosen``). An assigned amount is checked, not placed again. If only
    cells are requested, those with the fewest free devices come first (``Context.spare``).

    :param amounts: placed amounts by resource class
    :param inventories: all inventories of the place, also of classes that are not requested
    :param limits: limits of this claim
    :param room: the free counts of the place as a whole, by class
    :param within: by resource class, ids of the parts that may be used; absent is all
    :raises ForeignAmount: if an amount is assigned to units that the place lacks
    :raises CapacityException: with the reasons of each amount that is refused individually, or, if
        all fit individually, with ``Rule.AFFINITY`` for the amounts that are too far from the cells
    :raises SearchLimitReached: if the budget ran out before the answer was known

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
    >>> host = NUMATopologyInventory([HostCell(0, dedicated=[0, 1]), HostCell(1, dedicated=[2, 3])])
    >>> requested = {"NUMA_TOPOLOGY": numa(dedicated=2)}
    >>> fit_together(requested, {"NUMA_TOPOLOGY": host})["NUMA_TOPOLOGY"].host_cells
    frozenset({0})
    >>> within = {"NUMA_TOPOLOGY": [1]}
    >>> assigned = fit_together(requested, {"NUMA_TOPOLOGY": host}, within=within)
    >>> assigned["NUMA_TOPOLOGY"].cpuset
    '2-3'
    """

    place = _Place(amounts, inventories, limits, room, within)
    base = place.kind_with_cells()
    if base is None:
        return place.fit_all()
    # 1. The constraints of the other amounts on the host cells.
    near = place.constraints(base)
    # 2. Host cells that satisfy all of these.
    try:
        on_cells = place.fit_cells(base, near.values())
    except CapacityException as refusal:
        raise CapacityException(_joint_reasons(place, base, near, refusal)) from refusal
    except SearchLimitReached:
        reasons = [reason for name in amounts for reason in _reasons(place.fit, name)]
        if reasons:  # an amount that is refused individually is refused in any case
            raise CapacityException(reasons) from None
        raise
    # 3. The other amounts, near the chosen cells.
    return place.fit_all(base, on_cells, near)


class _Place(NamedTuple):
    """The arguments of :func:`fit_together`."""

    amounts: Mapping[str, Amount]
    inventories: Mapping[str, Inventory]
    limits: Mapping[str, Amount]
    room: Mapping[str, int]
    within: Mapping[str, Collection[int]]

    def kind_with_cells(self) -> str | None:
        """Return the requested kind with host cells, None to decide each amount individually."""
        if not self.inventories.keys() >= self.amounts.keys():
            return None
        for name, amount in self.amounts.items():
            if not amount.is_negative and cell_map_of(self.inventories[name]) is not None:
                return name
        return None

    def constraints(self, base: str) -> dict[str, AffinityConstraint]:
        """Return the constraints of the other amounts on the cells of the base."""
        cells = self._cells(base)
        near: dict[str, AffinityConstraint] = {}
        for name, amount in self.amounts.items():
            inventory = self.inventories[name]
            if name != base and not amount.is_negative and isinstance(inventory, HasAffinity):
                constraint = inventory.affinity(amount, cells, self.within.get(name))
                if constraint is not None:
                    near[name] = constraint
        return near

    def fit(self, name: str, **binding: Any) -> Amount:
        amount, inventory = self.amounts[name], self.inventories.get(name)
        if inventory is None:
            raise CapacityException([no_inventory(name, amount)])
        room = {key: self.room[key] for key in amount.placed_counts if key in self.room}
        context = Context(allowed=self.within.get(name), room=room, **binding)
        return inventory.fit(amount, self.limits.get(name), context)

    def fit_cells(self, base: str, constraints: Iterable[AffinityConstraint]) -> Amount:
        near = tuple(constraints)
        spare: Counter[int] = Counter()
        if not near:
            for inventory in self.inventories.values():
                if isinstance(inventory, HasAffinity):
                    spare.update(inventory.device_counts())
        return self.fit(base, near=near, spare=spare)

    def fit_near(self, name: str, base: str, on_cells: Amount) -> Amount:
        return self.fit(name, chosen=ChosenCells(self._cells(base), on_cells.host_cells))

    def fit_all(
        self, base: str = "", on_cells: Amount | None = None, near: Collection[str] = ()
    ) -> dict[str, Amount]:
        """Return all assigned amounts; a refusal precedes a search that was cut short."""
        assigned: dict[str, Amount] = {}
        reasons: list[Reason] = []
        cut_short: SearchLimitReached | None = None
        for name in self.amounts:
            try:
                if on_cells is None or name not in (base, *near):
                    assigned[name] = self.fit(name)
                elif name == base:
                    assigned[name] = on_cells
                else:
                    assigned[name] = self.fit_near(name, base, on_cells)
            except CapacityException as refusal:
                reasons += refusal.reasons
            except SearchLimitReached as error:
                cut_short = error
        if reasons:
            raise CapacityException(reasons)
        if cut_short is not None:
            raise cut_short
        return assigned

    def _cells(self, base: str) -> CellMap:
        cells = cell_map_of(self.inventories[base])
        assert cells is not None
        return cells


def _joint_reasons(
    place: _Place,
    base: str,
    near: Mapping[str, AffinityConstraint],
    refusal: CapacityException,
) -> Sequence[Reason]:
    """Return the reasons why amounts do not fit together.

    :param refusal: the refusal by the kind with host cells
    """
    is_by_affinity = all(reason.rule is Rule.AFFINITY for reason in refusal.reasons)
    reasons: list[Reason] = []
    for name in place.amounts:
        if name != base:
            reasons += _reasons(place.fit, name)
        elif not is_by_affinity:
            reasons += refusal.reasons
    if reasons:
        return reasons
    # Each amount fits individually. Name those that are too far from the cells, with the figures of
    # the cells that are near most of the devices that would do.
    refused = [
        name
        for name, constraint in near.items()
        if len(near) == 1 or _reasons(place.fit_cells, base, [constraint])
    ]
    all_counts: Counter[int] = Counter()
    for constraint in near.values():
        all_counts.update(constraint.counts)

    def fit_attracted(name: str) -> Amount:
        attraction = _Attraction(near[name].counts if refused else all_counts)
        return place.fit_near(name, base, place.fit_cells(base, [attraction]))

    for name in refused or near:
        reasons += _reasons(fit_attracted, name)
    return reasons or refusal.reasons


def _reasons(fit: Callable[..., Amount], *args: Any) -> Sequence[Reason]:
    """Return the reasons of a refusal, () if the amount fits or its search is cut short."""
    try:
        fit(*args)
    except CapacityException as refusal:
        return refusal.reasons
    except SearchLimitReached:
        pass
    return ()


class _Attraction(NamedTuple):
    """A constraint that any host cells satisfy; those with the most devices are preferred."""

    counts: Mapping[int, int]

    def is_met(self, cells: Collection[int]) -> bool:
        return True

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset()

    def symmetry_key(self, cell: int) -> Hashable:
        return None
