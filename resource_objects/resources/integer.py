"""The integer kind: memory, disk, CPUs, licences, anything that is only counted.

The rules are Placement's (capacity, min_unit, max_unit, step_size) as restated in
``doc/source/explanation/modelling.rst``; an inventory that contradicts itself cannot be made.

Methods read fields as ``self._obj_used``, the storage of the field, because they run for every host
of a fleet and the descriptor doubles their time.
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
    """A number of units, negative to release.

    Frozen, hashable, ordered; ``+``, ``-`` and unary ``-`` return amounts. The value is an integer
    of 64 bits whose negative is one too; bool, float and text are rejected. The class is final:
    another kind of amount derives from :class:`~resource_objects.resources.abstract.Amount`. Cost:
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
        raise TypeError("IntegerAmount is final: another kind derives from Amount")

    @property
    def is_zero(self) -> bool:
        """True for 0."""
        return self._obj_value == 0

    @property
    def is_negative(self) -> bool:
        """True below 0: the amount is released."""
        return self._obj_value < 0

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
    """An inventory of a counted resource at one provider.

    ============================  ==================================================================
    ``total``                     the number of units, 0 to 2^31-1; an inventory of 0 is not stored
    ``reserved``                  units that are set aside, at most total
    ``min_unit``, ``max_unit``    the minimum and maximum of one claim; ``max_unit`` is None, or at
                                  least min_unit and at most total
    ``step_size``                 the amount of one claim is a multiple of it
    ``allocation_ratio``          the overcommit factor: above 0, at most six decimals
    ``used``                      allocated units, 0 to 2^63-1
    ``capacity``                  floor((total - reserved) * allocation_ratio), exact
    ``free``                      capacity - used, negative after a shrink below the usage
    ============================  ==================================================================

    Total may be lowered, or reserved raised, below the usage, because hardware can fail: ``free``
    becomes negative, allocations stay, and until enough is released only zero and negative amounts
    fit. Unit rules bind positive amounts only; zero always fits and changes nothing.

    Setting a field validates the whole inventory; :meth:`update` sets fields that depend on each
    other. Cost: about 4 microseconds to make, 0.3 to decide, whatever the figures.

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

    #: A bound on the usage besides the capacity, None for no bound. It is not copied.
    usage_limit = _NO_BOUND

    def _validate(self) -> None:
        if self._obj_reserved > self._obj_total:
            raise self._contradiction("reserved", f"at most the total of {self._obj_total}")
        max_unit = self._obj_max_unit
        if max_unit is not None and not self._obj_min_unit <= max_unit <= self._obj_total:
            raise self._contradiction(
                "max_unit",
                f"from the min_unit of {self._obj_min_unit} to the total of {self._obj_total}",
            )
        self._after_copy()

    def _contradiction(self, field: str, expected: str) -> InvalidInventory:
        label = f"{self._obj_resource_class} {field}" if self._obj_resource_class else field
        return InvalidInventory(label, getattr(self, field), expected)

    def _after_copy(self) -> None:
        available = self._obj_total - self._obj_reserved
        ratio_millionths = ratio.to_millionths(self._obj_allocation_ratio)
        self._capacity = available * ratio_millionths // ratio.MILLION

    @property
    def capacity(self) -> int:
        """The number of units that can be allocated: floor((total - reserved) * ratio)."""
        return self._capacity

    @property
    def is_empty(self) -> bool:
        """True for a total of 0."""
        return not self._obj_total

    @property
    def free(self) -> int:
        """Capacity minus used; negative after a shrink below the usage."""
        return self._capacity - self._obj_used

    def update(self, **values: Any) -> bool:
        """Set several fields at once, validated together; return True if anything changed.

        If only ``total`` changes, a ``max_unit`` that equals the total, or exceeds the new one,
        follows it.
        """
        total = values.get("total")
        if type(total) is int and total > 0 and "max_unit" not in values:
            values["max_unit"] = follow_total(self.max_unit, self.total, total)
        return super().update(**values)

    # --- the decision ---

    def can_provide(self, amount: abstract.Amount, limit: abstract.Amount | None = None) -> bool:
        """Return True if ``amount`` fits: unit rules, capacity and limit.

        :raises InvalidInput: (a ``ValueError``) for an amount of another kind or a negative one
        """
        if amount.__class__ is not IntegerAmount:  # inlined: a call would cost a sixth
            raise _wrong_kind(amount)
        requested = amount._obj_value
        if requested < 0:
            raise _invalid_negative_amount("amount", requested, "0 or more; release by consume")
        bound = self.usage_limit if limit is None else self._bound(limit)
        return self._broken_rule(requested, bound) is None

    def _bound(self, limit: abstract.Amount) -> int:
        if limit.__class__ is not IntegerAmount:
            raise _invalid_kind_of_amount("limit", limit, "an IntegerAmount or None")
        bound = limit._obj_value
        if bound < 0:
            raise _invalid_negative_amount("limit", bound, "0 or more")
        return bound if self.usage_limit is None else min(bound, self.usage_limit)

    def fit(
        self,
        amount: abstract.Amount,
        limit: abstract.Amount | None = None,
        context: Context = ANYWHERE,
    ) -> abstract.Amount:
        """Return ``amount`` itself if it fits: a count has no placement.

        :raises InvalidInput: for an amount of another kind
        :raises CapacityException: with the rule that it breaks
        """
        if amount.__class__ is not IntegerAmount:
            raise _wrong_kind(amount)
        requested = amount._obj_value
        bound = self.usage_limit if limit is None else self._bound(limit)
        if context is ANYWHERE or not context.in_part:  # the identity test is the cheaper one
            rule = self._broken_rule(requested, bound)
        else:
            rule = self._broken_total(requested, bound)
        if rule is not None:
            raise CapacityException([self._reason(rule, requested, bound)])
        return amount

    def apply(self, assigned: abstract.Amount) -> None:
        self._obj_used += assigned._obj_value  # type: ignore[attr-defined]

    def _broken_rule(self, requested: int, limit: int | None) -> Rule | None:
        """Return the first rule that a requested amount breaks. All decisions call this method."""
        if requested <= 0:
            return Rule.USED_BELOW_ZERO if self._obj_used + requested < 0 else None
        if requested < self._obj_min_unit:
            return Rule.MIN_UNIT
        if self._obj_max_unit is not None and requested > self._obj_max_unit:
            return Rule.MAX_UNIT
        if requested % self._obj_step_size:
            return Rule.STEP_SIZE
        after = self._obj_used + requested
        if limit is not None and limit < self._capacity:  # a reason names the tighter bound
            return Rule.LIMIT if after > limit else None
        return Rule.CAPACITY if after > self._capacity else None

    def _broken_total(self, requested: int, limit: int | None) -> Rule | None:
        """Return the first rule that a part of a claim breaks: unit rules bind the whole."""
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
        """Return the one record of this inventory.

        :raises InvalidInventory: without a resource class, or for a total of 0
        """
        if self._obj_resource_class is None:
            raise InvalidInventory("resource_class", None, "the resource class of the inventory")
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
        """Declare the storage of the fields for type checkers."""
        self._obj_total: int
        self._obj_reserved: int
        self._obj_min_unit: int
        self._obj_max_unit: int | None
        self._obj_step_size: int
        self._obj_allocation_ratio: Decimal
        self._obj_used: int
        self._obj_resource_class: str | None


def _wrong_kind(amount: object) -> InvalidInput:
    return _invalid_kind_of_amount("amount", amount, "an IntegerAmount")


class _RecordFigures:
    """The figures of a record under the names that ``IntegerInventory._broken_rule`` reads."""

    __slots__ = ("_capacity", "_obj_max_unit", "_obj_min_unit", "_obj_step_size", "_obj_used")

    def __init__(self, record: InventoryRecord, used: int) -> None:
        self._obj_min_unit = record.min_unit
        self._obj_max_unit = record.max_unit
        self._obj_step_size = record.step_size
        self._capacity = record.capacity
        self._obj_used = used


def follow_total(max_unit: int | None, total: int, new_total: int) -> int | None:
    """Return the max_unit after a change of total: one that was the total follows it.

    >>> follow_total(8, 8, 16), follow_total(2, 8, 16), follow_total(6, 8, 4)
    (16, 2, 4)
    """
    if max_unit is None or (max_unit != total and max_unit <= new_total):
        return max_unit
    return new_total


#: The figures that the text of an inventory may state.
_FIGURES = ("reserved", "min_unit", "max_unit", "step_size", "allocation_ratio", "used")


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
        """Return an inventory; ``figures`` are fields of :class:`IntegerInventory`.

        :raises InvalidInput: for an invalid figure; the error names the resource
        """
        if isinstance(this, type):  # the class has no name
            return IntegerInventory(total, **figures)
        try:
            return IntegerInventory(total, **{"resource_class": this.name, **figures})
        except InvalidInput as error:
            if not error.is_about("field", "ratio"):
                raise
            field = error.what.removeprefix("IntegerInventory.")
            raise error.renamed(f"{this.name} {field}", error.value) from error

    def inventory_from_records(self, records: Sequence[InventoryRecord]) -> IntegerInventory:
        """Return the inventory of one record."""
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

    def certainly_fits(self, record: InventoryRecord, amount: int, used: int) -> bool:
        """Return True if ``amount`` breaks no rule of a stored inventory."""
        if type(self) is not IntegerResource:  # a subclass may have another kind of inventory
            return False
        figures: Any = _RecordFigures(record, used)
        return IntegerInventory._broken_rule(figures, amount, None) is None

    def parse_amount(self, text_form: str) -> IntegerAmount:
        """Return the amount of decimal digits, with a sign to release."""
        return IntegerAmount(text.integer(text_form, f"amount of {self.name}"))

    def format_amount(self, amount: abstract.Amount) -> str:
        """Return the digits of an amount.

        :raises InvalidInput: for an amount of another kind
        """
        if amount.__class__ is not IntegerAmount:
            raise _wrong_kind(amount)
        return str(amount._obj_value)

    def parse_inventory(self, text_form: str) -> IntegerInventory:
        """Return the inventory of ``TOTAL[:figure=value]...``.

        >>> IntegerResource("VCPU").parse_inventory("8:reserved=1:allocation_ratio=1.5").capacity
        10
        """
        label = f"inventory of {self.name}"
        total, options = text.total_and_options(text_form, label, _FIGURES)
        figures: dict[str, Any] = {}
        for name, value in options.items():
            if name == "allocation_ratio":
                figures[name] = value
            elif (name, value) == ("max_unit", "none"):
                figures[name] = None
            else:
                figures[name] = text.integer(value, name)
        return self.make_inventory(text.integer(total, f"total of {self.name}"), **figures)

    def format_inventory(self, inventory: abstract.Inventory) -> str:
        """Return the total and each figure that differs from that of ``make_inventory(total)``.

        :raises InvalidInventory: for an inventory of another kind
        """
        if not isinstance(inventory, IntegerInventory):
            raise InvalidInventory(self.name, inventory, "an IntegerInventory")
        default = self.make_inventory(inventory.total)
        figures = [
            f"{name}={'none' if value is None else format(value, 'f' if 'ratio' in name else 'd')}"
            for name in _FIGURES
            if (value := getattr(inventory, name)) != getattr(default, name)
        ]
        return ":".join([str(inventory.total), *figures])
