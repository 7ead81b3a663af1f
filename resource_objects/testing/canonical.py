"""Candidates that differ in names only: what is listed once.

Two providers are interchangeable if nothing but their name tells them apart: leaves below the same
parent, not pools, with the same traits and aggregates, as much left of the same classes by the same
unit rules, and using the same inventories of others while nobody uses theirs. Two named groups are
if they differ in the suffix only and are in the same sets of ``same_subtree``. Swapping either kind
in a candidate makes another candidate, of the same form. A search that lists one of each form is
compared with the enumerator, which lists all, by :func:`forms`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from resource_objects.providers.columns import Columns
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.candidates import Candidate
from resource_objects.search.semantics import semantics_of
from resource_objects.testing.enumerator import Found
from resource_objects.testing.kept import Kept, Row

#: A candidate without what does not tell it apart. Sorted, so that the same form is equal.
Form: TypeAlias = tuple[Any, ...]


def found_of(columns: Columns, candidate: Candidate) -> Found:
    """Return a candidate of a search as one of the enumerator."""
    uuid = dict(zip(columns.providers.name, columns.providers.uuid, strict=True))
    return Found(
        candidate.host,
        frozenset(
            (one.provider_uuid or "", one.resource_class, int(one.amount))  # type: ignore[call-overload]
            for one in candidate.allocations
        ),
        frozenset(
            (suffix, frozenset(uuid[name] for name in names))
            for suffix, names in candidate.mappings.items()
        ),
    )


def forms(columns: Columns, request: Request, found: Iterable[Found]) -> list[Form]:
    """Return the form of each candidate, in their order.

    The host is part of it where a host gives something itself; else candidates with the same
    amounts and mappings are the same, whatever tree they are for.

    >>> from resource_objects.providers import Provider
    >>> from resource_objects.testing.columns import columns_of
    >>> from resource_objects.testing.enumerator import candidates
    >>> host = Provider("host0", "VCPU=4")
    >>> for n in range(3):
    ...     _ = host.add(f"host0/gpu{n}", "PGPU=1")
    >>> columns, request = columns_of([host]), Request("VCPU=1,PGPU=2")
    >>> len(set(forms(columns, request, candidates(columns, request))))
    1
    """
    kept, alike = Kept(columns), _alike_groups(request)
    like = _like(kept)
    has_host = semantics_of(request).host_gives
    return [(one.host if has_host else "", _form(one, like, alike)) for one in found]


def pairs(columns: Columns) -> list[tuple[str, str]]:
    """Return the pairs of interchangeable providers, by uuid."""
    like = _like(Kept(columns))
    return [
        pair for pair in itertools.combinations(sorted(like), 2) if len({*map(like.get, pair)}) == 1
    ]


def _form(found: Found, like: Mapping[str, str], alike: Sequence[Sequence[str]]) -> Form:
    """Return the least of what is left when swaps of groups are tried and names forgotten."""
    return min(_told(found, like, suffix) for suffix in _swaps(alike))


def _told(found: Found, like: Mapping[str, str], suffix: Mapping[str, str]) -> Form:
    """Return what each provider does, told by one of those it is interchangeable with."""
    roles: dict[str, tuple[list[Any], list[str]]] = {}
    for uuid, name, amount in found.allocations:
        roles.setdefault(uuid, ([], []))[0].append((name, amount))
    for group, uuids in found.mappings:
        for uuid in uuids:
            roles.setdefault(uuid, ([], []))[1].append(suffix.get(group, group))
    told = [
        (like[uuid], tuple(sorted(takes)), tuple(sorted(groups)))
        for uuid, (takes, groups) in roles.items()
    ]
    return tuple(sorted(told))


def _swaps(alike: Sequence[Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield every way to swap suffixes inside each set of groups that are alike."""
    for orders in itertools.product(*(itertools.permutations(some) for some in alike)):
        pairs = zip(alike, orders, strict=True)
        yield {one: other for some, order in pairs for one, other in zip(some, order, strict=True)}


def _alike_groups(request: Request) -> list[list[str]]:
    sets: list[list[RequestGroup]] = []
    for group in request.named:
        for some in sets:
            if _are_alike(request, group, some[0]):
                some.append(group)
                break
        else:
            sets.append([group])
    return [[group.suffix for group in some] for some in sets]


def _are_alike(request: Request, one: RequestGroup, other: RequestGroup) -> bool:
    within = [(one.suffix in some) == (other.suffix in some) for some in request.same_subtree]
    return one.replace(suffix="") == other.replace(suffix="") and all(within)


def _like(kept: Kept) -> dict[str, str]:
    """Return the least uuid of those that each provider is interchangeable with."""
    looks = {row.uuid: _look(kept, row) for row in kept.rows.values()}
    return {uuid: min(u for u, look in looks.items() if look == looks[uuid]) for uuid in looks}


def _look(kept: Kept, row: Row) -> Any:
    """Return all of a provider but its name, or that where it is like nobody."""
    drawn_on = {of for links in kept.shares.values() for (of, _), _ in links}
    is_leaf = all(other.parent != row.number for other in kept.rows.values())
    if row.parent is None or not is_leaf or row.is_sharing or row.number in drawn_on:
        return row.uuid
    stocks = {
        name: (
            stock.min_unit,
            stock.max_unit,
            stock.step_size,
            kept.left((row.number, name)),
            kept.may_split(row.number, name),
            sorted(kept.shares.get((row.number, name), [])),
        )
        for name, stock in row.stocks.items()
    }
    return row.parent, row.traits, row.aggregates, stocks
