"""The complete enumerator: every candidate there is, by trying everything. For small fleets only.

It shares no code with the search, which is tested against it; so can another search be. For each
tree as the host it forms the product of all ways to give each class of the unnamed group with all
providers of each named group, and leaves out what breaks a rule. Nothing is cut, ordered or left
out because it is like something else.

The rules that differ between the two readings of a request (D14) are the rows of
:class:`~resource_objects.search.eligibility.Semantics`, each read by itself. Where both agree:

* a named group is given by one provider; the unnamed group class by class;
* amounts that land on one inventory are summed: the sum is within what is free and ``max_unit``,
  each amount keeps ``min_unit``, ``max_unit`` and ``step_size`` by itself;
* a pool gives a class also to a linked tree that has it itself, except what comes ``in_tree``;
* required traits of the unnamed group: each has some class all of whose givers have it; forbidden:
  no giver has it; of a named group: the one provider;
* a group that asks for nothing is about the provider itself: its own traits and aggregates count;
* ``isolate``: all named groups are on different providers, those that ask for nothing too;
* ``same_subtree``: one of the providers of the groups is above the others or the same; a pool is
  in its own tree, so it is never with a provider of the host;
* ``root_required`` and ``root_forbidden``: the traits that the root of the host has itself.

Only counted amounts: what says where it goes has references of its own.

:func:`forms` says which candidates differ in names only, and are listed once by a search. Two
providers are interchangeable if nothing but their name tells them apart: leaves below the same
parent, not pools, with the same traits and aggregates, as much left of the same classes by the same
unit rules, and using the same inventories of others while nobody uses theirs. Two named groups are
if they differ in the suffix only and are in the same sets of ``same_subtree``. Swapping either kind
in a candidate makes another candidate, of the same form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from resource_objects import exceptions
from resource_objects.providers.columns import Columns
from resource_objects.requests import Request, RequestGroup
from resource_objects.search.candidate import Candidate
from resource_objects.search.eligibility import Reach, Semantics, semantics_of
from tests.support.columns import Kept, Place, Row

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
    >>> from tests.support.columns import columns_of
    >>> from tests.support.enumerator import candidates
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


# --- every candidate ---


#: How much of one class each provider gives.
Parts = Mapping[int, int]


class Found(NamedTuple):
    """A candidate: who gives how much of what, and who is matched by which group."""

    host: str  #: the name of the root of the tree that it is for
    allocations: frozenset[tuple[str, str, int]]  #: (provider uuid, resource class, amount)
    mappings: frozenset[tuple[str, frozenset[str]]]  #: (suffix, provider uuids)


def candidates(columns: Columns, request: Request, rows: Semantics | None = None) -> list[Found]:
    """Return every candidate once for each host it is for, by the names of the hosts.

    Cost: the product of all choices, for every tree.

    :param rows: the rules; None for those that the request says
    :raises NotFound: if a group is ``in_tree`` of an unknown one, by our rules

    >>> from resource_objects.providers import Provider
    >>> from tests.support.columns import columns_of
    >>> host = Provider("host0", "VCPU=4")
    >>> for n in range(3):
    ...     _ = host.add(f"host0/gpu{n}", "PGPU=1")
    >>> len(candidates(columns_of([host]), Request("VCPU=1,PGPU=2")))
    3
    >>> len(candidates(columns_of([host]), Request("VCPU=1,PGPU=2", compatibility="placement")))
    0
    """
    kept = Kept(columns)
    rows = rows or semantics_of(request)
    trees = {group.suffix: tree_of(kept, group, rows) for group in request.groups}
    found = [HostReading(kept, root, rows, trees).candidates(request) for root in kept.roots()]
    return [one for some in found for one in dict.fromkeys(some)]


def tree_of(kept: Kept, group: RequestGroup, rows: Semantics) -> int | None:
    """Return the root that everything of a group must be below, None if any is good."""
    if group.in_tree is None:
        return None
    number = kept.named(group.in_tree)
    if number is None and rows.refuses_unknown_trees:
        raise exceptions.NotFound("provider", group.in_tree, "there is no such provider")
    return -1 if number is None else kept.root(number)


class HostReading:
    """A tree as the host of candidates: its own providers, and the pools it is linked to."""

    def __init__(
        self, kept: Kept, root: int, rows: Semantics, trees: Mapping[str, int | None]
    ) -> None:
        self.kept, self.root, self.rows, self.trees = kept, root, rows, trees
        self.own = kept.tree(root)
        self.everybody = [*self.own, *kept.pools(root)]

    def candidates(self, request: Request) -> Iterator[Found]:
        """Yield every candidate, some more than once."""
        has = self.kept.rows[self.root].traits
        if request.root_required - has or request.root_forbidden & has:
            return
        named = [self.matched(group) for group in request.named]
        for given in self._unnamed(request.unnamed):
            for chosen in itertools.product(*named):
                group_of = dict(zip((group.suffix for group in request.named), chosen, strict=True))
                taken = _taken(request, given, group_of)
                if (
                    self._may_be_host(taken, chosen)
                    and not (request.isolates and len(set(chosen)) < len(chosen))
                    and all(self._is_subtree(group_of, some) for some in request.same_subtree)
                    and self.kept.has_room(taken)
                ):
                    yield self._found(taken, given, group_of)

    def _found(
        self, taken: Mapping[Place, int], given: Mapping[str, Parts], group_of: Mapping[str, int]
    ) -> Found:
        rows, uuids = self.kept.rows, self.kept.uuids
        mappings = {(suffix, uuids([number])) for suffix, number in group_of.items()}
        if given:
            mappings.add(("", uuids(number for parts in given.values() for number in parts)))
        allocations = {(rows[number].uuid, name, count) for (number, name), count in taken.items()}
        return Found(rows[self.root].name, frozenset(allocations), frozenset(mappings))

    # --- the unnamed group ---

    def _unnamed(self, group: RequestGroup) -> Iterator[dict[str, Parts]]:
        """Yield every way to give all classes of it, whatever else is given."""
        amounts = amounts_of(group)
        ways = [list(self._ways(group, name, amount)) for name, amount in amounts.items()]
        for chosen in itertools.product(*ways):
            if self._collectively(group, chosen):
                yield dict(zip(amounts, chosen, strict=True))

    def _ways(self, group: RequestGroup, name: str, amount: int) -> Iterator[dict[int, int]]:
        """Yield every way in which one provider, or several devices, give an amount of a class."""
        kept = self.kept
        having = [
            number
            for number in self.everybody
            if name in kept.rows[number].stocks and self.may_give(group, number, [name])
        ]
        devices = [n for n in having if n in self.own and kept.may_split(n, name)]
        ways = [{number: amount} for number in having]
        if self.rows.splits_devices:
            ways += [parts for parts in _splits(devices, amount) if len(parts) > 1]
        for parts in ways:
            if all(kept.rows[n].stocks[name].gives(part) for n, part in parts.items()):
                yield parts

    def _collectively(self, group: RequestGroup, chosen: Sequence[Parts]) -> bool:
        """Return whether for each required trait there is a class all of whose givers have it."""
        traits = [[self.traits_of(group, number) for number in parts] for parts in chosen]
        return all(
            any(all(some & has for has in givers) for givers in traits)
            for some in (*({trait} for trait in group.required), *group.any_of)
        )

    # --- one provider ---

    def matched(self, group: RequestGroup) -> list[int]:
        """Return who could give all of a named group, whatever else is given."""
        amounts = amounts_of(group)
        return [
            number
            for number in self.everybody
            if self.may_give(group, number, amounts)
            and group.required <= self.traits_of(group, number)
            and all(some & self.traits_of(group, number) for some in group.any_of)
            and all(
                name in self.kept.rows[number].stocks
                and self.kept.rows[number].stocks[name].gives(amount)
                for name, amount in amounts.items()
            )
        ]

    def may_give(self, group: RequestGroup, number: int, names: Iterable[str]) -> bool:
        """Return whether a provider keeps the conditions that everybody in a group keeps."""
        has = self.traits_of(group, number)
        return (
            not has & group.forbidden
            and all(
                required <= has and not forbidden & has
                for name, required, forbidden in group.traits_of
                if name in names
            )
            and self.is_in_tree(group, number)
            and self.is_member(group, number)
        )

    def traits_of(self, group: RequestGroup, number: int) -> set[str]:
        """Return the traits that count: its own of a pool, or for a group that asks for nothing."""
        if self.rows.inherits_traits and group.resources and number in self.own:
            return {t for above in self.kept.above(number) for t in self.kept.rows[above].traits}
        return self.kept.rows[number].traits

    def is_in_tree(self, group: RequestGroup, number: int) -> bool:
        """Return whether a provider is in the tree that a group has to be in.

        Where the tree of the unnamed group is the host (Placement), a pool in it gives that group
        to no other.
        """
        root = self.trees[group.suffix]
        if root is None:
            return True
        of_host = number in self.own or group.suffix or not self.rows.in_tree_is_host
        return bool(of_host) and self.kept.root(number) == root

    def is_member(self, group: RequestGroup, number: int) -> bool:
        """Return whether a provider is in the aggregates it must be in, and in no other.

        By Placement's rules one of those that count is in all of the former by itself; and the root
        that must not be in one is that *of the host*, which excludes a pool too.
        """
        own, *above = [self.kept.rows[n].aggregates for n in self.kept.above(number)]
        reach = self.rows.named_reach if group.suffix else self.rows.unnamed_reach
        of_host = [own, self.kept.rows[self.root].aggregates]
        if number not in self.own:
            reach = self.rows.pool_reach
        if not group.resources:
            reach = Reach.ITSELF
        member = {
            Reach.ITSELF: [own],
            Reach.ROOT: of_host,
            Reach.ABOVE: [own, *above],
        }[reach]
        excluded = list(member)
        if not group.suffix and self.rows.root_keeps_pools_out:
            excluded.append(of_host[1])
        if group.suffix or not self.rows.members_at_once:
            member = [set[str]().union(*member)]
        return any(all(some & of for some in group.member_of) for of in member) and not any(
            group.not_member_of & of for of in excluded
        )

    # --- all groups together ---

    def _may_be_host(self, taken: Mapping[Place, int], matched: Iterable[int]) -> bool:
        """Return whether the host gives something itself; as a pool, everything."""
        if not self.rows.host_gives:
            return True
        if self.kept.rows[self.root].is_sharing:
            return {number for number, _ in taken} | set(matched) <= set(self.own)
        return any(number in self.own for number, _ in taken)

    def _is_subtree(self, group_of: Mapping[str, int], suffixes: Iterable[str]) -> bool:
        """Return whether one of the providers of some groups is above all of them, or the same."""
        chosen = {group_of[suffix] for suffix in suffixes}
        return any(all(top in self.kept.above(one) for one in chosen) for top in chosen)


def _taken(
    request: Request, given: Mapping[str, Parts], group_of: Mapping[str, int]
) -> dict[Place, int]:
    """Return what is taken in each place, over all groups."""
    taken: dict[Place, int] = {}
    for name, parts in given.items():
        for number, amount in parts.items():
            taken[number, name] = taken.get((number, name), 0) + amount
    for group in request.named:
        for name, amount in amounts_of(group).items():
            place = group_of[group.suffix], name
            taken[place] = taken.get(place, 0) + amount
    return taken


def _splits(devices: Sequence[int], amount: int) -> Iterator[dict[int, int]]:
    """Yield every way to write an amount as a sum of parts of devices, 0 for those left out."""
    for parts in itertools.product(range(amount + 1), repeat=len(devices)):
        if sum(parts) == amount:
            yield {number: part for number, part in zip(devices, parts, strict=True) if part}


def amounts_of(group: RequestGroup) -> dict[str, int]:
    return {name: int(amount) for name, amount in group.resources.by_name()}  # type: ignore[call-overload]
