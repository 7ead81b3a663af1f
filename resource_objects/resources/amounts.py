"""Amounts of several resources at once, and limits: two mappings for two meanings of absence.

In :class:`Amounts` an absent resource is zero; in :class:`Limits` an absent resource is unbounded.
(Mesos makes the same distinction between quantities and limits.)
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

from resource_objects import base, fields
from resource_objects.exceptions import InvalidInput
from resource_objects.reasons import Reason, Rule
from resource_objects.resources import text
from resource_objects.resources.abstract import Amount, Resource
from resource_objects.resources.catalog import ByResource, by_name, load_kinds, resource
from resource_objects.resources.integer import IntegerAmount

_invalid_kind_of_amount = functools.partial(InvalidInput, "kind of amount")
_invalid_amount = functools.partial(InvalidInput, "amount")

_NOTHING: Any = {}


def _amount_of(resource: Resource, value: Any) -> Amount:
    kind = resource.amount_kind
    if type(value) is kind:  # the frequent case: isinstance takes longer with an abstract class
        return value
    amount = value if isinstance(value, Amount) else resource.make_amount(value)
    return _of_kind(resource, amount, kind)


def _of_kind(resource: Resource, amount: Any, kind: type[Amount]) -> Amount:
    if not isinstance(amount, kind):
        raise _invalid_kind_of_amount(resource.name, amount, f"of the kind {kind.__name__}")
    return amount


class _AmountMapping(base.ResourceObject, ByResource[Amount], frozen=True):
    """A frozen mapping of resources to amounts, with a text form."""

    by_class = fields.map_of("Amount")

    _LABEL = "amounts"

    def _value_of(self, resource: Resource, value: Any) -> Amount:
        return _amount_of(resource, value)

    def _parsed(self, resource: Resource, text_form: str) -> Amount:
        return resource.parse_amount(text_form)

    def _formatted(self, resource: Resource, amount: Amount) -> str:
        return resource.format_amount(amount)

    def __init__(self, value: AmountsLike = _NOTHING, /, **named: Any) -> None:
        if value is not _NOTHING and named:
            raise InvalidInput("repetition", self._LABEL, value, "either a mapping or keywords")
        self._init_fields(by_class=self._read(named or value))

    def _read(self, value: Any) -> dict[str, Amount]:
        if isinstance(value, str):
            return by_name(text.pairs(value, self._LABEL), self._parsed, self._LABEL)
        if isinstance(value, Mapping):
            return by_name(value, self._value_of, self._LABEL)
        raise _invalid_amount(self._LABEL, value, "a mapping of resources or text")

    @classmethod
    def from_value(cls, value: Self | AmountsLike) -> Self:
        """Return ``value`` itself if it is of this class, else an object made from it."""
        return value if isinstance(value, cls) else cls(value)

    @classmethod
    def parse(cls, text_form: str) -> Self:
        """Return the object of a text form; :func:`str` is the inverse.

        :raises InvalidInput: for text that cannot be parsed, or names a class twice
        """
        if not isinstance(text_form, str):
            raise InvalidInput("text", cls._LABEL, text_form, "text such as VCPU=2,MEMORY_MB=4096")
        return cls(text_form)

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        load_kinds(primitive)
        return super()._obj_from_primitive(context, objver, primitive)

    def _validate(self) -> None:
        for name, amount in self.by_name():
            self._value_of(resource(name), amount)  # raises for an unknown class

    __contains__ = ByResource.__contains__  # the base tests for fields

    def __str__(self) -> str:
        return ",".join(
            f"{resource.name}={self._formatted(resource, amount)}"
            for resource, amount in self.items()
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


@base.register
class Amounts(_AmountMapping):
    """Amounts of several resources; an absent one is zero, and zeros are not stored.

    Make: from a mapping (keys are resources or names, values amounts or what the resource makes one
    from), from keywords, from text. Read: the methods of a mapping. Calculate: ``+``, ``-``, unary
    ``-``. Cost: a few microseconds for a handful of resources.

    >>> requested = Amounts.parse("VCPU=2,MEMORY_MB=4096")
    >>> requested["VCPU"], "DISK_GB" in requested
    (IntegerAmount(2), False)
    >>> print(requested + Amounts(VCPU=1) - requested)
    VCPU=1
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    def _validate(self) -> None:
        super()._validate()
        stored = {name: amount for name, amount in self.by_name() if not amount.is_zero}
        if len(stored) != len(self):
            self._store("by_class", fields.FrozenDict(stored))

    def __add__(self, other: Amounts) -> Amounts:
        return self._combine(other, operator.add, lambda theirs: theirs)

    def __sub__(self, other: Amounts) -> Amounts:
        return self._combine(other, operator.sub, operator.neg)

    def __neg__(self) -> Amounts:
        return Amounts({name: -amount for name, amount in self.by_name()})

    def _combine(
        self, other: object, both: Callable[[Any, Any], Any], single: Callable[[Any], Any]
    ) -> Amounts:
        """Combine two mappings class by class.

        :raises InvalidInput: if both have an amount of one placed resource, which do not add up
        """
        if not isinstance(other, Amounts):
            return typing.cast(Amounts, NotImplemented)
        combined = dict(self._obj_by_class)
        for name, theirs in other.by_name():
            mine = combined.get(name)
            if mine is not None and mine.is_placed:
                raise _invalid_kind_of_amount(name, theirs, "amounts that add up")
            combined[name] = single(theirs) if mine is None else both(mine, theirs)
        return Amounts(combined)

    @property
    def is_zero(self) -> bool:
        """True if there are no amounts."""
        return not self

    def with_implied_counts(self) -> Amounts:
        """Return these amounts with the counts that placed amounts imply, each count once.

        A topology of 4 shared vCPUs implies ``VCPU=4``, whether it is stated or not. Memory in huge
        pages is not ordinary memory of the host: a count of it is removed. Each placed amount then
        knows which counts are requested in addition (:attr:`Amount.counted_separately`) and does
        not use these too, so that consuming one amount after the other has one result in any order.

        :raises InvalidInput: if a count contradicts a placed amount

        >>> amounts = Amounts("NUMA_TOPOLOGY=1:shared=4:memory=512").with_implied_counts()
        >>> print(amounts, *sorted(amounts["NUMA_TOPOLOGY"].counted_separately))
        VCPU=4,MEMORY_MB=512,NUMA_TOPOLOGY=1:shared=4:memory=512 MEMORY_MB VCPU
        """
        split = split_placed(self)
        return self if split is None else Amounts(split.with_implied_counts())

    def as_requested(self) -> Amounts:
        """Return these amounts with no ``counted_separately`` set, as a user states them."""
        if not any(amount.counted_separately for amount in self.values()):
            return self
        return Amounts({name: amount.counting_separately(()) for name, amount in self.by_name()})


#: The argument of :class:`Amounts`: text, or a mapping of resources or their names to amounts or to
#: values that a resource makes an amount of.
AmountsLike: TypeAlias = Amounts | str | Mapping[Any, Any]


@base.register
class Limits(_AmountMapping):
    """Upper bounds for one claim, set from outside; an absent one is unbounded, zero is a bound.

    >>> limits = Limits(VCPU=16, DISK_GB=0)
    >>> limits.get("VCPU"), limits.get("DISK_GB"), limits.get("MEMORY_MB")
    (IntegerAmount(16), IntegerAmount(0), None)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    _LABEL = "limits"

    def _value_of(self, resource: Resource, value: Any) -> Amount:
        if resource.limit_kind is None:
            return _amount_of(resource, value)
        return _of_kind(resource, value, resource.limit_kind)

    def _parsed(self, resource: Resource, text_form: str) -> Amount:
        return resource.parse_limit(text_form)

    def _formatted(self, resource: Resource, amount: Amount) -> str:
        return resource.format_limit(amount)

    def _validate(self) -> None:
        super()._validate()
        for name, amount in self.by_name():
            if amount.is_negative:
                raise InvalidInput("negative amount", f"limit of {name}", amount, "0 or more")


# --- counts of placed amounts ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementSplit:
    """Amounts, split into placed amounts and counts.

    A placed amount adds nothing to the counts: ``VCPU=4`` and a topology of 4 shared vCPUs request
    4 vCPUs. A count that is placed has to agree with the placed amount, or is implied by it.
    """

    placed: Mapping[str, Amount]
    stated_classes: frozenset[str]  #: classes that are placed, and stated as counts as well
    unplaced: Mapping[str, Amount]  #: all other amounts, and counts in excess of the placed ones

    def with_implied_counts(self) -> dict[str, Amount]:
        """Return all amounts by class, each count once (:meth:`Amounts.with_implied_counts`)."""
        implied: dict[str, Amount] = {}
        for amount in self.placed.values():
            for name, count in amount.requested_host_usage.items():
                total = IntegerAmount(-count if amount.is_negative else count)
                excess = self.unplaced.get(name)
                implied[name] = total + excess if isinstance(excess, IntegerAmount) else total
        counts = {name: amount for name, amount in self.unplaced.items() if name not in implied}
        placed = {
            name: amount.counting_separately(amount.requested_host_usage)
            for name, amount in self.placed.items()
        }
        return {**implied, **counts, **placed}


def split_placed(amounts: Amounts) -> PlacementSplit | None:
    """Return amounts split into placed amounts and counts; None if no amount is placed.

    :raises InvalidInput: if a count contradicts a placed amount
    """
    placed = {name: amount for name, amount in amounts.by_name() if amount.is_placed}
    if not placed:
        return None
    placed_by: dict[str, str] = {}
    for name, amount in placed.items():
        for counted in amount.placed_counts:
            if counted in placed_by:
                raise _invalid_amount(counted, name, "to be placed by one amount only")
            placed_by[counted] = name
    unplaced: dict[str, Amount] = {}
    for name, amount in amounts.by_name():
        if name in placed_by:
            excess = _excess(name, amount, placed[placed_by[name]])
            if excess is None:
                _check_agreement(name, amount, placed_by[name], placed[placed_by[name]])
            elif not excess.is_zero:
                unplaced[name] = excess
        elif name not in placed:
            unplaced[name] = amount
    return PlacementSplit(placed, frozenset(placed_by).intersection(amounts.names()), unplaced)


def _excess(name: str, count: Amount, placed: Amount) -> IntegerAmount | None:
    """Return a count minus that of a placed amount, None if the two have to agree.

    They may differ if the count is counted separately: a sum over groups exceeds the one group that
    has the placed amount.
    """
    if name not in placed.counted_separately or not isinstance(count, IntegerAmount):
        return None
    placed_count = placed.requested_host_usage.get(name, 0)
    excess = count - IntegerAmount(-placed_count if placed.is_negative else placed_count)
    return excess if excess.is_zero or excess.is_negative is placed.is_negative else None


def _check_agreement(name: str, count: Amount, placed_by: str, placed: Amount) -> None:
    """Raise ``InvalidInput`` for a count that is neither as requested nor as the host provides."""
    sign = -1 if placed.is_negative else 1
    possible = {sign * placed.placed_counts[name]}
    if placed.is_assigned:
        possible.add(sign * placed.host_usage.get(name, 0))
    if not isinstance(count, IntegerAmount) or int(count) not in possible:
        expected = " or ".join(map(str, sorted(possible - {0} or possible)))
        raise _invalid_amount(name, count, f"{expected}, as {placed_by} specifies")


def no_inventory(name: str, amount: Amount) -> Reason:
    """Return the reason for an amount of a class without an inventory."""
    requested = int(amount) if hasattr(amount, "__int__") else 1
    if amount.is_negative:
        return Reason(Rule.USED_BELOW_ZERO, requested, bound=0, used=0, resource=name)
    return Reason(Rule.NO_INVENTORY, requested, bound=0, used=0, resource=name)
