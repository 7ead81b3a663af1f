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
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from resource_objects import base, fields
from resource_objects.exceptions import CapacityException, InvalidInput, InvalidInventory
from resource_objects.reasons import UNIT_RULES, Reason, Rule
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.records import AmountRecord, InventoryRecord, StoredPart
from resource_objects.resources.relaxations import RelaxationLadder

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
class Amount(base.ResourceObject, abc.ABC, frozen=True):
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
    def has_affinity(self) -> bool:
        """Whether this says how near it has to be to host cells, which something else asks for."""
        return False

    @property
    def placed_counts(self) -> Mapping[str, int]:
        """The counts that this says where they are, by class; it adds nothing to them (D1)."""
        return {}

    @property
    def is_placed(self) -> bool:
        """Whether this says where something is: it is then decided before what is only counted."""
        return bool(self.placed_counts)

    @property
    def host_cells(self) -> frozenset[int]:
        """The host cells that an assigned amount is on, by id; empty if its kind has none."""
        return frozenset()

    @property
    def host_usage(self) -> Mapping[str, int]:
        """What of :attr:`located` the host as a whole gives, as far as that is known (D2)."""
        return {}

    @property
    def requested_host_usage(self) -> Mapping[str, int]:
        """What of :attr:`of_host` goes with what was asked, wherever it goes."""
        return self.unassigned().host_usage

    @property
    def counted_separately(self) -> frozenset[str]:
        """The classes of :attr:`said` that are counted beside this, and not by it.

        Only :meth:`~.amounts.Amounts.with_implied_counts` sets them.
        """
        return frozenset()

    def counting_separately(self, classes: Collection[str]) -> Self:
        """Return this amount where these classes are counted beside it; of kinds that locate."""
        return self

    @property
    def net_host_usage(self) -> Mapping[str, int]:
        """What it takes of the host's counts itself, by class; negative if it gives back.

        All of :attr:`of_host`, less what is counted beside it: ``draws(-a) == -draws(a)``. It
        follows from the amount alone, so that taking one after the other has one result in any
        order.
        """
        said, sign = (
            self.requested_host_usage if self.counted_separately else {},
            -1 if self.is_negative else 1,
        )
        result = {
            name: sign * (count - (said.get(name, 0) if name in self.counted_separately else 0))
            for name, count in self.host_usage.items()
        }
        return {name: count for name, count in result.items() if count}

    @property
    def item_count(self) -> int:
        """Of how many pieces it is, as refusals count it: at least one."""
        return 1

    @property
    def parts_usage(self) -> Mapping[str, int]:
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
    ask the same pure decision, :meth:`fit`. How it is kept: :meth:`to_records`, :meth:`describe`.
    What a kind over a tree of providers adds is in :mod:`~resource_objects.resources.placed`.

    Equal when the figures are equal; not hashable, because it changes. Not made for several threads
    at once: what they share, they lock.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    #: of what; only for messages, so it plays no part in equality
    resource_class: str | None = fields.resource_class(default=None)
    NOT_COMPARED = frozenset({"resource_class"})

    @abc.abstractmethod
    def fit(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> Amount:
        """Return the assigned amount: where ``amount`` would go. Nothing changes.

        :param limit: a total set from outside for this one claim; None is no bound
        :param context: what else binds the decision, where more is decided than this inventory
        :raises InvalidInput: (a ``ValueError``) for an amount of another kind
        :raises CapacityException: if used would go below zero, or the change increases use beyond
            min(capacity, limit) or breaks a unit rule; with ``Rule.AFFINITY`` alone if only
            ``context.near`` stands against it
        """

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing of it: what :meth:`Resource.make_inventory` makes of nothing."""
        return False

    @abc.abstractmethod
    def apply(self, assigned: Amount) -> None:
        """Add an assigned amount that :meth:`fit` returned for the present state, unchecked."""

    def _revert(self, assigned: Amount) -> None:
        """Undo :meth:`take` of a moment ago: nobody has used it meanwhile."""
        self.apply(-assigned)

    def can_provide(self, amount: Amount, limit: Amount | None = None) -> bool:
        """Return whether ``amount`` fits. Nothing changes.

        :raises ValueError: for an amount of the wrong kind (``WrongAmountKind``) or a negative one
            (``NegativeAmount``)
        """
        if isinstance(amount, Amount) and amount.is_negative:
            raise InvalidInput(
                "negative amount", "amount", amount, "one that asks; give back by consume"
            )
        try:
            self.fit(amount, limit)
        except CapacityException:
            return False
        return True

    def consume(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> Amount:
        """Add ``amount`` to what is used and return the assigned amount; negative gives back.

        Refused: nothing changed. Parameters and errors are those of :meth:`fit`.
        """
        assigned = self.fit(amount, limit, context)
        self.apply(assigned)
        return assigned

    def update(self, **values: Any) -> bool:
        """Set several fields at once, checked together; return whether anything changed.

        :raises InvalidInventory: if the figures contradict each other, or another resource's label
            is put on; nothing changed
        """
        label = values.get("resource_class", self.resource_class)
        if self.resource_class is not None and label != self.resource_class:
            raise InvalidInventory("resource_class", label, self.resource_class)
        return super().update(**values)

    def without_allocation(self, assigned: Amount) -> Self:
        """Return a copy as if an assigned amount that is taken had never been taken."""
        result = self.obj_clone()
        result.apply(-assigned)
        return result

    @abc.abstractmethod
    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return how this inventory is kept; its resource's class must be known."""

    def describe(self) -> str | None:
        """Return what is kept of it beside the figures, as text (JSON), None for nothing.

        A kind that is kept as several records, or whose figures do not tell all, says it here;
        :meth:`Resource.inventory_from_storage` reads it back.
        """
        return None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes


@base.register
class Resource(base.ResourceObject, abc.ABC, frozen=True):
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
    is_placed: ClassVar[bool] = False
    #: The class of its inventories.
    inventory_kind: ClassVar[type[Inventory]] = Inventory  # type: ignore[type-abstract]

    name: str = fields.resource_class(kw_only=False)
    type: str = fields.text(default="", kw_only=False)
    units: str = fields.text(default="", kw_only=False)
    description: str = fields.text(default="", kw_only=False)

    @on_class_or_instance
    @abc.abstractmethod
    def make_amount(this: Any, /, *args: Any, **kwargs: Any) -> Amount:  # noqa: N805
        """Return an amount of this resource's kind. Works on the class and on an instance."""

    @on_class_or_instance
    @abc.abstractmethod
    def make_inventory(this: Any, /, *args: Any, **kwargs: Any) -> Inventory:  # noqa: N805
        """Return an inventory of this resource's kind, labelled where called on an instance.

        Of no arguments, an empty one.
        """

    def make_empty(self) -> Inventory:
        """Return the inventory of a place that has nothing of this."""
        return self.make_inventory()

    @abc.abstractmethod
    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> Inventory:
        """Return the inventory that was kept as ``records``."""

    def inventory_from_storage(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> Inventory:
        """Return the inventory kept as ``records`` with what :meth:`Inventory.describe` said."""
        return self.inventory_from_records(records)

    def inventory_from_parts(
        self, parts: Sequence[StoredPart], room: Mapping[str, int] | None = None
    ) -> Inventory:
        """Return the inventory over all its parts as they are kept, a view (law 1).

        :param room: what the host as a whole has left of the classes that parts share with it
        """
        raise NotImplementedError(f"{type(self).__name__} is kept in one place")

    def lower_bounds(
        self, amount: Amount, classes: Collection[str]
    ) -> tuple[Mapping[str, int], ...]:
        """Return what each part an amount is on has to have left, by class: one for each piece.

        Necessary and not sufficient, for whoever rules out many inventories at once; empty if the
        kind has nothing to say.

        :param classes: those that the parts are kept as
        """
        return ()

    def relaxations(self, amount: Amount) -> Iterable[RelaxationLadder[Amount]]:
        """Yield how less could be asked than an amount that says where, each way by itself.

        Empty if the kind has nothing to say: then only all of it can be given up.
        """
        return ()

    def cell_of_part(self, description: str) -> int | None:
        """Return the id of the host cell that a part is, or is next to; None if nobody says.

        :param description: of the part, as it is kept
        """
        return None

    def certainly_fits(self, record: InventoryRecord, amount: int, used: int) -> bool:
        """Return whether an amount certainly fits a stored inventory; False: not known.

        It is called before each write, which builds and compares an inventory only if it is False.
        """
        return False

    def refusals(
        self,
        record: InventoryRecord,
        amount: int,
        provider: str,
        allocated: int = 0,
        *,
        aggregate: bool = False,
        limit: int | None = None,
        free_removed: int = 0,
    ) -> tuple[Reason, ...]:
        """Return why an amount does not fit a stored inventory; an inventory of this kind decides.

        Search, claim and dry run share the decision. Cost: 3 microseconds if it fits.

        :param amount: negative to release, which no rule refuses
        :param provider: the name of the provider
        :param allocated: the amount that the consumer uses already: unit rules bind the sum
        :param aggregate: whether the consumer stands for many: unit rules do not bind it
        :param limit: the maximum usage of the inventory, whatever its capacity
        :param free_removed: the number of units that were removed from the host and are free; they
            do not count as capacity

        >>> from resource_objects.resources import resource
        >>> record = InventoryRecord("VCPU", 8, 0, 1, None, 1, 1_000_000, 8, used=6)
        >>> print(*resource("VCPU").refusals(record, 3, "host0"))
        host0: VCPU requested 3, free 2 of 8
        >>> print(*resource("VCPU").refusals(record, 2, "host0", limit=7))
        host0: VCPU requested 2, free 1 under the limit of 7
        >>> print(*resource("VCPU").refusals(record, 2, "host0", free_removed=1))
        host0: VCPU requested 2, free 1 of 7
        """
        requested, used = amount, record.used
        if amount > 0 and not aggregate:
            requested, used = allocated + amount, record.used - allocated
        limit_rule = Rule.LIMIT
        if free_removed and (limit is None or record.capacity - free_removed <= limit):
            limit, limit_rule = max(0, record.capacity - free_removed), Rule.CAPACITY
        is_within = limit is None or used + requested <= limit
        if is_within and self.certainly_fits(record, requested, used):
            return ()
        remaining = dataclasses.replace(record, used=used)
        if aggregate:
            remaining = dataclasses.replace(remaining, min_unit=1, max_unit=None, step_size=1)
        try:
            self.inventory_from_records((remaining,)).fit(
                self.make_amount(requested), None if limit is None else self.make_amount(limit)
            )
        except CapacityException as refusal:
            return tuple(
                dataclasses.replace(reason, where=provider, used=record.used)
                if reason.rule in UNIT_RULES
                else dataclasses.replace(
                    reason,
                    rule=limit_rule if reason.rule is Rule.LIMIT else reason.rule,
                    where=provider,
                    used=record.used,
                    requested=amount,
                )
                for reason in refusal.reasons
            )
        return ()

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
