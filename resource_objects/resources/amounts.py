"""Amounts of several resources at once, and limits: two mappings for two kinds of absence.

In :class:`Amounts` an absent resource is zero; in :class:`Limits` an absent resource is without
bound. (The same distinction as between quantities and limits in Mesos.)
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
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
    """Return an amount as it is, or made by its resource from a plain value."""
    kind = resource.amount_kind
    if type(value) is kind:  # most are; of an abstract class it takes longer to ask
        return value
    amount = value if isinstance(value, Amount) else resource.make_amount(value)
    return _of_kind(resource, amount, kind)


def _limit_of(resource: Resource, value: Any) -> Amount:
    """Return a limit as it is, or made by its resource from a plain value."""
    if resource.limit_kind is None:
        return _amount_of(resource, value)
    return _of_kind(resource, value, resource.limit_kind)


def _of_kind(resource: Resource, amount: Any, kind: type[Amount]) -> Amount:
    if not isinstance(amount, kind):
        raise _invalid_kind_of_amount(resource.name, amount, f"of the kind {kind.__name__}")
    return amount


class _AmountMapping(base.ResourceObject, ByResource[Amount], frozen=True):
    """A frozen mapping of resources to amounts, with the text form."""

    by_class = fields.map_of("Amount")

    _WHAT = "amounts"

    def _value_of(self, resource: Resource, value: Any) -> Amount:
        return _amount_of(resource, value)

    def __init__(self, given: AmountsLike = _NOTHING, /, **named: Any) -> None:
        if given is not _NOTHING and named:
            raise InvalidInput("repetition", self._WHAT, given, "either a mapping or keywords")
        self._init_fields(by_class=self._read(named or given))

    @classmethod
    def from_value(cls, given: Self | AmountsLike) -> Self:
        """Return ``given`` itself if it is one already, else one made from it."""
        return given if isinstance(given, cls) else cls(given)

    @classmethod
    def parse(cls, text_form: str) -> Self:
        """Return what the text form says; :func:`str` gives it back.

        :raises InvalidInput: if it does not parse; for a class named twice
        """
        if not isinstance(text_form, str):
            raise InvalidInput("text", cls._WHAT, text_form, "text such as VCPU=2,MEMORY_MB=4096")
        return cls(text_form)

    def _read(self, given: Any) -> dict[str, Amount]:
        if isinstance(given, str):
            pairs = text.pairs(given, self._WHAT)
            return by_name(pairs, self._parsed, self._WHAT)
        if isinstance(given, Mapping):
            return by_name(given, self._value_of, self._WHAT)
        raise _invalid_amount(self._WHAT, given, "a mapping of resources or text")

    def _parsed(self, resource: Resource, text_form: str) -> Amount:
        return resource.parse_amount(text_form)

    def _said(self, resource: Resource, amount: Amount) -> str:
        return resource.format_amount(amount)

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        load_kinds(primitive)
        return super()._obj_from_primitive(context, objver, primitive)

    def _validate(self) -> None:
        for name, amount in self.by_name():
            self._value_of(resource(name), amount)  # of a class that is not known it fails

    __contains__ = ByResource.__contains__  # not whether it has a field of that name

    def __str__(self) -> str:
        return ",".join(
            f"{resource.name}={self._said(resource, amount)}" for resource, amount in self.items()
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


@base.register
class Amounts(_AmountMapping):
    """Amounts of several resources; what is absent is zero, so zeros are not kept.

    Making: from a mapping (keys resources or names, values amounts or what their resource makes
    one from), from keywords, from text. Asking: the mapping's methods. Arithmetic: ``+``, ``-``,
    unary ``-``. Cost: a few microseconds for a handful of resources.

    >>> asked = Amounts.parse("VCPU=2,MEMORY_MB=4096")
    >>> asked["VCPU"], "DISK_GB" in asked
    (IntegerAmount(2), False)
    >>> print(asked + Amounts(VCPU=1) - asked)
    VCPU=1
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    def _validate(self) -> None:
        super()._validate()
        kept = {name: amount for name, amount in self.by_name() if not amount.is_zero}
        if len(kept) != len(self):
            self._store("by_class", fields.FrozenDict(kept))

    def __add__(self, other: Amounts) -> Amounts:
        return self._combine(other, operator.add, lambda theirs: theirs)

    def __sub__(self, other: Amounts) -> Amounts:
        return self._combine(other, operator.sub, operator.neg)

    def __neg__(self) -> Amounts:
        return Amounts({name: -amount for name, amount in self.by_name()})

    @property
    def is_zero(self) -> bool:
        """Whether this is nothing at all."""
        return not self

    def with_implied_counts(self) -> Amounts:
        """Return these amounts with the counts that structured ones imply, each stated once (D1).

        A topology of 4 shared vCPUs implies ``VCPU=4``, stated or not. Memory that it asks for in
        huge pages is not the host's ordinary memory: a count of it goes. The structured amounts
        then know which counts are requested in addition (:attr:`Amount.counted_separately`) and do
        not use these too, so that consuming one amount after the other has one result in any order.

        :raises InvalidInput: if a count does not agree with what locates it

        >>> asked = Amounts("NUMA_TOPOLOGY=1:shared=4:memory=512").with_implied_counts()
        >>> print(asked, *sorted(asked["NUMA_TOPOLOGY"].counted_separately))
        VCPU=4,MEMORY_MB=512,NUMA_TOPOLOGY=1:shared=4:memory=512 MEMORY_MB VCPU
        """
        joint = split_placed(self)
        return self if joint is None else Amounts(joint.with_implied_counts())

    def as_requested(self) -> Amounts:
        """Return these amounts, of which none knows of counts beside it: as somebody asks."""
        if not any(amount.counted_separately for amount in self.values()):
            return self
        return Amounts({name: amount.counting_separately(()) for name, amount in self.by_name()})

    def _combine(
        self, other: object, both: Callable[[Any, Any], Any], alone: Callable[[Any], Any]
    ) -> Amounts:
        """Combine class by class; a kind without ``+`` works where only one side has it.

        :raises InvalidInput: where both sides say where something is
        """
        if not isinstance(other, Amounts):
            return typing.cast(Amounts, NotImplemented)
        combined = dict(self._obj_by_class)
        for name, theirs in other.by_name():
            mine = combined.get(name)
            if mine is not None and mine.is_placed:
                raise _invalid_kind_of_amount(name, theirs, "amounts that add up")
            combined[name] = alone(theirs) if mine is None else both(mine, theirs)
        return Amounts(combined)


#: What the constructor of :class:`Amounts` takes: text, or a mapping of resources or their names to
#: amounts or what a resource makes an amount of.
AmountsLike: TypeAlias = Amounts | str | Mapping[Any, Any]


@base.register
class Limits(_AmountMapping):
    """Totals set from outside for one claim; what is absent is without bound, zero is a bound.

    >>> limits = Limits(VCPU=16, DISK_GB=0)
    >>> limits.get("VCPU"), limits.get("DISK_GB"), limits.get("MEMORY_MB")
    (IntegerAmount(16), IntegerAmount(0), None)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    _WHAT = "limits"

    def _value_of(self, resource: Resource, value: Any) -> Amount:
        return _limit_of(resource, value)

    def _parsed(self, resource: Resource, text_form: str) -> Amount:
        return resource.parse_limit(text_form)

    def _said(self, resource: Resource, amount: Amount) -> str:
        return resource.format_limit(amount)

    def _validate(self) -> None:
        super()._validate()
        for name, amount in self.by_name():
            if amount.is_negative:
                raise InvalidInput("negative amount", f"limit of {name}", amount, "0 or more")


# --- counts and what locates them (D1) ------------------------------------------------------------
# A structured amount locates; it adds nothing. Of VCPU=4 and a topology of 4 shared vCPUs, four are
# asked for. The counts have to agree with what locates them, or are implied by it; and they are
# taken once: of the cells, and through them of the host as a whole.


@dataclasses.dataclass(frozen=True, slots=True)
class PlacementSplit:
    """Amounts, sorted by who decides about them."""

    placed: Mapping[str, Amount]  #: what says where
    stated_classes: frozenset[str]  #: classes that it locates and that are stated as counts besides
    others: Mapping[str, Amount]  #: everything else, and counts beyond those that are located

    def with_implied_counts(self) -> dict[str, Amount]:
        """Return all amounts by class, each count once (:meth:`Amounts.with_implied_counts`)."""
        located = {
            name: one.counting_separately(one.requested_host_usage)
            for name, one in self.placed.items()
        }
        counts = dict(implied_counts(self))
        others = {name: one for name, one in self.others.items() if name not in counts}
        return {**counts, **others, **located}


def split_placed(amounts: Amounts) -> PlacementSplit | None:
    """Return amounts, sorted; None if nothing says where anything is.

    :raises InvalidInput: if a count does not agree with what locates it
    """
    located = {name: amount for name, amount in amounts.by_name() if amount.is_placed}
    if not located:
        return None
    counts: dict[str, tuple[str, set[int]]] = {}
    for name, amount in located.items():
        for kind, possible in _possible(amount).items():
            if kind in counts:
                raise _invalid_amount(kind, name, "to be located by one amount only")
            counts[kind] = name, possible
    others: dict[str, Amount] = {}
    for name, amount in amounts.by_name():
        if name in counts:
            more = _beyond(name, amount, located[counts[name][0]])
            if more is None:
                _check(name, amount, *counts[name])
            elif not more.is_zero:
                others[name] = more
        elif name not in located:
            others[name] = amount
    return PlacementSplit(located, frozenset(counts).intersection(amounts.names()), others)


def _beyond(name: str, amount: Amount, by: Amount) -> IntegerAmount | None:
    """Return what is asked beyond what ``by`` locates, None unless the count stands beside it.

    A sum over several groups has more than the group that says where.
    """
    if name not in by.counted_separately or not isinstance(amount, IntegerAmount):
        return None
    more = amount - IntegerAmount(
        (-1 if by.is_negative else 1) * by.requested_host_usage.get(name, 0)
    )
    return more if more.is_zero or more.is_negative is by.is_negative else None


def _possible(amount: Amount) -> dict[str, set[int]]:
    """Return which counts agree with a located amount: as asked, or as taken of the host."""
    sign = -1 if amount.is_negative else 1
    result = {kind: {sign * count} for kind, count in amount.placed_counts.items()}
    if amount.is_assigned:
        for kind in result:
            result[kind].add(sign * amount.host_usage.get(kind, 0))
    return result


def _check(name: str, amount: Amount, by: str, possible: set[int]) -> None:
    if not isinstance(amount, IntegerAmount) or int(amount) not in possible:
        expected = " or ".join(map(str, sorted(possible - {0} or possible)))
        raise _invalid_amount(name, amount, f"{expected}, as {by} says")


def implied_counts(joint: PlacementSplit) -> Iterator[tuple[str, Amount]]:
    """Yield the counts that go with what was asked; negative if it gives back.

    With what is asked of the same classes beyond them.
    """
    for amount in joint.placed.values():
        for name, count in amount.requested_host_usage.items():
            whole = IntegerAmount(-count if amount.is_negative else count)
            more = joint.others.get(name)
            yield name, whole + more if isinstance(more, IntegerAmount) else whole


def no_inventory(name: str, amount: Amount) -> Reason:
    """Return why an amount does not fit where there is no inventory of its class."""
    requested = int(amount) if hasattr(amount, "__int__") else 1
    if amount.is_negative:
        return Reason(Rule.USED_BELOW_ZERO, requested, bound=0, used=0, resource=name)
    return Reason(Rule.NO_INVENTORY, requested, bound=0, used=0, resource=name)
