"""Candidates that differ in nothing but which of equal providers, or groups, they name.

The search finds one of them: for eight equal devices and as many groups there are 40,320. Placement
lists them all, and so does the service, as far as the limit of the request goes: first those that
differ, then those that only exchange what is equal.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from resource_objects.requests import Request
from resource_objects.search.candidate import Candidate
from resource_objects.search.equivalence import equivalence
from resource_objects.search.fleet import Fleet

_T = TypeVar("_T", bound=Hashable)


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """A candidate by the places of its providers in a fleet.

    ``takes`` is what each gives, ``{place: {class: amount}}``; ``groups`` who gives each group.
    """

    takes: Mapping[int, Mapping[str, int]]
    groups: Mapping[str, tuple[int, ...]]

    @property
    def key(self) -> Hashable:
        """What two ways have in common that are the same: it can be looked up in a set."""
        taken = ((place, frozenset(some.items())) for place, some in self.takes.items())
        return frozenset(taken), frozenset(self.groups.items())


def way_of(fleet: Fleet, one: Candidate) -> Way:
    """Return a candidate that was found in a fleet."""
    takes: dict[int, dict[str, int]] = {}
    for taken in one.allocations:
        here = takes.setdefault(fleet.place_by_key[taken.provider], {})
        for record in taken.amount.to_records(taken.resource_class):
            here[record.resource_class] = record.amount
    groups = {
        suffix: tuple(sorted(fleet.place_by_key[name] for name in names))
        for suffix, names in one.mappings.items()
    }
    return Way(takes, groups)


def exchanged(fleet: Fleet, request: Request, found: Iterable[Way], limit: int) -> list[Way]:
    """Return ways, and then those that exchange what is equal in them, each once.

    Cost: linear in what is told.

    :param limit: at most so many
    """
    ways, kinds = list(found), _kinds(request)
    told = {one.key for one in ways}

    def more() -> Iterator[Way]:
        for one in ways:
            for way in _exchanges(fleet, kinds, one):
                if way.key not in told:
                    told.add(way.key)
                    yield way

    return list(itertools.islice(itertools.chain(ways, more()), limit))


def _exchanges(fleet: Fleet, kinds: Mapping[str, int], one: Way) -> Iterator[Way]:
    """Yield all ways that are like one but for equal providers and groups, itself included.

    :param kinds: of groups, as :func:`_kinds` tells them
    """
    holding: dict[int, tuple[Hashable, ...]] = {
        place: (
            tuple(sorted(one.takes.get(place, {}).items())),
            tuple(
                sorted(kinds[s] for s, places in one.groups.items() for p in places if p == place)
            ),
        )
        for place in {*one.takes, *itertools.chain.from_iterable(one.groups.values())}
    }
    sets = _equal(fleet, holding)
    for states in itertools.product(
        *(arrangements([holding.get(place) for place in members]) for members in sets)
    ):
        moved: dict[int, int] = {}
        for members, state in zip(sets, states, strict=True):
            moved |= _moves(members, [holding.get(place) for place in members], state)
        takes = {moved.get(place, place): some for place, some in one.takes.items()}
        groups = {
            suffix: tuple(sorted(moved.get(place, place) for place in places))
            for suffix, places in one.groups.items()
        }
        yield from (Way(takes, some) for some in _groups_exchanged(groups, kinds))


def _kinds(request: Request) -> dict[str, int]:
    """Return a number for each group, by suffix; those have the same that differ in that alone."""
    numbers: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    for group in request.groups:
        sets = tuple(group.suffix in some for some in request.same_subtree)
        key = group.suffix == "", group.definition, sets
        found[group.suffix] = numbers.setdefault(key, len(numbers))
    return found


def _equal(fleet: Fleet, used: Iterable[int]) -> list[list[int]]:
    """Return the sets of equal providers, of two or more, that some are of."""
    equal = equivalence(fleet)
    found: dict[Hashable, list[int]] = {}
    for place in used:
        key = equal.of(fleet, place)
        if key != place and key not in found:
            tree = fleet.of_tree(int(fleet.tree[place]))
            found[key] = [other for other in tree if equal.of(fleet, other) == key]
    return [members for members in found.values() if len(members) > 1]


def _moves(
    members: Sequence[int], before: Sequence[Hashable], after: Sequence[Hashable]
) -> dict[int, int]:
    places: dict[Hashable, list[int]] = {}
    for place, state in zip(members, after, strict=True):
        places.setdefault(state, []).append(place)
    moves = zip(members, before, strict=True)
    return {place: places[state].pop(0) for place, state in moves if state is not None}


def _groups_exchanged(
    groups: Mapping[str, tuple[int, ...]], kinds: Mapping[str, int]
) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Yield who gives each group, groups of one kind exchanged."""
    by_kind: dict[int, list[str]] = {}
    for suffix in groups:
        by_kind.setdefault(kinds[suffix], []).append(suffix)
    alike = list(by_kind.values())
    for given in itertools.product(
        *(arrangements([groups[suffix] for suffix in suffixes]) for suffixes in alike)
    ):
        yield {
            suffix: places
            for suffixes, some in zip(alike, given, strict=True)
            for suffix, places in zip(suffixes, some, strict=True)
        }


def arrangements(items: Sequence[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield the different orders of some things, of which some may be the same.

    >>> ["".join(one) for one in arrangements("aab")]
    ['aab', 'aba', 'baa']
    """
    left = Counter(items)

    def of(count: int) -> Iterator[tuple[_T, ...]]:
        if not count:
            yield ()
        for item in [item for item, number in left.items() if number]:
            left[item] -= 1
            for rest in of(count - 1):
                yield item, *rest
            left[item] += 1

    return of(len(items))
