"""The integer kind: memory, disk, CPUs, licences, anything that is only counted.

Source of the rules: reference rules of Placement (capacity, min_unit, max_unit, step_size) as
restated in ``doc/source/explanation/modelling.rst``, with their holes closed: an inventory that
contradicts itself cannot be made.

Why storage is read as ``self._obj_used``: these methods run for every host of a fleet, and the
storage name is the fastest genuine way to a versioned object's field. The checked setters stand
for everybody else.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn, Self, final

from resource_objects import base, fields, ratio
from resource_objects.exceptions import CapacityException, InvalidInput, InvalidInventory
from resource_objects.fields import MAX_AMOUNT, MAX_FIGURE
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import abstract, text
from resource_objects.resources.abstract import on_class_or_instance
from resource_objects.resources.context import ANYWHERE, Context
from resource_objects.resources.records import AmountRecord, InventoryRecord

_invalid_kind_of_amount = functools.partial(InvalidInput, "kind of amount")
_invalid_negative_amount = functools.partial(InvalidInput, "negative amount")

_ONE: Final = Decimal(1)
_NO_BOUND: int | None = None


@final
@base.register
class IntegerAmount(abstract.Amount):
    """A whole number of units, negative when given back.

    Frozen, hashable, ordered; ``+``, ``-`` and unary ``-`` give amounts again. Holds any integer
    of 64 bits whose negative is one too; bool, float and text are refused. Another kind of amount
    derives from :class:`~resource_objects.resources.abstract.Amount`, not from this one. Cost:
    about 0.2 microseconds to make.

    >>> IntegerAmount(3) + IntegerAmount(2) - IntegerAmount(4)
    IntegerAmount(1)
    >>> max(IntegerAmount(3), -IntegerAmount(5))
    IntegerAmount(3)
    >>> IntegerAmount(2.0)
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: amount: got 2.0, expected an integer within ±...
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    __slots__ = ("_obj_value",)

    value: int = fields.integer()

    def __init__(self, value: int) -> None:
        if type(value) is not int or not -MAX_AMOUNT <= value <= MAX_AMOUNT:
            raise InvalidInput("amount", "amount", value, f"an integer within ±{MAX_AMOUNT}")
        _set_value(self, value)

    def __init_subclass__(cls, **kwargs: Any) -> NoReturn:
        raise TypeError("IntegerAmount is final: a kind of its own derives from Amount")

    @property
    def is_zero(self) -> bool:
        """Whether this is 0."""
        return self._obj_value == 0

    @property
    def is_negative(self) -> bool:
        """Whether this is below 0: given back."""
        return self._obj_value < 0

    #: a count is nowhere
    is_placed = False

    def __int__(self) -> int:
        return self._obj_value

    def __str__(self) -> str:
        return str(self._obj_value)

    def __repr__(self) -> str:
        return f"IntegerAmount({self._obj_value})"

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return self._obj_value == other._obj_value

    def __hash__(self) -> int:
        return hash(self._obj_value)

    def __lt__(self, other: IntegerAmount) -> bool:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return self._obj_value < other._obj_value

    def __le__(self, other: IntegerAmount) -> bool:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return self._obj_value <= other._obj_value

    def __gt__(self, other: IntegerAmount) -> bool:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return self._obj_value > other._obj_value

    def __ge__(self, other: IntegerAmount) -> bool:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return self._obj_value >= other._obj_value

    def __add__(self, other: IntegerAmount) -> IntegerAmount:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return IntegerAmount(self._obj_value + other._obj_value)

    def __sub__(self, other: IntegerAmount) -> IntegerAmount:
        if other.__class__ is not IntegerAmount:
            return NotImplemented
        return IntegerAmount(self._obj_value - other._obj_value)

    def __neg__(self) -> Self:
        return IntegerAmount(-self._obj_value)

    def to_records(self, resource_class: str) -> tuple[AmountRecord, ...]:
        """Return the one count."""
        return (AmountRecord(resource_class, self._obj_value),)

    _obj_value: int


_set_value = IntegerAmount.__dict__["_obj_value"].__set__


@base.register
class IntegerInventory(abstract.Inventory):
    """What there is of a counted resource in one place.

    ============================  ==================================================================
    ``total``                     units there are, 0 to 2^31-1; 0 is nothing, which is kept nowhere
    ``reserved``                  units set aside for others, at most total
    ``min_unit``, ``max_unit``    least and most one claim may take; ``max_unit`` None is no bound
                                  of its own, else it is at least min_unit and at most total
    ``step_size``                 one claim takes a multiple of it
    ``allocation_ratio``          how often a unit is given out: above 0, at most six decimals
    ``used``                      units taken, 0 to 2^63-1
    ``capacity``                  floor((total - reserved) * allocation_ratio), exact
    ``free``                      capacity - used, negative when over-full
    ============================  ==================================================================

    *Lowering* total, or raising reserved, *below what is used* is allowed, because hardware breaks
    whatever a ledger says: ``free`` goes negative, nothing is taken away from anybody, and until
    enough is given back only zero and negative amounts pass. Unit rules bind positive amounts
    only; zero is always possible and changes nothing.

    Setting a field checks the whole; to change fields that depend on each other use
    :meth:`update`. Cost: about 4 microseconds to make, 0.3 to ask, whatever the figures.

    >>> cpus = IntegerInventory(total=8, allocation_ratio="1.5")
    >>> cpus.capacity, cpus.can_provide(IntegerAmount(12)), cpus.can_provide(IntegerAmount(13))
    (12, True, False)
    >>> cpus.consume(IntegerAmount(10)), cpus.free
    (IntegerAmount(10), 2)
    >>> cpus.total = 4
    >>> cpus.capacity, cpus.free
    (6, -4)
    >>> cpus.consume(IntegerAmount(1))
    Traceback (most recent call last):
    resource_objects.exceptions.CapacityException: amount requested 1, free -4 of 6
    >>> cpus.consume(-IntegerAmount(5)), cpus.free
    (IntegerAmount(-5), 1)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    total: int = fields.integer(0, MAX_FIGURE, kw_only=False)
    reserved: int = fields.integer(0, MAX_FIGURE, default=0, kw_only=False)
    min_unit: int = fields.integer(1, MAX_FIGURE, default=1, kw_only=False)
    max_unit: int | None = fields.integer(1, MAX_FIGURE, default=None, kw_only=False)
    step_size: int = fields.integer(1, MAX_FIGURE, default=1, kw_only=False)
    allocation_ratio: fields.Ratio = fields.ratio(default=_ONE, kw_only=False)
    used: int = fields.integer(0, MAX_AMOUNT, default=0, kw_only=False)

    #: What may be used in all besides the capacity, None for no bound: a limit of whoever holds
    #: this inventory, which is in no copy of it.
    usage_limit = _NO_BOUND

    def _validate(self) -> None:
        if self._obj_reserved > self._obj_total:
            raise self._contradiction("reserved", f"at most the total of {self._obj_total}")
        most = self._obj_max_unit
        if most is not None and not self._obj_min_unit <= most <= self._obj_total:
            raise self._contradiction(
                "max_unit",
                f"from the min_unit of {self._obj_min_unit} to the total of {self._obj_total}",
            )
        self._after_copy()

    def _contradiction(self, field: str, expected: str) -> InvalidInventory:
        what = f"{self._obj_resource_class} {field}" if self._obj_resource_class else field
        return InvalidInventory(what, getattr(self, field), expected)

    def _after_copy(self) -> None:
        left = self._obj_total - self._obj_reserved
        self._capacity = left * ratio.to_millionths(self._obj_allocation_ratio) // ratio.MILLION

    @property
    def capacity(self) -> int:
        """Units that can be given out: floor((total - reserved) * allocation_ratio)."""
        return self._capacity

    @property
    def is_empty(self) -> bool:
        """Whether there are no units."""
        return not self._obj_total

    @property
    def free(self) -> int:
        """Units left: capacity less used, negative when over-full."""
        return self._capacity - self._obj_used

    def update(self, **values: Any) -> bool:
        """Set several figures at once, checked together; return whether anything changed.

        Where ``max_unit`` was the total it follows it, and it is lowered to a lower total.
        """
        total = values.get("total")
        if type(total) is int and total > 0 and "max_unit" not in values:
            values["max_unit"] = follow_total(self.max_unit, self.total, total)
        return super().update(**values)

    # --- the decision ---

    def can_provide(self, amount: abstract.Amount, limit: abstract.Amount | None = None) -> bool:
        """Return whether ``amount`` fits: one claim's rules, the capacity and the limit.

        :raises ValueError: for an amount of another kind or a negative one
        """
        if amount.__class__ is not IntegerAmount:  # a call of _value_of would cost a sixth
            raise _wrong_kind(amount)
        requested = amount._obj_value
        if requested < 0:
            raise _invalid_negative_amount("amount", requested, "0 or more; give back by consume")
        bound = self.usage_limit if limit is None else self._bound(limit)
        return self._broken_rule(requested, bound) is None

    def _bound(self, limit: abstract.Amount) -> int:
        """Return the tighter one of a limit and the ceiling; most ask without a limit."""
        bound = _limit_of(limit)
        return bound if self.usage_limit is None else min(bound, self.usage_limit)

    def fit(
        self,
        amount: abstract.Amount,
        limit: abstract.Amount | None = None,
        context: Context = ANYWHERE,
    ) -> abstract.Amount:
        """Return ``amount`` itself, if it fits: a counted unit has no place of its own.

        :raises InvalidInput: for an amount of another kind
        :raises CapacityException: naming the rule it breaks
        """
        if amount.__class__ is not IntegerAmount:
            raise _wrong_kind(amount)
        requested = amount._obj_value
        bound = self.usage_limit if limit is None else self._bound(limit)
        if context is ANYWHERE or not context.in_part:  # the first is the cheaper question
            rule = self._broken_rule(requested, bound)
        else:
            rule = self._broken_total(requested, bound)
        if rule is not None:
            raise CapacityException([self._reason(rule, requested, bound)])
        return amount

    def apply(self, assigned: abstract.Amount) -> None:
        self._obj_used += assigned._obj_value  # type: ignore[attr-defined]

    def _broken_rule(self, requested: int, limit: int | None) -> Rule | None:
        """Return the first rule that ``asked`` breaks: the one place where it is decided."""
        if requested <= 0:
            return Rule.USED_BELOW_ZERO if self._obj_used + requested < 0 else None
        if requested < self._obj_min_unit:
            return Rule.MIN_UNIT
        if self._obj_max_unit is not None and requested > self._obj_max_unit:
            return Rule.MAX_UNIT
        if requested % self._obj_step_size:
            return Rule.STEP_SIZE
        after = self._obj_used + requested
        if limit is not None and limit < self._capacity:  # the tighter bound is told
            return Rule.LIMIT if after > limit else None
        return Rule.CAPACITY if after > self._capacity else None

    def _broken_total(self, requested: int, limit: int | None) -> Rule | None:
        """Return the first rule of totals that ``asked`` breaks."""
        after = self._obj_used + requested
        if requested <= 0:
            return Rule.USED_BELOW_ZERO if after < 0 else None
        if limit is not None and limit < self._capacity:
            return Rule.LIMIT if after > limit else None
        return Rule.CAPACITY if after > self._capacity else None

    def _reason(self, rule: Rule, requested: int, limit: int | None) -> Reason:
        bounds = {
            Rule.USED_BELOW_ZERO: 0,
            Rule.MIN_UNIT: self._obj_min_unit,
            Rule.MAX_UNIT: self._obj_max_unit,
            Rule.STEP_SIZE: self._obj_step_size,
            Rule.CAPACITY: self._capacity,
            Rule.LIMIT: limit,
        }
        return Reason(rule, requested, bounds[rule] or 0, self._obj_used, self._obj_resource_class)

    def to_records(self) -> tuple[InventoryRecord, ...]:
        """Return the one record of this inventory."""
        if self._obj_resource_class is None:
            raise InvalidInventory("resource_class", None, "what it is an inventory of")
        if not self._obj_total:
            raise self._contradiction("total", f"from 1 to {MAX_FIGURE}")
        record = InventoryRecord(
            self._obj_resource_class,
            self._obj_total,
            self._obj_reserved,
            self._obj_min_unit,
            self._obj_max_unit,
            self._obj_step_size,
            ratio.to_millionths(self._obj_allocation_ratio),
            self._capacity,
            self._obj_used,
        )
        return (record,)

    def _storage(self) -> None:
        """State for type checkers the storage of the fields, which the methods above read."""
        self._obj_total: int
        self._obj_reserved: int
        self._obj_min_unit: int
        self._obj_max_unit: int | None
        self._obj_step_size: int
        self._obj_allocation_ratio: Decimal
        self._obj_used: int
        self._obj_resource_class: str | None


def _value_of(amount: object) -> int:
    if amount.__class__ is not IntegerAmount:
        raise _wrong_kind(amount)
    return amount._obj_value


def _wrong_kind(amount: object) -> InvalidInput:
    return _invalid_kind_of_amount("amount", amount, "an IntegerAmount")


def _limit_of(limit: object) -> int:
    if limit.__class__ is not IntegerAmount:
        raise _invalid_kind_of_amount("limit", limit, "an IntegerAmount or None")
    value = limit._obj_value
    if value < 0:
        raise _invalid_negative_amount("limit", value, "0 or more")
    return value


class _Kept:
    """The figures of a record, where the decision of an inventory reads them."""

    __slots__ = ("_capacity", "_obj_max_unit", "_obj_min_unit", "_obj_step_size", "_obj_used")

    def __init__(self, record: InventoryRecord, used: int) -> None:
        self._obj_min_unit = record.min_unit
        self._obj_max_unit = record.max_unit
        self._obj_step_size = record.step_size
        self._capacity = record.capacity
        self._obj_used = used


def follow_total(max_unit: int | None, total: int, new_total: int) -> int | None:
    """Return the largest claim after a change of total: it follows where it was the total.

    >>> follow_total(8, 8, 16), follow_total(2, 8, 16), follow_total(6, 8, 4)
    (16, 2, 4)
    """
    if max_unit is None or (max_unit != total and max_unit <= new_total):
        return max_unit
    return new_total


@base.register
class IntegerResource(abstract.Resource):
    """A resource that is counted.

    >>> licence = IntegerResource("CUSTOM_LICENCE", units="seats")
    >>> licence.make_inventory(total=5).can_provide(licence.make_amount(2))
    True
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = IntegerAmount
    inventory_kind = IntegerInventory

    @on_class_or_instance
    def make_amount(this: Any, /, value: int) -> IntegerAmount:  # noqa: N805
        """Return the amount of ``value`` units."""
        return IntegerAmount(value)

    @on_class_or_instance
    def make_inventory(this: Any, /, total: int = 0, **figures: Any) -> IntegerInventory:  # noqa: N805
        """Return an inventory; ``figures`` as :class:`IntegerInventory` has them."""
        return _inventory_of_figures(this, total, figures)

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> IntegerInventory:
        """Return the inventory of one record."""
        return _inventory_of_records(records)

    def certainly_fits(self, record: InventoryRecord, amount: int, used: int) -> bool:
        """Return whether ``amount`` breaks no rule: what the inventory itself would say."""
        if type(self) is not IntegerResource:  # it may make inventories of a kind of its own
            return False
        kept: Any = _Kept(record, used)
        return IntegerInventory._broken_rule(kept, amount, None) is None

    def parse_amount(self, text_form: str) -> IntegerAmount:
        """Return the amount of decimal digits, with a sign where it gives back."""
        return _amount_of_text(self, text_form)

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the digits."""
        return str(_value_of(amount))

    def parse_inventory(self, text_form: str) -> IntegerInventory:
        """Return the inventory of ``TOTAL[:figure=value]...``.

        >>> IntegerResource("VCPU").parse_inventory("8:reserved=1:allocation_ratio=1.5").capacity
        10
        """
        return _inventory_of_text(self, text_form)

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return the total and every figure that is not what :meth:`make_inventory` gives."""
        return _text_of_inventory(self, inventory)


# --- slots ----------------------------------------------------------------------------------------
# Slots stand for a policy and not for hardware. Source: the extensible resource tracking design
# (Nova, Juno): "a provider may choose that only one instance of a certain type should run on any
# compute node" must be expressible.


@base.register
class SlotResource(abstract.Resource):
    """A resource that only limits how many consumers of a type one provider holds.

    A host that declares it has one slot unless told otherwise; a consumer of the type takes one.
    "At most one database per host" is a resource, an inventory on each host, and an amount in the
    request of each database:

    >>> database = SlotResource("CUSTOM_DATABASE_SLOT")
    >>> slots = database.make_inventory()
    >>> slots.consume(database.make_amount())
    IntegerAmount(1)
    >>> slots.can_provide(database.make_amount())
    False
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    amount_kind = IntegerAmount
    inventory_kind = IntegerInventory

    def __init__(
        self, name: str, type: str = "abstract", units: str = "slots", description: str = ""
    ) -> None:
        super().__init__(name, type, units, description)

    def make_empty(self) -> IntegerInventory:
        """Return the inventory of a place without slots."""
        return self.make_inventory(0)

    @on_class_or_instance
    def make_amount(this: Any, /, value: int = 1) -> IntegerAmount:  # noqa: N805
        """Return the amount of one consumer: one slot."""
        return IntegerAmount(value)

    @on_class_or_instance
    def make_inventory(this: Any, /, total: int = 1, **figures: Any) -> IntegerInventory:  # noqa: N805
        """Return an inventory of one slot, of which a claim takes at most one."""
        most = None if total == 0 else 1
        return _inventory_of_figures(this, total, {"max_unit": most, **figures})

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> IntegerInventory:
        """Return the inventory of one record."""
        return _inventory_of_records(records)

    def parse_amount(self, text_form: str) -> IntegerAmount:
        """Return the amount of decimal digits, with a sign where it gives back."""
        return _amount_of_text(self, text_form)

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the digits."""
        return str(_value_of(amount))

    def parse_inventory(self, text_form: str) -> IntegerInventory:
        """Return the inventory of ``TOTAL[:figure=value]...``."""
        return _inventory_of_text(self, text_form)

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return the total and every figure that is not what :meth:`make_inventory` gives."""
        return _text_of_inventory(self, inventory)


# --- what is counted, as it is kept and as text ---------------------------------------------------


def _inventory_of_figures(resource: Any, total: int, figures: dict[str, Any]) -> IntegerInventory:
    """Return the inventory of a resource; an error about a figure names the resource.

    :param resource: a resource, or its class, which has no name
    """
    if isinstance(resource, type):
        return IntegerInventory(total, **figures)
    try:
        return IntegerInventory(total, **{"resource_class": resource.name, **figures})
    except InvalidInput as error:
        if not error.is_about("field", "ratio"):
            raise
        field = error.what.removeprefix("IntegerInventory.")
        raise error.renamed(f"{resource.name} {field}", error.value) from error


def _inventory_of_records(records: Sequence[InventoryRecord]) -> IntegerInventory:
    (record,) = records
    return IntegerInventory(
        record.total,
        record.reserved,
        record.min_unit,
        record.max_unit,
        record.step_size,
        ratio.from_millionths(record.ratio_millionths),
        record.used,
        resource_class=record.resource_class,
    )


def _amount_of_text(resource: abstract.Resource, text_form: str) -> IntegerAmount:
    return IntegerAmount(text.integer(text_form, f"amount of {resource.name}"))


def _inventory_of_text(
    resource: IntegerResource | SlotResource, text_form: str
) -> IntegerInventory:
    total, options = text.total_and_options(text_form, f"inventory of {resource.name}", _FIGURES)
    figures = {name: _read_figure(name, value) for name, value in options.items()}
    return resource.make_inventory(text.integer(total, f"total of {resource.name}"), **figures)


def _text_of_inventory(
    resource: IntegerResource | SlotResource, inventory: abstract.Inventory
) -> str:
    """Return the total and every figure that is not what the resource makes of the total alone."""
    if not isinstance(inventory, IntegerInventory):
        raise InvalidInventory(resource.name, inventory, "an IntegerInventory")
    usual = resource.make_inventory(inventory.total)
    shown = [
        f"{name}={_NONE if value is None else format(value, 'f' if 'ratio' in name else 'd')}"
        for name in _FIGURES
        if (value := getattr(inventory, name)) != getattr(usual, name)
    ]
    return ":".join([str(inventory.total), *shown])


_FIGURES = ("reserved", "min_unit", "max_unit", "step_size", "allocation_ratio", "used")
#: How a text form says that there is no max_unit, where one is usual.
_NONE = "none"


def _read_figure(name: str, value: str) -> Any:
    if name == "allocation_ratio":
        return value
    return None if (name, value) == ("max_unit", _NONE) else text.integer(value, name)
