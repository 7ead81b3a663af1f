"""The candidate of a decision: allocations of one tree, with the units that they take.

A count is decided as a count. Where a provider keeps devices by name, those that are free are then
chosen, in the order of the kind, beside what the rest of the candidate takes there: a candidate
says which devices (D3, D4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Allocation
from resource_objects.resources import Amount, Amounts, resource
from resource_objects.search.asked import Asked, Decision
from resource_objects.search.candidates import Candidate
from resource_objects.search.fleet import Fleet
from resource_objects.search.located import LocatedAsked
from resource_objects.search.question import Question

#: What a candidate locates where nothing says where it goes.
_NOTHING = Amounts()


class FewUnits(Exception):
    """A provider has fewer free units than it counts. Internal: it never leaves the search.

    ``ask`` is the number of the class, -1 for one of a named group; ``giver`` that of the provider
    among its givers, ``amount`` what it was to give.
    """

    def __init__(self, ask: int, giver: int, amount: int) -> None:
        super().__init__(ask, giver, amount)
        self.ask, self.giver, self.amount = ask, giver, amount


class _Count(NamedTuple):
    """What one provider gives of a class."""

    ask: int  #: number of the class in the unnamed group, -1 for one of a named group
    giver: int  #: its place among those of the class
    provider: int  #: its place in the fleet
    resource_class: str
    amount: int
    whole: Amount | None  #: as it was asked, where this is all of it
    units: tuple[str, ...]  #: asked for by name


def candidate(
    question: Question,
    tree: int,
    asks: Sequence[Asked],
    located: Sequence[LocatedAsked],
    found: Decision,
    given: Sequence[tuple[int, int]] = (),
) -> Candidate:
    """Return the candidate of a decision on a tree.

    :param given: which provider gives a group of which kind, of the named groups
    :raises FewUnits: if a provider has fewer free units than it counts
    """
    fleet = question.fleet
    given = sorted(given, key=lambda one: one[0])  # in the order of the request
    assigned = dict(zip((one.ask.resource_class for one in located), found.assigned, strict=True))
    placed = [
        pair
        for one, amount in zip(located, found.assigned, strict=True)
        for pair in one.allocations(amount)
    ]
    counts = list(_counts(question, asks, found))
    by_name = list(_of_named(question, given))
    allocations = [
        *_counted(fleet, [*counts, *by_name], placed),
        *(each for _, each in placed),
    ]
    of_unnamed = [*(count.provider for count in counts), *(provider for provider, _ in placed)]
    givers = [*of_unnamed, *(provider for _, provider in given)]
    return Candidate._as_kept(
        host=fleet.hosts[tree],
        allocations=tuple(_summed(allocations) if assigned or given else allocations),
        generations=tuple(_generations(fleet, givers)),
        located=Amounts(assigned) if assigned else _NOTHING,
        mappings=_mappings(question, of_unnamed, given),
    )


def _mappings(
    question: Question, of_unnamed: Iterable[int], given: Iterable[tuple[int, int]]
) -> FrozenDict:
    """Return who gives each group, by its suffix."""
    names = question.fleet.names
    every = tuple(names[place] for place in dict.fromkeys(of_unnamed))
    found = {"": every} if every else {}
    suffixes = [iter(kind.suffixes) for kind in question.named.kinds]
    for number, provider in given:
        found[next(suffixes[number])] = (names[provider],)
    return FrozenDict(sorted(found.items()))


def _counts(question: Question, asks: Sequence[Asked], found: Decision) -> Iterator[_Count]:
    provider = question.fleet.inventories.provider
    for number, (asked, parts) in enumerate(zip(asks, found.plans, strict=True)):
        ask = question.asks[number]
        for giver, part in parts:
            whole = ask.whole if part == ask.amount else None
            place = int(provider[asked.numbers[giver]])
            yield _Count(number, giver, place, ask.resource_class, part, whole, ask.units)


def _of_named(question: Question, given: Iterable[tuple[int, int]]) -> Iterator[_Count]:
    for number, provider in given:
        kind = question.named.kinds[number]
        for name, (_, amount) in zip(kind.names, kind.classes, strict=True):
            yield _Count(-1, -1, provider, name, amount, kind.group.resources[name], ())


def _counted(
    fleet: Fleet, counts: Iterable[_Count], placed: Iterable[tuple[int, Allocation]]
) -> Iterator[Allocation]:
    """Yield the allocations of counts, with units beside those that are taken already."""
    gone: dict[int, set[str]] = {}
    for provider, one in placed if fleet.views else ():
        gone.setdefault(provider, set()).update(one.units)
    for count in counts:
        units = count.units
        kind = fleet.views.of_devices(count.provider, count.resource_class)
        if kind is not None and not units:
            units = _units(fleet, kind, count, gone.get(count.provider, ()))
        if units:
            gone.setdefault(count.provider, set()).update(units)
        yield _allocation(fleet, count, units)


def _units(fleet: Fleet, kind: str, count: _Count, gone: Iterable[str]) -> tuple[str, ...]:
    few = FewUnits(count.ask, count.giver, count.amount)
    try:
        view = fleet.views.of_tree(kind, int(fleet.tree[count.provider]))
    except exceptions.InvalidInventory:
        raise few from None
    assert view is not None, "a part is of a view"
    part = view.places.index(count.provider)
    found = view.located.inventory.some_units(
        part, count.resource_class, count.amount, frozenset(gone)
    )
    if found is None:
        raise few
    return found


def _allocation(fleet: Fleet, count: _Count, units: tuple[str, ...]) -> Allocation:
    name, whole = count.resource_class, count.whole
    return Allocation._as_kept(
        provider=fleet.names[count.provider],
        provider_uuid=fleet.uuids[count.provider],
        resource_class=name,
        amount=resource(name).make_amount(count.amount) if whole is None else whole,
        units=units,
    )


def _summed(allocations: Iterable[Allocation]) -> Iterable[Allocation]:
    """Return allocations with one of each provider and class: several groups may ask for it."""
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
