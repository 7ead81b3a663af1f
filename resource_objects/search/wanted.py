"""What a request asks for, class by class: every amount as the records it is kept as."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from resource_objects import exceptions
from resource_objects.fields import MAX_AMOUNT
from resource_objects.requests import Request
from resource_objects.resources import Amount
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


def wanted(request: Request) -> tuple[Wanted, ...]:
    """Return each class that a request asks for, once, in the order it comes in.

    A count of a class and an amount that is kept in the same class ask for the same thing, which
    the latter locates; they have to agree.

    :raises WrongAmountKind: for an amount that is kept as nothing, or not as counts above 0
    :raises InvalidRequest: if a count does not agree with what locates it
    """
    (group,) = request.groups
    counted: dict[str, Wanted] = {}
    located: dict[str, Wanted] = {}
    for name, amount in group.resources.by_name():
        records = amount.to_records(name)
        _check(name, amount, records)
        if [record.resource_class for record in records] == [name]:
            counted[name] = Wanted(name, records[0].amount, amount, records[0].units)
        else:
            for record in records:
                _add(located, record)
    for name, part in located.items():
        if name in counted and counted[name].amount != part.amount:
            raise exceptions.InvalidRequest(
                name, counted[name].amount, f"{part.amount}, as the amount that locates it says"
            )
    return tuple({**counted, **located}.values())


def _check(name: str, amount: Amount, records: Iterable[AmountRecord]) -> None:
    found = [record.amount for record in records]
    if not found or min(found) < 1:
        raise exceptions.WrongAmountKind(name, amount, "one that is kept as counts above 0")


def _add(located: dict[str, Wanted], record: AmountRecord) -> None:
    before = located.get(record.resource_class, Wanted(record.resource_class, 0))
    amount = before.amount + record.amount
    if amount > MAX_AMOUNT:
        raise exceptions.InvalidRequest(record.resource_class, amount, f"at most {MAX_AMOUNT}")
    located[record.resource_class] = dataclasses.replace(
        before, amount=amount, units=(*before.units, *record.units)
    )
