"""What a request asks for: counts, class by class, and amounts that say where they go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request
from resource_objects.resources import Amount, joint, resource
from resource_objects.resources.records import AmountRecord


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """One class that is asked for.

    ``whole`` is the amount that says so; None where it is a part of an amount of several classes.
    ``units`` are those asked for by name: then one provider gives all of it.
    """

    resource_class: str
    amount: int
    whole: Amount | None = None
    units: tuple[str, ...] = ()


def located(request: Request) -> Mapping[str, Amount]:
    """Return the amounts of the unnamed group whose inventories lie over trees, by class."""
    asked = request.unnamed.resources.by_name()
    return {name: amount for name, amount in asked if _is_located(name)}


def wanted(request: Request) -> tuple[Wanted, ...]:
    """Return each class that the unnamed group asks for as a count, once, in the order it comes in.

    Not those that a located amount stands for (D1), nor that amount. A count of a class and an
    amount that is kept in the same class in one place ask for the same thing, which the latter
    locates; they have to agree.

    :raises WrongAmountKind: for an amount that is kept as nothing, or not as counts above 0
    :raises InvalidRequest: if a count does not agree with what locates it
    """
    counted: dict[str, Wanted] = {}
    kept: dict[str, Wanted] = {}
    for name, amount in _counts(request):
        records = amount.to_records(name)
        _check(name, amount, records)
        if [record.resource_class for record in records] == [name]:
            counted[name] = Wanted(name, records[0].amount, amount, records[0].units)
        else:
            for record in records:
                _add(kept, record)
    for name, part in kept.items():
        if name in counted and counted[name].amount != part.amount:
            raise exceptions.InvalidRequest(
                name, counted[name].amount, f"{part.amount}, as the amount that locates it says"
            )
    return tuple({**counted, **kept}.values())


def _counts(request: Request) -> Iterable[tuple[str, Amount]]:
    """Return what a request asks for beside what lies over trees."""
    asked = joint.split(request.unnamed.resources)
    every: Iterable[tuple[str, Amount]] = request.unnamed.resources.by_name()
    if asked is not None:
        every = [*asked.others.items(), *asked.located.items()]
    return [(name, amount) for name, amount in every if not _is_located(name)]


def _is_located(name: str) -> bool:
    return resource(name).is_located


def _check(name: str, amount: Amount, records: Iterable[AmountRecord]) -> None:
    found = [record.amount for record in records]
    if not found or min(found) < 1:
        raise exceptions.WrongAmountKind(name, amount, "one that is kept as counts above 0")


def _add(kept: dict[str, Wanted], record: AmountRecord) -> None:
    before = kept.get(record.resource_class, Wanted(record.resource_class, 0))
    amount = before.amount + record.amount
    if amount > MAX_AMOUNT:
        raise exceptions.InvalidRequest(record.resource_class, amount, f"at most {MAX_AMOUNT}")
    kept[record.resource_class] = dataclasses.replace(
        before, amount=amount, units=(*before.units, *record.units)
    )
