"""The candidate of a decision: allocations of one tree, with the units that they take.

A count is decided as a count. Where a provider keeps devices by name, those that are free are then
chosen, in the order of the kind, beside what the rest of the candidate takes there: a candidate
says which devices (D3, D4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.providers import Allocation
from resource_objects.resources import Amounts, resource
from resource_objects.search.asked import Asked, Decision
from resource_objects.search.candidates import Candidate
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.question import Ask, Question


class Unnamed(Exception):
    """A provider has fewer free units than it counts. Internal: it never leaves the search.

    ``ask`` is the number of the class, ``giver`` that of the provider among its givers, ``amount``
    what it was to give.
    """

    def __init__(self, ask: int, giver: int, amount: int) -> None:
        super().__init__(ask, giver, amount)
        self.ask, self.giver, self.amount = ask, giver, amount


class _Count(NamedTuple):
    """What one provider gives of a class."""

    number: int  #: of the class in the request
    giver: int  #: its place among those of the class
    provider: int  #: its place in the fleet
    amount: int


def candidate(
    question: Question,
    tree: int,
    asks: Sequence[Asked],
    located: Sequence[LocatedAsked],
    found: Decision,
) -> Candidate:
    """Return the candidate of a decision on a tree.

    :raises Unnamed: if a provider has fewer free units than it counts
    """
    fleet = question.fleet
    assigned = dict(zip((one.ask.resource_class for one in located), found.assigned, strict=True))
    placed = [
        pair
        for one, amount in zip(located, found.assigned, strict=True)
        for pair in one.allocations(amount)
    ]
    counts = list(_counts(fleet, asks, found))
    allocations = [*_counted(question, counts, placed), *(each for _, each in placed)]
    givers = [*(count.provider for count in counts), *(provider for provider, _ in placed)]
    return Candidate(
        host=fleet.hosts[tree],
        allocations=tuple(_summed(allocations) if assigned else allocations),
        generations=tuple(_generations(fleet, givers)),
        located=Amounts(assigned),
    )


def _counts(fleet: Fleet, asks: Sequence[Asked], found: Decision) -> Iterator[_Count]:
    provider = fleet.inventories.provider
    for number, (asked, parts) in enumerate(zip(asks, found.plans, strict=True)):
        for giver, part in parts:
            yield _Count(number, giver, int(provider[asked.numbers[giver]]), part)


def _counted(
    question: Question, counts: Iterable[_Count], placed: Iterable[tuple[int, Allocation]]
) -> Iterator[Allocation]:
    """Yield the allocations of counts, with units beside those that are taken already."""
    fleet = question.fleet
    gone: dict[int, set[str]] = {}
    for provider, one in placed if fleet.views else ():
        gone.setdefault(provider, set()).update(one.units)
    for count in counts:
        ask = question.asks[count.number]
        units = ask.units
        kind = fleet.views.of_devices(count.provider, ask.resource_class)
        if kind is not None and not units:
            units = _units(fleet, kind, ask, count, gone.get(count.provider, ()))
        if units:
            gone.setdefault(count.provider, set()).update(units)
        yield _allocation(fleet, ask, count, units)


def _units(
    fleet: Fleet, kind: str, ask: Ask, count: _Count, gone: Iterable[str]
) -> tuple[str, ...]:
    few = Unnamed(count.number, count.giver, count.amount)
    try:
        view = fleet.views.of_tree(kind, int(fleet.tree[count.provider]))
    except exceptions.InvalidInventory:
        raise few from None
    assert view is not None, "a part is of a view"
    part = view.places.index(count.provider)
    found = view.located.inventory.some_units(
        part, ask.resource_class, count.amount, frozenset(gone)
    )
    if found is None:
        raise few
    return found


def _allocation(fleet: Fleet, ask: Ask, count: _Count, units: tuple[str, ...]) -> Allocation:
    whole, name, part = ask.whole, ask.resource_class, count.amount
    return Allocation(
        provider=fleet.names[count.provider],
        provider_uuid=fleet.uuids[count.provider],
        resource_class=name,
        amount=whole
        if whole is not None and part == ask.amount
        else resource(name).make_amount(part),
        units=units,
    )


def _summed(allocations: Iterable[Allocation]) -> Iterable[Allocation]:
    """Return allocations with one of each provider and class: pages may be counted and located."""
    found: dict[tuple[str, str], Allocation] = {}
    for one in allocations:
        key = one.provider, one.resource_class
        if key in found:
            amount: Any = found[key].amount
            units = tuple(sorted((*found[key].units, *one.units)))
            one = found[key].replace(amount=amount + one.amount, units=units)
        found[key] = one
    return found.values()


def _generations(fleet: Fleet, givers: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Yield (uuid, generation) of some providers and of all above them, each once."""
    for provider in dict.fromkeys(above for giver in givers for above in fleet.upwards(giver)):
        yield fleet.uuids[provider], int(fleet.generation[provider])
