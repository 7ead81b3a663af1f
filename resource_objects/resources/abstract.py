"""The three abstract classes everything countable is built from.

A :class:`Resource` is a kind of thing that can be had; an :class:`Amount` is a quantity of some
resource, asked for, taken or given back; an :class:`Inventory` is what there is of it in one
place. A kind (integers, NUMA topologies, PCI devices, a plug-in's own) is a triple of subclasses.

Source: the *resource-objects* specification (Nova, Kilo to Mitaka), whose loop is the contract::

    for resource, amount in request_spec.resources.items():
        if compute_node.inventories[resource].can_provide(amount):
            compute_node.inventories[resource].consume(amount)

What the specification left open is decided here. *What would have to be negative* is ``used``
(below zero) or what is left of ``min(capacity, limit)``, and the latter only for a change that
makes it worse. *How ``-amount`` finds the same cells or devices again*: :meth:`Inventory.consume`
returns the assigned amount, and that is what is given back.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from resource_objects import base, exceptions, fields
from resource_objects.exceptions import Reason
from resource_objects.resources.records import (
    AmountRecord,
    InventoryRecord,
    KeptPart,
    Part,
)

if TYPE_CHECKING:
    from resource_objects.resources.together import Cells, Near

_P = ParamSpec("_P")
_R = TypeVar("_R")


class on_class_or_instance(Generic[_P, _R]):  # noqa: N801  # used like classmethod
    """Method that works on the class (given the class) and on an instance (given the instance)."""

    def __init__(self, function: Callable[Concatenate[Any, _P], _R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.__isabstractmethod__ = getattr(function, "__isabstractmethod__", False)

    def __get__(self, instance: object, owner: type) -> Callable[_P, _R]:
        return functools.partial(self._function, owner if instance is None else instance)


@base.register
class Amount(base.Value, abc.ABC):
    """A quantity of a resource: a frozen, hashable value. It carries no resource: its key does.

    ``==``, ``!=``, ``hash`` and unary ``-`` work for every kind; a negated amount is one that is
    given back.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    @property
    @abc.abstractmethod
    def is_zero(self) -> bool:
        """Whether this is nothing at all."""

    @property
    @abc.abstractmethod
    def is_negative(self) -> bool:
        """Whether this gives back instead of asking."""

    @property
    def is_assigned(self) -> bool:
        """Whether this says where it is, if its kind has a where: it can then be given back."""
        return True

    def unassigned(self) -> Self:
        """Return what was asked, without where it went."""
        return self

    @property
    def located(self) -> Mapping[str, int]:
        """The counts that this says where they are, by class; it adds nothing to them (D1)."""
        return {}

    @property
    def locates(self) -> bool:
        """Whether this says where something is: it is then decided before what is only counted."""
        return bool(self.located)

    @property
    def host_cells(self) -> frozenset[int]:
        """The host cells that an assigned amount is on, by id; empty if its kind has none."""
        return frozenset()

    @property
    def of_host(self) -> Mapping[str, int]:
        """What of :attr:`located` the host as a whole gives, as far as that is known (D2)."""
        return {}

    def at_least(self, classes: Collection[str]) -> tuple[Mapping[str, int], ...]:
        """Return what each part it is on has to have left, by class: one for each, in any order.

        Necessary and not sufficient, for whoever rules out many inventories at once; empty if the
        kind has nothing to say.

        :param classes: those that the parts are kept as
        """
        return ()

    @property
    def pieces(self) -> int:
        """Of how many pieces it is, as refusals count it: at least one."""
        return max(1, len(self.at_least(())))

    @property
    def of_parts(self) -> Mapping[str, int]:
        """What of :attr:`located` all parts together have to have left, by class (as above)."""
        return {}

    @abc.abstractmethod
    def __neg__(self) -> Self:
        """Return the amount that gives this one back."""

    @abc.abstractmethod
    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return what of an assigned amount is kept, given the class it is of."""


@base.register
class Inventory(base.ResourceObject, abc.ABC):
    """What there is of a resource in one place, and how much of it is used.

    Asking: :meth:`can_provide`, :meth:`fit`. Taking and giving back: :meth:`consume`. All three
    ask the same pure decision, :meth:`fit`. Equal when the figures are equal; not hashable,
    because it changes. Not made for several threads at once: what they share, they lock.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {
        #: of what; only for messages, so it plays no part in equality
        "resource_class": fields.ResourceClassField(nullable=True, default=None),
    }
    NOT_COMPARED = frozenset({"resource_class"})
    resource_class: str | None

    @abc.abstractmethod
    def fit(self, amount: Amount, limit: Amount | None = None) -> Amount:
        """Return the assigned amount: where ``amount`` would go. Nothing changes.

        :param limit: a total set from outside for this one claim; None is no bound
        :raises WrongAmountKind: (a ``ValueError``) for an amount of another kind
        :raises CapacityException: if used would go below zero, or the change increases use
            beyond min(capacity, limit) or breaks a unit rule
        """

    def fit_beside(self, amount: Amount, limit: Amount | None, room: Mapping[str, int]) -> Amount:
        """Return what :meth:`fit` does, where the host as a whole has no more than ``room`` left.

        :param room: units left by class, of the classes the amount is counted in too
        """
        return self.fit(amount, limit)

    def fit_located(self, amount: Amount, limit: Amount | None = None) -> Amount:
        """Return what :meth:`fit` does for what something else locates and that counts here too.

        Rules of one claim (min_unit, max_unit, step_size) are about who takes of this inventory
        itself; what is taken of a part of it (D2) is bound by the capacity and the limit.
        """
        return self.fit(amount, limit)

    # --- beside others, near each other (:mod:`~resource_objects.resources.together`) ---

    def all_cells(self) -> Cells | None:
        """Return the host cells there are; None if this is of a kind that has none."""
        return None

    def near(self, amount: Amount, cells: Cells) -> Near | None:
        """Return what an amount needs of the host cells beside it; None if any will do."""
        return None

    def near_within(self, amount: Amount, cells: Cells, ids: Collection[int] | None) -> Near | None:
        """Return what :meth:`near` does, where only some parts may be used; None for all."""
        return self.near(amount, cells)

    def device_counts(self) -> Mapping[int, int]:
        """Return how many free devices are at each host cell, by the cell's id."""
        return {}

    def fit_near(
        self,
        amount: Amount,
        limit: Amount | None,
        cells: Cells,
        chosen: Collection[int],
        within: Collection[int] | None,
    ) -> Amount:
        """Return what :meth:`fit` does, for who has chosen host cells. Of kinds with :meth:`near`.

        :param chosen: the ids of these host cells
        :param within: ids of the parts that may be used (:meth:`part_ids`), None for all
        """
        raise NotImplementedError(f"{type(self).__name__} is near to nothing")

    def fit_among(
        self,
        amount: Amount,
        limit: Amount | None,
        room: Mapping[str, int],
        nears: Sequence[Near],
        within: Collection[int] | None,
        devices: Mapping[int, int],
    ) -> Amount:
        """Return what :meth:`fit` does, on host cells that all of ``nears`` are met by.

        Of kinds with :meth:`all_cells`.

        :param room: as in :meth:`fit_beside`
        :param within: ids of the parts that may be used (:meth:`part_ids`), None for all
        :param devices: free devices by host cell that are not asked for, to be left to others
        :raises CapacityException: with reasons; ``Rule.AFFINITY`` alone if only ``nears`` stand
            against it
        """
        raise NotImplementedError(f"{type(self).__name__} has no host cells")

    @abc.abstractmethod
    def _take(self, assigned: Amount) -> None:
        """Add an assigned amount that :meth:`fit` returned for the present state."""

    def _untake(self, assigned: Amount) -> None:
        """Undo :meth:`_take` of a moment ago: nobody has used it meanwhile."""
        self._take(-assigned)

    def can_provide(self, amount: Amount, limit: Amount | None = None) -> bool:
        """Return whether ``amount`` fits. Nothing changes.

        :raises ValueError: for an amount of the wrong kind (``WrongAmountKind``) or a negative one
            (``NegativeAmount``)
        """
        if isinstance(amount, Amount) and amount.is_negative:
            raise exceptions.NegativeAmount("amount", amount, "one that asks; give back by consume")
        try:
            self.fit(amount, limit)
        except exceptions.CapacityException:
            return False
        return True

    def consume(self, amount: Amount, limit: Amount | None = None) -> Amount:
        """Add ``amount`` to what is used and return the assigned amount; negative gives back.

        Refused: nothing changed. Errors are those of :meth:`fit`.
        """
        assigned = self.fit(amount, limit)
        self._take(assigned)
        return assigned

    def update(self, **values: Any) -> bool:
        """Set several fields at once, checked together; return whether anything changed.

        :raises InvalidInventory: if the figures contradict each other, or another resource's
            label is put on; nothing changed
        """
        label = values.get("resource_class", self.resource_class)
        if self.resource_class is not None and label != self.resource_class:
            raise exceptions.InvalidInventory("resource_class", label, self.resource_class)
        return super().update(**values)

    def without(self, assigned: Amount) -> Self:
        """Return a copy as if an assigned amount that is taken had never been taken."""
        found = self.obj_clone()
        found._take(-assigned)
        return found

    @abc.abstractmethod
    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return how this inventory is kept; its resource's class must be known."""

    def describe(self) -> str | None:
        """Return what is kept of it beside the figures, as text (JSON), None for nothing.

        A kind that is kept as several records, or whose figures do not tell all, says it here;
        :meth:`Resource.inventory_from_kept` reads it back.
        """
        return None

    def parts(self) -> tuple[Part, ...]:
        """Return what each provider below keeps of it; empty if one provider keeps it all.

        Of a kind whose inventories lie over a tree: :meth:`Resource.gather` is the way back.
        """
        return ()

    def units(self, resource_class: str) -> frozenset[str] | None:
        """Return the names of the units there are of a class it is kept as; None if any will do."""
        return None

    def units_elsewhere(self, resource_class: str) -> frozenset[str]:
        """Return what is named like units of a class, and is given out in another way here."""
        return frozenset()

    # --- units that are things of their own ---

    #: Whether each unit of what it is kept as is a thing with an identity (a device): who asks for
    #: a count of them gets them by name, several parts may share a count, and a unit that somebody
    #: has stays at its part.
    of_devices: ClassVar[bool] = False

    def unit_count(self, resource_class: str, units: Collection[str]) -> int:
        """Return how much of a class some units are: those that go with others do not count."""
        return len(units)

    def companions(self, resource_class: str) -> Mapping[str, frozenset[str]]:
        """Return the units that go with each unit of a class: who has the one has them too."""
        return {}

    def some_units(
        self, part: int, resource_class: str, count: int, taken: Collection[str] = ()
    ) -> tuple[str, ...] | None:
        """Return units of a part for who asks for a count, None if so many are not free.

        Nothing if units of that class are not given out by name to who does not name them.

        :param part: its place among :meth:`parts`
        :param taken: units that somebody else is going to have
        """
        return ()

    def alike(self, part: int) -> Hashable | None:
        """Return what parts have in common that differ in names alone; None: it is like nobody.

        What is free of them is looked at apart.

        :param part: its place among :meth:`parts`
        """
        return None

    def in_the_way(self, amount: Amount, reason: Reason) -> Mapping[int, frozenset[str]]:
        """Return the units that somebody has and a refused amount would need, by the part's place.

        :param reason: one of those that it was refused for; others may be of another kind
        """
        return {}

    def spread(self, assigned: Amount) -> tuple[tuple[int, tuple[AmountRecord, ...]], ...]:
        """Return what an assigned amount takes of each part: the part's number, and records.

        :raises NotAssigned: if it does not say where it is
        :raises ForeignAmount: if it is on what is not here
        """
        return ((0, assigned.to_records(self.resource_class or "")),)

    def part_ids(self) -> tuple[int, ...]:
        """Return how reasons (``cell``) and :meth:`fit_within` call its parts, in their order."""
        return tuple(range(len(self.parts())))

    def fit_within(self, amount: Amount, ids: Collection[int]) -> Amount:
        """Return what :meth:`fit` does, where only some parts may be used.

        What is assigned already is checked as it is.
        """
        raise NotImplementedError(f"{type(self).__name__} is kept in one place")

    def placed(self, amount: Amount, held: Mapping[int, Sequence[AmountRecord]]) -> Amount:
        """Return the assigned amount that takes ``held`` of the parts: :meth:`spread` undone.

        :raises ForeignAmount: if ``amount`` cannot take that
        """
        return amount

    def placed_near(
        self,
        amount: Amount,
        held: Mapping[int, Sequence[AmountRecord]],
        cells: Cells,
        chosen: Collection[int],
    ) -> Amount:
        """Return what :meth:`placed` does, of who has these host cells beside it."""
        return self.placed(amount, held)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes


@base.register
class Resource(base.Value, abc.ABC):
    """A kind of thing that can be had: the key of every mapping.

    ``name`` is its identity (its *resource class*): two resources of one name are equal. ``type``,
    ``units`` and ``description`` are for people. A kind says in :attr:`amount_kind` and
    :attr:`inventory_kind` what it is counted in; other kinds are then refused where they are put
    under its name, and not when they are asked or printed.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    #: The class of its amounts.
    amount_kind: ClassVar[type[Amount]] = Amount  # type: ignore[type-abstract]  # any kind
    #: The class of its limits, where that is another than the one of its amounts.
    limit_kind: ClassVar[type[Amount] | None] = None
    #: Whether its inventories lie over several providers of a tree.
    is_located: ClassVar[bool] = False
    #: The class of its inventories.
    inventory_kind: ClassVar[type[Inventory]] = Inventory  # type: ignore[type-abstract]

    fields = {
        "name": fields.ResourceClassField(),
        "type": fields.TextField(default=""),
        "units": fields.TextField(default=""),
        "description": fields.TextField(default=""),
    }
    name: str
    type: str
    units: str
    description: str

    def __init__(self, name: str, type: str = "", units: str = "", description: str = "") -> None:
        super().__init__(name=name, type=type, units=units, description=description)

    @on_class_or_instance
    @abc.abstractmethod
    def make_amount(this: Any, /, *args: Any, **kwargs: Any) -> Amount:  # noqa: N805
        """Return an amount of this resource's kind. Works on the class and on an instance."""

    @on_class_or_instance
    @abc.abstractmethod
    def make_inventory(this: Any, /, *args: Any, **kwargs: Any) -> Inventory:  # noqa: N805
        """Return an inventory of this resource's kind, labelled where called on an instance."""

    @abc.abstractmethod
    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> Inventory:
        """Return the inventory that was kept as ``records``."""

    def inventory_from_kept(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> Inventory:
        """Return the inventory kept as ``records`` with what :meth:`Inventory.describe` said."""
        return self.inventory_from_records(records)

    def gather(self, parts: Sequence[KeptPart], room: Mapping[str, int] | None = None) -> Inventory:
        """Return the inventory over all its parts as they are kept, a view (law 1).

        :param room: what the host as a whole has left of the classes that parts share with it
        """
        raise NotImplementedError(f"{type(self).__name__} is kept in one place")

    def surely_fits(self, record: InventoryRecord, amount: int, used: int) -> bool:
        """Return whether a plain count surely fits the inventory kept as one record, if so much is
        used of it.

        It is asked before each change of what is kept, which then need not make an inventory. False
        says nothing, and the inventory is asked.
        """
        return False

    @abc.abstractmethod
    def parse_amount(self, text: str) -> Amount:
        """Return the amount that ``text`` says, the part after ``NAME=`` of a text form."""

    @abc.abstractmethod
    def format_amount(self, amount: Amount) -> str:
        """Return the text that :meth:`parse_amount` reads back."""

    def format_limit(self, limit: Amount) -> str:
        """Return the text of a limit; :meth:`parse_limit` reads it back."""
        return self.format_amount(limit)

    def parse_limit(self, text: str) -> Amount:
        """Return the limit that ``text`` says."""
        return self.parse_amount(text)

    @abc.abstractmethod
    def parse_inventory(self, text: str) -> Inventory:
        """Return the inventory that ``text`` says, the part after ``NAME=`` of a text form."""

    @abc.abstractmethod
    def format_inventory(self, inventory: Inventory) -> str:
        """Return the text that :meth:`parse_inventory` reads back."""

    def _key(self) -> tuple[Any, ...]:
        return (self.name,)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Resource) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._obj_name)  # type: ignore[attr-defined]  # the storage of the field

    def __str__(self) -> str:
        return self.name
