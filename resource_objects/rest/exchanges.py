"""Candidates that differ from another one by an exchange of equal providers or equal groups.

The search finds one of them: eight groups on eight equal devices have 40,320 candidates. Placement
lists them all. The service lists candidates up to the limit of the request: first those of the
search, then their exchanges.
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
class Assignment:
    """A candidate by the numbers of its providers in a fleet.

    ``amounts`` are the allocated amounts, ``{provider: {class: amount}}``; ``groups`` the providers
    of each group.
    """

    amounts: Mapping[int, Mapping[str, int]]
    groups: Mapping[str, tuple[int, ...]]

    @property
    def key(self) -> Hashable:
        """A key that equal assignments have in common."""
        amounts = ((place, frozenset(by_class.items())) for place, by_class in self.amounts.items())
        return frozenset(amounts), frozenset(self.groups.items())


def assignment_of(fleet: Fleet, candidate: Candidate) -> Assignment:
    """Return the assignment of a candidate of a fleet."""
    amounts: dict[int, dict[str, int]] = {}
    for allocation in candidate.allocations:
        by_class = amounts.setdefault(fleet.place_by_key[allocation.provider], {})
        for record in allocation.amount.to_records(allocation.resource_class):
            by_class[record.resource_class] = record.amount
    groups = {
        suffix: tuple(sorted(fleet.place_by_key[name] for name in names))
        for suffix, names in candidate.mappings.items()
    }
    return Assignment(amounts, groups)


def with_exchanges(
    fleet: Fleet, request: Request, assignments: Iterable[Assignment], limit: int
) -> list[Assignment]:
    """Return assignments, followed by their exchanges, without duplicates.

    Cost: linear in the length of the result.

    :param limit: the maximum length of the result
    """
    originals, kinds = list(assignments), _kinds(request)
    keys = {assignment.key for assignment in originals}

    def exchanges() -> Iterator[Assignment]:
        for original in originals:
            for assignment in _exchanges(fleet, kinds, original):
                if assignment.key not in keys:
                    keys.add(assignment.key)
                    yield assignment

    return list(itertools.islice(itertools.chain(originals, exchanges()), limit))


def _exchanges(
    fleet: Fleet, kinds: Mapping[str, int], original: Assignment
) -> Iterator[Assignment]:
    """Yield the assignments that exchange equal providers and groups, including the original.

    :param kinds: the kinds of groups by suffix, see :func:`_kinds`
    """
    places = {*original.amounts, *itertools.chain.from_iterable(original.groups.values())}
    roles: dict[int, tuple[Hashable, ...]] = {
        place: (
            tuple(sorted(original.amounts.get(place, {}).items())),
            tuple(
                sorted(
                    kinds[suffix]
                    for suffix, providers in original.groups.items()
                    for provider in providers
                    if provider == place
                )
            ),
        )
        for place in places
    }
    sets = _equal_providers(fleet, roles)
    for orders in itertools.product(
        *(permutations([roles.get(place) for place in members]) for members in sets)
    ):
        moved: dict[int, int] = {}
        for members, order in zip(sets, orders, strict=True):
            moved |= _moves(members, [roles.get(place) for place in members], order)
        amounts = {
            moved.get(place, place): by_class for place, by_class in original.amounts.items()
        }
        groups = {
            suffix: tuple(sorted(moved.get(place, place) for place in providers))
            for suffix, providers in original.groups.items()
        }
        for exchanged in _group_exchanges(groups, kinds):
            yield Assignment(amounts, exchanged)


def _kinds(request: Request) -> dict[str, int]:
    """Return a number for each group, by suffix; equal for groups that differ in it only."""
    numbers: dict[Hashable, int] = {}
    kinds: dict[str, int] = {}
    for group in request.groups:
        subtrees = tuple(group.suffix in suffixes for suffixes in request.same_subtree)
        key = group.suffix == "", group.definition, subtrees
        kinds[group.suffix] = numbers.setdefault(key, len(numbers))
    return kinds


def _equal_providers(fleet: Fleet, places: Iterable[int]) -> list[list[int]]:
    """Return the sets of two or more equal providers that contain one of some providers."""
    equal = equivalence(fleet)
    sets: dict[Hashable, list[int]] = {}
    for place in places:
        key = equal.of(fleet, place)
        if key != place and key not in sets:
            tree = fleet.of_tree(int(fleet.tree[place]))
            sets[key] = [other for other in tree if equal.of(fleet, other) == key]
    return [members for members in sets.values() if len(members) > 1]


def _moves(
    members: Sequence[int], before: Sequence[Hashable], after: Sequence[Hashable]
) -> dict[int, int]:
    """Return the new provider of each provider with a role, if roles change their order."""
    places: dict[Hashable, list[int]] = {}
    for place, role in zip(members, after, strict=True):
        places.setdefault(role, []).append(place)
    roles = zip(members, before, strict=True)
    return {place: places[role].pop(0) for place, role in roles if role is not None}


def _group_exchanges(
    groups: Mapping[str, tuple[int, ...]], kinds: Mapping[str, int]
) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Yield the providers of each group, with groups of one kind exchanged."""
    by_kind: dict[int, list[str]] = {}
    for suffix in groups:
        by_kind.setdefault(kinds[suffix], []).append(suffix)
    equal_groups = list(by_kind.values())
    for orders in itertools.product(
        *(permutations([groups[suffix] for suffix in suffixes]) for suffixes in equal_groups)
    ):
        yield {
            suffix: places
            for suffixes, order in zip(equal_groups, orders, strict=True)
            for suffix, places in zip(suffixes, order, strict=True)
        }


def permutations(items: Sequence[_T]) -> Iterator[tuple[_T, ...]]:
    """Yield the different orders of items, some of which may be equal.

    >>> ["".join(order) for order in permutations("aab")]
    ['aab', 'aba', 'baa']
    """
    remaining = Counter(items)

    def orders(length: int) -> Iterator[tuple[_T, ...]]:
        if not length:
            yield ()
        for item in [item for item, count in remaining.items() if count]:
            remaining[item] -= 1
            for tail in orders(length - 1):
                yield item, *tail
            remaining[item] += 1

    return orders(len(items))
