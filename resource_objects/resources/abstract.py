"""The three abstract classes: resources, amounts and inventories.

A :class:`Resource` is a kind of thing that can be allocated, an :class:`Amount` a quantity of one,
requested, allocated or released, and an :class:`Inventory` the supply of one at one provider. A
kind (integers, NUMA topologies, PCI devices, a plug-in's own) is a triple of subclasses.

The contract is the loop of the *resource-objects* specification (Nova, Kilo to Mitaka)::

    for resource, amount in request_spec.resources.items():
        if compute_node.inventories[resource].can_provide(amount):
            compute_node.inventories[resource].consume(amount)

The specification left two points open. A change is refused if it would make ``used`` negative, or
if it *increases* the usage above ``min(capacity, limit)``. A release finds the same cells or
devices again because :meth:`Inventory.consume` returns the assigned amount, and only that can be
released.
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
    """A method of both the class and its instances: its first argument is the one or the other."""

    def __init__(self, function: Callable[Concatenate[Any, _P], _R]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        self.__isabstractmethod__ = getattr(function, "__isabstractmethod__", False)

    def __get__(self, instance: object, owner: type) -> Callable[_P, _R]:
        return functools.partial(self._function, owner if instance is None else instance)


@base.register
class Amount(base.ResourceObject, abc.ABC, frozen=True):
    """A quantity of a resource: a frozen, hashable value. Its key names the resource.

    ``==``, ``!=``, ``hash`` and unary ``-`` work for every kind; a negated amount releases.

    An amount of a *placed* resource (a NUMA topology, devices) places counts, and adds nothing to
    them: :attr:`placed_counts` are the counts, and :attr:`host_usage` is its usage of the host's
    own counts.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    @property
    @abc.abstractmethod
    def is_zero(self) -> bool:
        """True if the amount is zero."""

    @property
    @abc.abstractmethod
    def is_negative(self) -> bool:
        """True if the amount is released, not requested."""

    @property
    def is_assigned(self) -> bool:
        """True if the amount has its placement, or its kind has none: it can be released."""
        return True

    def unassigned(self) -> Self:
        """Return the requested amount without its placement."""
        return self

    @property
    def has_affinity(self) -> bool:
        """True if the amount has to be near the host cells of another amount."""
        return False

    @property
    def placed_counts(self) -> Mapping[str, int]:
        """The counts that the amount places, by class."""
        return {}

    @property
    def is_placed(self) -> bool:
        """True for an amount of a placed resource: it is decided before plain counts."""
        return bool(self.placed_counts)

    @property
    def host_cells(self) -> frozenset[int]:
        """The ids of the host cells of an assigned amount, empty if its kind has no cells."""
        return frozenset()

    @property
    def host_usage(self) -> Mapping[str, int]:
        """The usage of the host's own counts, by class; if assigned, with idle siblings."""
        return {}

    @property
    def requested_host_usage(self) -> Mapping[str, int]:
        """The part of :attr:`host_usage` that is the same for every placement."""
        return self.unassigned().host_usage

    @property
    def counted_separately(self) -> frozenset[str]:
        """The classes of :attr:`requested_host_usage` that are requested as counts in addition.

        Only :meth:`~.amounts.Amounts.with_implied_counts` sets them.
        """
        return frozenset()

    def counting_separately(self, classes: Collection[str]) -> Self:
        """Return this amount with :attr:`counted_separately` set, if it is of a placed resource."""
        return self

    @property
    def net_host_usage(self) -> Mapping[str, int]:
        """The change of the host's counts by this amount itself, negative for a release.

        It is :attr:`host_usage` without the counts of :attr:`counted_separately`. A negated amount
        has the negated change. It depends on the amount alone, so that consuming several amounts
        has one result in any order.
        """
        separate = self.counted_separately
        requested = self.requested_host_usage if separate else {}
        sign = -1 if self.is_negative else 1
        changes = {
            name: sign * (count - (requested.get(name, 0) if name in separate else 0))
            for name, count in self.host_usage.items()
        }
        return {name: change for name, change in changes.items() if change}

    @property
    def item_count(self) -> int:
        """The number of guest cells or devices that reasons report as requested, at least 1."""
        return 1

    @property
    def parts_usage(self) -> Mapping[str, int]:
        """The units that all parts must have free, by class, and no count of the host includes.

        Only devices are such units.
        """
        return {}

    @abc.abstractmethod
    def __neg__(self) -> Self:
        """Return the amount that releases this one."""

    @abc.abstractmethod
    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return the stored form of an assigned amount of a resource class."""


@base.register
class Inventory(base.ResourceObject, abc.ABC):
    """The supply of a resource at one provider, with its usage.

    Decide: :meth:`can_provide`, :meth:`fit`. Allocate and release: :meth:`consume`. All three make
    the same pure decision, :meth:`fit`. Store: :meth:`to_records`, :meth:`describe`. Inventories
    over a tree of providers add :mod:`~resource_objects.resources.placed`.

    Equal if the figures are equal; not hashable, because it changes. Not safe for several threads:
    a caller that shares an inventory locks it.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    #: the resource class, for messages; it plays no part in equality
    resource_class: str | None = fields.resource_class(default=None)
    NOT_COMPARED = frozenset({"resource_class"})

    @abc.abstractmethod
    def fit(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> Amount:
        """Return the assigned amount: the placement of ``amount``. Nothing changes.

        :param limit: an upper bound of the usage for this one claim, None for no bound
        :param context: further conditions, where more than this inventory is decided
        :raises InvalidInput: (a ``ValueError``) for an amount of another kind
        :raises CapacityException: if the usage would become negative, if the change increases it
            above min(capacity, limit), or if a unit rule is broken; with ``Rule.AFFINITY`` alone if
            ``context.near`` is the only cause, or if the search without it was cut short
        """

    @property
    def is_empty(self) -> bool:
        """True if there are no units, as in ``Resource.make_inventory()``."""
        return False

    @abc.abstractmethod
    def apply(self, assigned: Amount) -> None:
        """Add an assigned amount to the usage, unchecked.

        :param assigned: the result of :meth:`fit` in the present state
        """

    def _revert(self, assigned: Amount) -> None:
        """Undo the last :meth:`apply`; nothing was applied since."""
        self.apply(-assigned)

    def can_provide(self, amount: Amount, limit: Amount | None = None) -> bool:
        """Return True if ``amount`` fits. Nothing changes.

        :raises InvalidInput: (a ``ValueError``) for an amount of another kind or a negative one
        """
        if isinstance(amount, Amount) and amount.is_negative:
            raise InvalidInput(
                "negative amount", "amount", amount, "a requested one; release by consume"
            )
        try:
            self.fit(amount, limit)
        except CapacityException:
            return False
        return True

    def consume(
        self, amount: Amount, limit: Amount | None = None, context: Context = ANYWHERE
    ) -> Amount:
        """Add ``amount`` to the usage and return the assigned amount; a negative one is released.

        Parameters and errors are those of :meth:`fit`; after an error nothing has changed.
        """
        assigned = self.fit(amount, limit, context)
        self.apply(assigned)
        return assigned

    def update(self, **values: Any) -> bool:
        """Set several fields at once, validated together; return True if anything changed.

        :raises InvalidInventory: if the figures contradict each other, or the resource class would
            change; nothing changed
        """
        label = values.get("resource_class", self.resource_class)
        if self.resource_class is not None and label != self.resource_class:
            raise InvalidInventory("resource_class", label, self.resource_class)
        return super().update(**values)

    def without_allocation(self, assigned: Amount) -> Self:
        """Return a copy without an allocated amount, as if it had never been allocated."""
        result = self.obj_clone()
        result.apply(-assigned)
        return result

    @abc.abstractmethod
    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return the stored figures of this inventory, whose resource class must be set."""

    def describe(self) -> str | None:
        """Return the description of an inventory as JSON text, None if its figures are complete.

        The description has all that :meth:`to_records` lacks;
        :meth:`Resource.inventory_from_storage` reads it.
        """
        return None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it changes


@base.register
class Resource(base.ResourceObject, abc.ABC, frozen=True):
    """A kind of thing that can be allocated: the key of every mapping.

    ``name`` is its identity (its *resource class*): two resources of one name are equal. ``type``,
    ``units`` and ``description`` are for people. Amounts and inventories of another kind than
    :attr:`amount_kind` and :attr:`inventory_kind` are rejected where they are put under its name.
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    #: The class of its amounts.
    amount_kind: ClassVar[type[Amount]] = Amount  # type: ignore[type-abstract]  # any kind
    #: The class of its limits, if it differs from that of its amounts.
    limit_kind: ClassVar[type[Amount] | None] = None
    #: True if its inventories are stored over several providers of a tree.
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
        """Return an amount of this resource. Works on the class and on an instance."""

    @on_class_or_instance
    @abc.abstractmethod
    def make_inventory(this: Any, /, *args: Any, **kwargs: Any) -> Inventory:  # noqa: N805
        """Return an inventory of this resource, an empty one without arguments.

        On an instance, the inventory has its resource class.
        """

    @abc.abstractmethod
    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> Inventory:
        """Return the inventory of stored records."""

    def inventory_from_storage(
        self, records: Sequence[InventoryRecord], description: str | None
    ) -> Inventory:
        """Return the inventory of stored records and the result of :meth:`Inventory.describe`."""
        return self.inventory_from_records(records)

    def inventory_from_parts(
        self, parts: Sequence[StoredPart], room: Mapping[str, int] | None = None
    ) -> Inventory:
        """Return the inventory of all its stored parts, a view of them.

        :param room: the host's free counts of the classes that it shares with its parts
        """
        raise NotImplementedError(f"{type(self).__name__} is stored at one provider")

    def lower_bounds(
        self, amount: Amount, classes: Collection[str]
    ) -> tuple[Mapping[str, int], ...]:
        """Return the minimum that the part of each item of an amount must have free, by class.

        The condition is necessary, not sufficient; a search excludes many inventories with it at
        once. () if the kind knows no bounds.

        :param classes: the classes that the parts are stored as
        """
        return ()

    def relaxations(self, amount: Amount) -> Iterable[RelaxationLadder[Amount]]:
        """Yield the relaxations of a placed amount, one ladder for each property.

        () if the kind knows none: then only the whole amount can be given up.
        """
        return ()

    def cell_of_part(self, description: str) -> int | None:
        """Return the id of the host cell that a stored part is or is next to, None if unknown."""
        return None

    def certainly_fits(self, record: InventoryRecord, amount: int, used: int) -> bool:
        """Return True if an amount fits a stored inventory for certain, False if unknown.

        Each write calls it, and builds an inventory only for False.
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
        """Return the reasons why an amount does not fit a stored inventory, () if it fits.

        An inventory of this kind decides. Search, claim and dry run share the decision. Cost: 3
        microseconds if it fits.

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
        """Return the amount of a text, the part after ``NAME=`` of a text form."""

    @abc.abstractmethod
    def format_amount(self, amount: Amount) -> str:
        """Return the text of an amount; :meth:`parse_amount` reads it."""

    def format_limit(self, limit: Amount) -> str:
        """Return the text of a limit; :meth:`parse_limit` reads it."""
        return self.format_amount(limit)

    def parse_limit(self, text: str) -> Amount:
        """Return the limit of a text."""
        return self.parse_amount(text)

    @abc.abstractmethod
    def parse_inventory(self, text: str) -> Inventory:
        """Return the inventory of a text, the part after ``NAME=`` of a text form."""

    @abc.abstractmethod
    def format_inventory(self, inventory: Inventory) -> str:
        """Return the text of an inventory; :meth:`parse_inventory` reads it."""

    def _key(self) -> tuple[Any, ...]:
        return (self.name,)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Resource) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._obj_name)  # type: ignore[attr-defined]  # the storage of the field

    def __str__(self) -> str:
        return self.name
