"""Kinds whose inventories lie over a tree of providers: what they add to an inventory.

Whoever stores, searches or explains asks these classes, never a kind by its name (D11), and whoever
only counts does not see them. A kind inherits those that it is,
before :class:`~resource_objects.resources.abstract.Inventory`:

========================  ====================================================================
:class:`PlacedInventory`  each part of it (a NUMA cell, a device) is stored at its own provider
:class:`HasAffinity`      it has host cells, or its units have to be near some
:class:`HasNamedUnits`    its units are things with an identity (devices), not just counted
========================  ====================================================================
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

# A kind of these is an inventory too, which type checkers may rely on. At run time they are bases
# beside Inventory and not below it, so that no kind is deeper than any other.
if TYPE_CHECKING:
    _Kind = Inventory
    _KindOfResource = Resource
else:
    _Kind = _KindOfResource = abc.ABC

_A = TypeVar("_A", bound=Amount)
_I = TypeVar("_I", bound=Inventory)
_NO_DEVICES: Mapping[int, int] = {}
_NO_UNITS: Mapping[str, frozenset[str]] = {}
_NO_CLASSES: Mapping[str, str] = {}


class PlacedInventory(_Kind, Generic[_A]):
    """An inventory whose parts are kept by providers of their own.

    What it takes of the host as a whole is counted there too (D2), so one that belongs to
    :class:`~resource_objects.resources.Inventories` draws on the counts beside it
    (:attr:`Amount.net_host_usage`): both are allocated, or neither. A kind decides where an amount
    goes and applies it in :meth:`_fit` and :meth:`_apply`, without those counts.

    Whoever sets :attr:`taken` to () has what is taken from then on kept there, net: amounts as they
    are assigned, of which what is given back is gone. A difference of usage does not say so much.

    Parts are named in two ways: by their *place* among :meth:`parts`, and by the id that reasons
    (``cell``) and :attr:`Context.allowed` call them by (:meth:`part_ids`).
    """

    #: The inventories of the place that it draws on, by class; what is copied has none.
    _counts: Mapping[str, Inventory] = {}

    @abc.abstractmethod
    def _fit(self, amount: Amount, limit: Amount | None, context: Context) -> _A:
        """Return the assigned amount as :meth:`fit` does; what it draws on is ``context.room``."""

    @abc.abstractmethod
    def _apply(self, assigned: Amount) -> None:
        """Add an assigned amount to what is used here, as :meth:`take` does."""

    def link_counts(self, counts: Mapping[str, Inventory]) -> None:
        """Draw from now on on these inventories, by class, and on no others."""
        object.__setattr__(self, "_counts", counts)

    if TYPE_CHECKING:

        def consume(
            self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
        ) -> _A: ...

    def fit(self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE) -> _A:
        if not self._counts or not isinstance(amount, Amount):
            return self._fit(amount, limit, context)
        if not amount.is_negative:
            context = dataclasses.replace(context, room=self._room(amount, context.room))
        try:
            assigned = self._fit(amount, limit, context)
        except CapacityException as refusal:
            told = [self._with_figures(reason, amount) for reason in refusal.reasons]
            raise CapacityException(told) from refusal
        for count, drawn in self._drawn(assigned):
            count.fit(drawn, None, IN_PART)
        return assigned

    def apply(self, assigned: Amount) -> None:
        self._apply(assigned)
        for count, drawn in self._drawn(assigned):
            count.apply(drawn)
        self.record_allocation(assigned)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle it alone: whoever pickles the counts too lets it draw on them again."""
        return {**super().__getstate__(), "_counts": {}}

    def _room(self, amount: Amount, room: Mapping[str, int]) -> Mapping[str, int]:
        """Return what the host has left for an amount, of which somebody else knows ``room``.

        What is counted beside it may have been taken before, and is its own.
        """
        result = dict(room)
        for name in amount.placed_counts:
            count = self._counts.get(name)
            if isinstance(count, IntegerInventory):
                left = count.free + (
                    amount.requested_host_usage.get(name, 0)
                    if name in amount.counted_separately
                    else 0
                )
                result[name] = min(left, result.get(name, left))
        return result

    def _with_figures(self, reason: Reason, amount: Amount) -> Reason:
        """Return a reason about what the host has left with the figures of that count."""
        name = reason.resource or ""
        count = self._counts.get(name)
        is_room = reason.rule is Rule.CAPACITY and reason.cell is None and reason.used == 0
        if not is_room or not isinstance(count, IntegerInventory):
            return reason
        own = amount.requested_host_usage.get(name, 0) if name in amount.counted_separately else 0
        if reason.bound not in (count.free, count.free + own):  # less: a limit bound it
            return reason
        return dataclasses.replace(reason, bound=count.capacity, used=count.capacity - reason.bound)

    def _drawn(self, assigned: Amount) -> Iterator[tuple[Inventory, IntegerAmount]]:
        """Yield the counts that an assigned amount draws on, and how much of each."""
        for name, drawn in assigned.net_host_usage.items() if self._counts else ():
            count = self._counts.get(name)
            if isinstance(count, IntegerInventory):
                yield count, IntegerAmount(drawn)

    #: What was taken and not given back, or given back and not taken; None where nobody asks.
    taken: tuple[Any, ...] | None

    def record_allocation(self, assigned: Amount) -> None:
        """Note in :attr:`taken` that an amount was taken, or given back, and nothing else."""
        if self.taken is not None:
            self._store("taken", self._recorded(self.taken, assigned))

    def _recorded(self, taken: tuple[Any, ...], assigned: Any) -> tuple[Any, ...]:
        """Return what is taken with one more."""
        for place, one in enumerate(taken):
            opposite = one.is_negative != assigned.is_negative and one.placed == assigned.placed
            if opposite and -one.counting_separately(()) == assigned.counting_separately(()):
                return (*taken[:place], *taken[place + 1 :])
        return self._recorded_in_part(taken, assigned)

    def _recorded_in_part(self, taken: tuple[Any, ...], assigned: Any) -> tuple[Any, ...]:
        """Return what is taken with one more, of which none is the opposite as a whole."""
        return (*taken, assigned)

    def merged(self, several: Sequence[Amount]) -> Amount | None:
        """Return one assigned amount that says what several say, None if none can."""
        return several[0] if len(several) == 1 else None

    @abc.abstractmethod
    def parts(self) -> tuple[InventoryPart, ...]:
        """Return what each provider below keeps of it.

        :meth:`~.abstract.Resource.inventory_from_parts` is the way back.
        """

    @abc.abstractmethod
    def part_ids(self) -> tuple[int, ...]:
        """Return the ids of the parts, in their order."""

    @abc.abstractmethod
    def to_allocations(self, assigned: Amount) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return what an assigned amount takes of each part: the part's place, and records.

        :raises InvalidInput: if it does not say where it is
        :raises ForeignAmount: if it is on what is not here
        """

    @abc.abstractmethod
    def from_allocations(
        self,
        amount: Amount,
        held: Mapping[int, Sequence[AmountRecord]],
        context: Context = ANYWHERE,
    ) -> Amount:
        """Return the assigned amount that takes ``held`` of the parts, by their place.

        :param context: the host cells that who holds it has (``chosen``)
        :raises ForeignAmount: if ``amount`` cannot take that
        """

    @abc.abstractmethod
    def in_use(self) -> tuple[tuple[str, tuple[AmountRecord, ...]], ...]:
        """Return what is used of each part, by the part's name: as it would be allocated.

        What has a name (a dedicated CPU, a device) has a record of its own, which names it.
        """

    def with_use(
        self, before: Sequence[StoredPart], parts: Sequence[StoredPart], room: Mapping[str, int]
    ) -> Self | None:
        """Return an inventory of its own over the same parts, of which something else is used.

        What :meth:`~.abstract.Resource.inventory_from_parts` makes of them, at the cost of the
        parts that differ.
        None: it is to be made so. This one must be as it was made, and does not change.

        :param before: what it was made of
        :param parts: the same, and where nothing else is used the very same
        :param room: what the host as a whole has left of the classes that parts share with it
        """
        return None

    def units(self, resource_class: str) -> frozenset[str] | None:
        """Return the names of the units there are of a class it is kept as; None if any will do."""
        return None

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        """Return what is named like units of a class, and is given out in another way here."""
        return frozenset()

    def identifying_units(self) -> frozenset[str]:
        """Return the units that tell which part this is if the parts are numbered anew.

        Allocations follow these units to the part that has them. Empty: parts keep their names.
        """
        return frozenset()

    def symmetry_key(self, place: int) -> Hashable | None:
        """Return what parts have in common that differ in names alone; None: no other is like it.

        What is free of them is looked at apart.
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

        :param room: what the host as a whole has left of the classes that parts share with it
        :param has_allocations: whether the units that are allocated are known; if not, those that
            were removed from the host while allocated count as allocated
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


class HasAffinity(_Kind):
    """An inventory that is decided together with others, for it has host cells or is near some."""

    def cell_map(self) -> CellMap | None:
        """Return the host cells there are; None if it only is near some."""
        return None

    def affinity(
        self, amount: Amount, cells: CellMap, allowed: Collection[int] | None = None
    ) -> AffinityConstraint | None:
        """Return what an amount needs of the host cells that will be chosen; None if any will do.

        :param allowed: ids of the parts that may be used, None for all
        """
        return None

    def device_counts(self) -> Mapping[int, int]:
        """Return how many free devices are at each host cell, by the cell's id."""
        return _NO_DEVICES


class PartialRequest(NamedTuple):
    """An amount that is requested several times, each time of some parts of an inventory."""

    resource_class: str
    amount: Amount | int  #: one that locates, or a count of units of the class
    parts: Collection[int]  #: ids of the parts that may provide it
    times: int


class HasNamedUnits(_Kind):
    """An inventory each unit of which is a thing with an identity (a device).

    Who asks for a count of them gets them by name, several parts may share a count, and a unit that
    somebody has stays at its part.
    """

    @abc.abstractmethod
    def unit_count(self, resource_class: str, units: Collection[str]) -> int:
        """Return how much of a class some units are: those that go with others do not count."""

    @abc.abstractmethod
    def dependent_units(self, resource_class: str) -> Mapping[str, frozenset[str]]:
        """Return the units that go with each unit of a class: who has the one has them too."""

    def is_requested(self, amount: Amount, unit: str) -> bool:
        """Return whether an amount asks for what a unit is, or for what it goes with.

        By its kind alone, whoever has it; a kind that does not tell says yes.
        """
        return True

    def may_provide_all(self, requested: Iterable[PartialRequest]) -> bool:
        """Return False if these amounts cannot all be provided at once.

        Host cells that units have to be near do not count. A kind that cannot tell returns True.
        """
        return True

    @abc.abstractmethod
    def select_units(
        self, place: int, resource_class: str, count: int, taken: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Return units of a part for who asks for a count, None if so many are not free.

        Nothing if units of that class are not given out by name to who does not name them.

        :param taken: units that somebody else is going to have
        """

    @abc.abstractmethod
    def blocking_units(
        self, amount: Amount, reason: Reason
    ) -> Mapping[int, Mapping[str, frozenset[str]]]:
        """Return the units that a refused amount would need and cannot have, by the part's place.

        Of each it is told which units are in the way: itself, or others that go with it.

        :param reason: one of those that it was refused for; others may be of another kind
        """

    @classmethod
    def removed_of_description(cls, description: str) -> Mapping[str, str]:
        """Return ``{unit: resource class}`` of the units that were removed while allocated."""
        return _NO_CLASSES


class PlacedResource(_KindOfResource, Generic[_A, _I]):
    """A resource whose inventories are :class:`PlacedInventory` and whose amounts name a placement.

    A kind states the classes of its amounts and inventories, and ``requested``, the function that
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
    """Return the host cells that an inventory has, None if its kind has none."""
    return inventory.cell_map() if isinstance(inventory, HasAffinity) else None


def parts_of(inventory: Inventory) -> tuple[InventoryPart, ...]:
    """Return the parts of an inventory, none if one provider keeps it all."""
    return inventory.parts() if isinstance(inventory, PlacedInventory) else ()


def dependent_units(inventory: Inventory, resource_class: str) -> Mapping[str, frozenset[str]]:
    """Return :meth:`HasNamedUnits.dependent_units`, nothing if units are only counted."""
    if isinstance(inventory, HasNamedUnits):
        return inventory.dependent_units(resource_class)
    return _NO_UNITS


def unit_count(inventory: Inventory, resource_class: str, units: Collection[str]) -> int:
    """Return :meth:`HasNamedUnits.unit_count`, the number of units if units are only counted."""
    if isinstance(inventory, HasNamedUnits):
        return inventory.unit_count(resource_class, units)
    return len(units)


# --- several at once (D13) ------------------------------------------------------------------------
# Some amounts say where something is. One kind of them is on host cells; others (devices) are near
# some cells and far from others, and care. Each of these says in an AffinityConstraint what it
# needs of the cells that are chosen, whichever these are:
#
# 1. the kind with cells searches its own choices, narrowed by every constraint (Context.near);
# 2. then each of the others decides, given the cells that were chosen (Context.chosen).
#
# That is complete: what the search returns meets every constraint, and what meets one can be had.
# Who asks for no cells is near to nothing, and everything is then decided alone. Who asks for cells
# and nothing near them leaves those with devices to others (Context.spare).
#
# What is assigned already is checked as it is: assigned cells are the only choice there is,
# assigned devices need the cells that they are near to, and of both each is checked.
#
# A refusal names what each would be refused for alone. If there is nothing of that kind, it names
# who cannot be near: with the figures of the cells on which most of what would do can be had.

_NOTHING: Mapping[str, object] = fields.FrozenDict()


def fit_together(
    amounts: Mapping[str, Amount],
    inventories: Mapping[str, Inventory],
    limits: Mapping[str, Amount] = _NOTHING,  # type: ignore[assignment]  # it is empty
    room: Mapping[str, int] = _NOTHING,  # type: ignore[assignment]
    within: Mapping[str, Collection[int]] = _NOTHING,  # type: ignore[assignment]
) -> dict[str, Amount]:
    """Return the assigned amounts: where all that is asked of one place would go. Nothing changes.

    :param amounts: amounts that say where something is, by resource class
    :param inventories: what there is in the place, also of what is not asked for
    :param limits: totals set from outside for this one claim
    :param room: what the place as a whole has left, by class
    :param within: by resource class, ids of the parts that may be used; absent is all
    :raises ForeignAmount: if something is assigned to what is not here
    :raises CapacityException: with each reason
    :raises SearchLimitReached: if the budget ran out before it was known

    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory, numa
    >>> host = NUMATopologyInventory([HostCell(0, dedicated=[0, 1]), HostCell(1, dedicated=[2, 3])])
    >>> asked = {"NUMA_TOPOLOGY": numa(dedicated=2)}
    >>> fit_together(asked, {"NUMA_TOPOLOGY": host})["NUMA_TOPOLOGY"].host_cells
    frozenset({0})
    >>> within = {"NUMA_TOPOLOGY": [1]}
    >>> fit_together(asked, {"NUMA_TOPOLOGY": host}, within=within)["NUMA_TOPOLOGY"].cpuset
    '2-3'
    """
    place = _Place(inventories, limits, room, within)
    for name, amount in amounts.items():
        cells = None if amount.is_negative else cell_map_of(inventories.get(name))
        if cells is not None and inventories.keys() >= amounts.keys():
            return _JointFit(place, amounts, name, cells).fit()
    return place.fit_each(amounts)


class _Place(NamedTuple):
    """What there is in a place, and how it may be used."""

    inventories: Mapping[str, Inventory]
    limits: Mapping[str, Amount]
    room: Mapping[str, int]
    within: Mapping[str, Collection[int]]

    def fit_each(self, amounts: Mapping[str, Amount]) -> dict[str, Amount]:
        """Return amounts assigned that have nothing to do with each other."""
        result: dict[str, Amount] = {}
        answers = _Answers()
        for name, amount in amounts.items():
            with answers:
                result[name] = self.fit_alone(name, amount)
        answers.check()
        return result

    def fit_alone(self, name: str, amount: Amount) -> Amount:
        if name not in self.inventories:
            raise CapacityException([no_inventory(name, amount)])
        return self._fit(name, amount, room=self._room_of(amount))

    def fit_cells(self, name: str, amount: Amount, near: Iterable[AffinityConstraint]) -> Amount:
        """Return the assigned amount on host cells that meet all of these."""
        some = tuple(near)
        spare = {} if some else _added(map(_device_counts, self.inventories.values()))
        return self._fit(name, amount, room=self._room_of(amount), near=some, spare=spare)

    def fit_near(self, name: str, amount: Amount, chosen: ChosenCells) -> Amount:
        return self._fit(name, amount, chosen=chosen)

    def _fit(self, name: str, amount: Amount, **context: Any) -> Amount:
        binding = Context(allowed=self.within.get(name), **context)
        return self.inventories[name].fit(amount, self.limits.get(name), binding)

    def affinity(self, name: str, amount: Amount, cells: CellMap) -> AffinityConstraint | None:
        inventory = self.inventories[name]
        if amount.is_negative or not isinstance(inventory, HasAffinity):
            return None
        return inventory.affinity(amount, cells, self.within.get(name))

    def _room_of(self, amount: Amount) -> dict[str, int]:
        return {name: self.room[name] for name in amount.placed_counts if name in self.room}


class _JointFit(NamedTuple):
    """Amounts of which one is on host cells and the others may be near these."""

    place: _Place
    amounts: Mapping[str, Amount]
    base: str  #: who is on host cells
    cells: CellMap

    def fit(self) -> dict[str, Amount]:
        nears = {
            name: near
            for name, amount in self.amounts.items()
            if name != self.base
            and (near := self.place.affinity(name, amount, self.cells)) is not None
        }
        try:
            result = self._among(nears.values())
        except CapacityException as refusal:
            raise CapacityException(self._reasons(nears, refusal)) from refusal
        except SearchLimitReached:
            self._check_each()
            raise
        return self._around(result, nears)

    def _around(self, found: Amount, nears: Collection[str]) -> dict[str, Amount]:
        """Return all amounts assigned, given the one on host cells."""
        every: dict[str, Amount] = {}
        answers = _Answers()
        for name, amount in self.amounts.items():
            with answers:
                if name == self.base:
                    every[name] = found
                elif name in nears:
                    every[name] = self._near(name, found)
                else:
                    every[name] = self.place.fit_alone(name, amount)
        answers.check()
        return every

    def _among(self, nears: Iterable[AffinityConstraint]) -> Amount:
        return self.place.fit_cells(self.base, self.amounts[self.base], nears)

    def _near(self, name: str, found: Amount) -> Amount:
        return self.place.fit_near(
            name, self.amounts[name], ChosenCells(self.cells, found.host_cells)
        )

    # --- why not ---

    def _check_each(self) -> None:
        """Raise if anything asked is refused even alone."""
        answers = _Answers()
        for name, amount in self.amounts.items():
            with answers:
                self.place.fit_alone(name, amount)
        if answers.reasons:
            raise CapacityException(answers.reasons)

    def _reasons(
        self, nears: Mapping[str, AffinityConstraint], refusal: CapacityException
    ) -> Sequence[Reason]:
        """Return what stands against each alone, or if there is nothing, who is not near."""
        answers = _Answers()
        is_joint = all(reason.rule is Rule.AFFINITY for reason in refusal.reasons)
        for name, amount in self.amounts.items():
            if name != self.base:
                with answers:
                    self.place.fit_alone(name, amount)
            elif not is_joint:
                answers.reasons += refusal.reasons
        return answers.reasons or self._too_far(nears) or refusal.reasons

    def _too_far(self, nears: Mapping[str, AffinityConstraint]) -> Sequence[Reason]:
        only = len(nears) == 1
        alone = [name for name, near in nears.items() if only or self._is_refused(near)]
        answers = _Answers()
        for name in alone or nears:
            counts = nears[name].counts if alone else _added(n.counts for n in nears.values())
            with answers:
                self._near(name, self._among([_Drawn(counts)]))
        return answers.reasons

    def _is_refused(self, near: AffinityConstraint) -> bool:
        try:
            self._among([near])
        except CapacityException:
            return True
        except SearchLimitReached:
            return False
        return False


class _Drawn(NamedTuple):
    """Something that is near to whatever is chosen, and draws it."""

    counts: Mapping[int, int]

    def is_met(self, cells: Collection[int]) -> bool:
        return True

    def extensions(self, cells: Collection[int]) -> frozenset[int]:
        return frozenset()

    def symmetry_key(self, cell: int) -> Hashable:
        return None


class _Answers:
    """What several decisions come to: a no of any is a no, also where another has no answer."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []
        self._unknown: Exception | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, where: object) -> bool:
        if isinstance(error, CapacityException):
            self.reasons += error.reasons
            return True
        if isinstance(error, SearchLimitReached):
            self._unknown = error
            return True
        return False

    def check(self) -> None:
        """Raise if there was a no, or no answer."""
        if self.reasons:
            raise CapacityException(self.reasons)
        if self._unknown is not None:
            raise self._unknown


def _device_counts(inventory: Inventory) -> Mapping[int, int]:
    return inventory.device_counts() if isinstance(inventory, HasAffinity) else {}


def _added(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    result: Counter[int] = Counter()
    for some in counts:
        result.update(some)
    return result
