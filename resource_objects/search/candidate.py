"""A candidate: one complete way to satisfy a request. Pure: a value that crosses a wire."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping

from resource_objects import base, exceptions, fields, names
from resource_objects._ovo import fields as ovo_fields
from resource_objects.fields import MAX_AMOUNT, FrozenDict
from resource_objects.providers import Allocation
from resource_objects.providers.allocation import by_provider, to_dicts, total
from resource_objects.requests import Request
from resource_objects.resources import Amounts

#: The maximum number of parts that are tried for a placed amount next to those that a consumer
#: uses.
MOST_PARTS = 32


class Generation(ovo_fields.FieldType[tuple[str, int]]):
    """A provider's uuid with the generation of its definition."""

    _number = fields.StrictInteger(0, MAX_AMOUNT)

    def coerce(self, obj: typing.Any, attr: str, value: typing.Any) -> tuple[str, int]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError(attr)
        return names.uuid_text(value[0]), self._number.coerce(obj, attr, value[1])

    def to_primitive(self, obj: typing.Any, attr: str, value: tuple[str, int]) -> list[typing.Any]:
        return list(value)

    def describe(self) -> str:
        return "a uuid and a generation"


def _suffix(value: object) -> str:
    return "" if value == "" else names.label(value)


class Mappings(fields.FrozenDictOf):
    """The providers of each group: names by suffix."""

    def __init__(self) -> None:
        name = fields.Checked(names.provider_name, "a provider name", "^.{1,200}$")
        super().__init__(_suffix, fields.TupleOf(name))


@base.register
class Candidate(base.ResourceObject, frozen=True):
    """One complete way to satisfy a request: allocations of a tree and its pools.

    ``host`` is the name of the root of the tree. There is one allocation per provider and resource
    class.

    ``located`` are the placed amounts, assigned: which host cells, CPUs, pages and devices. They
    add nothing to the allocations, which carry the units.

    ``mappings`` are the names of the providers of each group, by its suffix; ``""`` is the unnamed
    group.

    ``generations`` are ``(uuid, generation)`` of the definitions on which the decision is based: of
    the providers of the allocations, and of the providers above them, whose traits count too.

    >>> from resource_objects.resources import IntegerAmount
    >>> cpus = Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(2))
    >>> print(Candidate(host="host0", allocations=(cpus,)))
    VCPU=2 of host0
    """

    # Version 1.0: Initial version
    VERSION = "1.0"

    host: str = fields.provider_name()
    allocations: fields.TupleFrom[Allocation] = fields.tuple_of("Allocation")
    generations: fields.TupleFrom[tuple[str, int]] = fields.tuple_of(Generation(), default=())
    located: Amounts = fields.nested("Amounts", default=Amounts())
    mappings: Mapping[str, tuple[str, ...]] = fields.field(Mappings(), default=FrozenDict())

    def _validate(self) -> None:
        if not self.allocations:
            raise exceptions.InvalidInput(
                "field", "Candidate.allocations", (), "at least one allocation"
            )
        seen: set[tuple[str, str]] = set()
        for allocation in self.allocations:
            if allocation.amount.is_negative or allocation.amount.is_zero:
                raise exceptions.InvalidInput(
                    "field", "Candidate.allocations", str(allocation), "amounts above 0"
                )
            key = allocation.provider, allocation.resource_class
            if key in seen:
                raise exceptions.InvalidInput(
                    "repetition", "Candidate.allocations", key, "each only once"
                )
            seen.add(key)

    @property
    def amounts(self) -> Amounts:
        """The allocated amounts, summed over providers."""
        return total(self.allocations)

    def by_provider(self) -> dict[str, Amounts]:
        """Return ``{provider name: amounts}``, in the order of the allocations."""
        return by_provider(self.allocations)

    @classmethod
    def from_dict(cls, data: typing.Any) -> typing.Self:
        """Return a candidate from plain data, as returned by :meth:`to_dict`.

        :raises InvalidInput: for other data
        """
        if not isinstance(data, Mapping):
            raise exceptions.InvalidInput("field", "candidate", data, "a mapping")
        figures = dict(data)
        allocations = figures.pop("allocations", None)
        if not isinstance(allocations, list | tuple):
            raise exceptions.InvalidInput("field", "candidate.allocations", allocations, "a list")
        text, assigned = figures.pop("located", {}), figures.pop("assigned", None)
        if text and assigned is None:
            raise exceptions.InvalidInput(
                "field", "candidate.assigned", None, f"the versioned object of {text}"
            )
        if assigned is not None:
            figures["located"] = Amounts.obj_from_primitive(assigned)
        return cls(allocations=list(map(Allocation.from_dict, allocations)), **figures)

    def to_dict(self) -> dict[str, typing.Any]:
        """Return plain data for JSON.

        ``located`` is text for display, ``assigned`` the same as a versioned object.

        >>> from resource_objects.resources import IntegerAmount
        >>> cpus = Allocation(provider="host0", resource_class="VCPU", amount=IntegerAmount(2))
        >>> found = Candidate(host="host0", allocations=(cpus,))
        >>> found.to_dict()["allocations"][0]["amount"]
        2
        >>> Candidate.from_dict(found.to_dict()) == found
        True
        """
        return {
            "host": self.host,
            "allocations": to_dicts(self.allocations),
            "mappings": {suffix: list(providers) for suffix, providers in self.mappings.items()},
            "located": {
                kind.name: kind.format_amount(amount) for kind, amount in self.located.items()
            },
            "generations": list(map(list, self.generations)),
            **({"assigned": self.located.obj_to_primitive()} if self.located else {}),
        }

    def __str__(self) -> str:
        return ", ".join(f"{amounts} of {name}" for name, amounts in self.by_provider().items())


@dataclasses.dataclass(frozen=True, slots=True)
class Chosen:
    """A candidate with its request: exactly this candidate is claimed and stored."""

    candidate: Candidate
    request: Request
