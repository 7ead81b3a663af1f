"""Amounts of several resources at once, and limits: two mappings for two kinds of absence.

In :class:`Amounts` an absent resource is zero; in :class:`Limits` an absent resource is without
bound. (The same distinction as between quantities and limits in Mesos.)
"""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable, Mapping
from typing import Any, Self

from resource_objects import base, exceptions, fields
from resource_objects.resources import joint as locating
from resource_objects.resources import text
from resource_objects.resources._by_resource import ByResource, by_name, load_kinds
from resource_objects.resources.abstract import Amount, Resource

_NOTHING: Any = {}


def _amount_of(resource: Resource, value: Any) -> Amount:
    """Return an amount as it is, or made by its resource from a plain value."""
    amount = value if isinstance(value, Amount) else resource.make_amount(value)
    return _of_kind(resource, amount, resource.amount_kind)


def _limit_of(resource: Resource, value: Any) -> Amount:
    """Return a limit as it is, or made by its resource from a plain value."""
    if resource.limit_kind is None:
        return _amount_of(resource, value)
    return _of_kind(resource, value, resource.limit_kind)


def _of_kind(resource: Resource, amount: Any, kind: type[Amount]) -> Amount:
    if not isinstance(amount, kind):
        raise exceptions.WrongAmountKind(resource.name, amount, f"of the kind {kind.__name__}")
    return amount


class _AmountMapping(base.Value, ByResource[Amount]):
    """A frozen mapping of resources to amounts, with the text form."""

    _WHAT = "amounts"

    def _value_of(self, resource: Resource, value: Any) -> Amount:
        """Return what is kept of a value that is given for a resource."""
        return _amount_of(resource, value)

    def __init__(self, given: Any = _NOTHING, /, **named: Any) -> None:
        if given is not _NOTHING and named:
            raise exceptions.DuplicateKey(self._WHAT, given, "either a mapping or keywords")
        self._fill({"by_class": self._read(named or given)})

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return ``given`` itself if it is one already, else one made from it."""
        return given if isinstance(given, cls) else cls(given)

    @classmethod
    def parse(cls, text_form: str) -> Self:
        """Return what the text form says; :func:`str` gives it back.

        :raises InvalidText: if it does not parse
        :raises DuplicateKey: for a class named twice
        """
        if not isinstance(text_form, str):
            raise exceptions.InvalidText(cls._WHAT, text_form, "text such as VCPU=2,MEMORY_MB=4096")
        return cls(text_form)

    def _read(self, given: Any) -> dict[str, Amount]:
        if isinstance(given, str):
            pairs = text.pairs(given, self._WHAT)
            return by_name(pairs, self._parsed, self._WHAT)
        if isinstance(given, Mapping):
            return by_name(given, self._value_of, self._WHAT)
        raise exceptions.InvalidAmount(self._WHAT, given, "a mapping of resources or text")

    def _parsed(self, resource: Resource, text_form: str) -> Amount:
        return resource.parse_amount(text_form)

    def _said(self, resource: Resource, amount: Amount) -> str:
        return resource.format_amount(amount)

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str, primitive: dict[str, Any]) -> Self:
        load_kinds(primitive)
        return super()._obj_from_primitive(context, objver, primitive)

    def _validate(self) -> None:
        for resource in self:  # a class that is not known fails here, whichever way it came in
            self._value_of(resource, self[resource])

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

    fields = {"by_class": fields.MapOfObjectsField("Amount")}

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

    def counted(self) -> Amounts:
        """Return these amounts with the counts that structured ones imply (D1).

        A topology of 4 shared vCPUs implies ``VCPU=4``, stated or not. Memory that it asks for in
        huge pages is not the host's ordinary memory: a count of it goes.

        :raises InvalidAmount: if a count does not agree with what locates it

        >>> print(Amounts("NUMA_TOPOLOGY=1:shared=4:memory=512").counted())
        VCPU=4,MEMORY_MB=512,NUMA_TOPOLOGY=1:shared=4:memory=512
        """
        joint = locating.split(self)
        if joint is None:
            return self
        return Amounts({**dict(locating.of_host(joint)), **joint.others, **joint.located})

    def _combine(
        self, other: object, both: Callable[[Any, Any], Any], alone: Callable[[Any], Any]
    ) -> Amounts:
        """Combine class by class; a kind without ``+`` works where only one side has it.

        :raises WrongAmountKind: where both sides say where something is
        """
        if not isinstance(other, Amounts):
            return typing.cast(Amounts, NotImplemented)
        combined = dict(self._obj_by_class)
        for name, theirs in other.by_name():
            mine = combined.get(name)
            if mine is not None and mine.locates:
                raise exceptions.WrongAmountKind(name, theirs, "amounts that add up")
            combined[name] = alone(theirs) if mine is None else both(mine, theirs)
        return Amounts(combined)


@base.register
class Limits(_AmountMapping):
    """Totals set from outside for one claim; what is absent is without bound, zero is a bound.

    >>> limits = Limits(VCPU=16, DISK_GB=0)
    >>> limits.get("VCPU"), limits.get("DISK_GB"), limits.get("MEMORY_MB")
    (IntegerAmount(16), IntegerAmount(0), None)
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    fields = {"by_class": fields.MapOfObjectsField("Amount")}

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
                raise exceptions.NegativeAmount(f"limit of {name}", amount, "0 or more")
