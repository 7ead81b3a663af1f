"""Pools: providers that give what they have to the members of their aggregates. Pure.

A provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` gives each class it counts to every other
member of its aggregates. (Sources: os-traits for the trait; Placement's "shared resource providers"
for what it means.)

What a host has from a pool is counted at the pool alone. A search takes a class from the tree of a
host or from a pool that any member in that tree links it to, so the tree is judged as a whole: no
provider in it may count that class too, but for pools.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from resource_objects import exceptions
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    StoredDefinition,
    StoredDefinitions,
)
from resource_objects.providers.listing import ListedProvider
from resource_objects.resources import Inventories

#: The trait of a pool.
SHARES = "MISC_SHARES_VIA_AGGREGATE"


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """A pool, and who has its resources from it.

    ``reported_at`` is when its owner said last how it is, ``age`` how long that is ago; None if it
    never did. ``members`` are the names of those it gives to, sorted.
    """

    name: str
    uuid: str
    generation: int
    inventories: Inventories
    aggregates: frozenset[str]
    members: tuple[str, ...]
    reported_at: datetime.datetime | None
    age: datetime.timedelta | None

    def is_older_than(self, age: datetime.timedelta) -> bool:
        """Return whether its owner was silent for longer, or always."""
        return self.age is None or self.age > age

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "name": self.name,
            "uuid": self.uuid,
            "generation": self.generation,
            "inventories": str(self.inventories),
            "aggregates": sorted(self.aggregates),
            "members": list(self.members),
            "reported_at": self.reported_at and self.reported_at.isoformat(),
            "age": None if self.age is None else self.age.total_seconds(),
        }

    def __str__(self) -> str:
        return f"{self.name}: {self.inventories} for {', '.join(self.members) or 'nobody'}"


def pools_of(
    pools: Iterable[ListedProvider], members: Iterable[ListedProvider], now: datetime.datetime
) -> Iterator[Pool]:
    """Yield pools with their members; each member is in an aggregate of some of the pools."""
    inside: dict[str, set[str]] = defaultdict(set)
    for member in members:
        for aggregate in member.aggregates:
            inside[aggregate].add(member.name)
    for pool in pools:
        found = set().union(*(inside[aggregate] for aggregate in pool.aggregates))
        yield Pool(
            pool.name,
            pool.uuid,
            pool.generation,
            pool.inventories,
            pool.aggregates,
            tuple(sorted(found - {pool.name})),
            pool.reported_at,
            None if pool.reported_at is None else now - pool.reported_at,
        )


# --- nothing is counted twice ---


class Member(NamedTuple):
    """What matters of a provider for pools.

    ``tree`` is the uuid of its root, ``classes`` are what it counts, ``aggregates`` the links that
    count: of a pool its own, of another those of all that are no pools in its tree.
    """

    uuid: str
    name: str
    generation: int
    tree: str
    classes: frozenset[str]
    aggregates: frozenset[str]
    is_pool: bool

    @classmethod
    def of_listed(cls, kept: ListedProvider) -> Member:
        """Return one of a provider as it was listed, with its own links."""
        return cls(
            kept.uuid,
            kept.name,
            kept.generation,
            kept.root_uuid,
            frozenset(record.resource_class for record in kept.records),
            kept.aggregates,
            SHARES in kept.traits,
        )


def _linked(members: Iterable[Member]) -> dict[str, Member]:
    """Return members of whole trees by uuid, with the links that count of each."""
    given = list(members)
    links: dict[str, frozenset[str]] = {}
    for one in given:
        if not one.is_pool:
            links[one.tree] = links.get(one.tree, _NOTHING) | one.aggregates
    return {
        one.uuid: one if one.is_pool else one._replace(aggregates=links[one.tree]) for one in given
    }


_NOTHING = frozenset[str]()


class _Trees:
    """The definitions of whole trees, by uuid, and the links that count of each of them.

    Members of thousands of new providers would be made for nothing where there are no pools.
    """

    def __init__(
        self, definitions: Mapping[str, ProviderDefinition], tree: Mapping[str, str]
    ) -> None:
        self.definitions = dict(definitions)
        self._tree = tree
        self._links: dict[str, frozenset[str]] = {}
        for uuid, one in definitions.items():
            if one.aggregates and SHARES not in one.traits:
                self._links[tree[uuid]] = self._links.get(tree[uuid], _NOTHING) | one.aggregates

    def aggregates(self, one: ProviderDefinition) -> frozenset[str]:
        """Return the links that count of one of them."""
        if SHARES in one.traits:
            return one.aggregates or _NOTHING
        return self._links.get(self._tree[one.uuid], _NOTHING)

    def gain_over(self, before: _Trees, uuid: str) -> bool:
        """Return whether one may be counted twice, or lead to that, as it was not before."""
        one, had = self.definitions[uuid], before.definitions.get(uuid)
        if not one.inventories or not (links := self.aggregates(one)):
            return False
        return (
            had is None
            or (SHARES in had.traits) is not (SHARES in one.traits)
            or not links <= before.aggregates(had)
            or not classes_of(one) <= classes_of(had)
        )

    def members(self, generation: Mapping[str, int]) -> dict[str, Member]:
        """Return all of them, by uuid."""
        return {
            uuid: Member(
                uuid,
                one.name,
                generation.get(uuid, 0),
                self._tree[uuid],
                classes_of(one),
                self.aggregates(one),
                SHARES in one.traits,
            )
            for uuid, one in self.definitions.items()
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Gains:
    """Those of some changes that count more, or have more links, than before.

    ``after`` are all of the trees that change, as they will be; ``changed`` the uuids of those that
    the changes make, update or remove.
    """

    gaining: frozenset[str]
    after: _Trees
    changed: frozenset[str]
    generations: Mapping[str, int]

    def aggregates(self, *, of_pools: bool) -> frozenset[str]:
        """Return the aggregates of those that gain: of the pools, or of the others."""
        found = (self.after.definitions[uuid] for uuid in self.gaining)
        links = {self.after.aggregates(one) for one in found if (SHARES in one.traits) is of_pools}
        return _NOTHING.union(*links)

    def unchanged(self, listed: Iterable[ListedProvider]) -> tuple[tuple[str, int], ...]:
        """Return what must stay as it was read, ``(uuid, generation)``: the changes rely on it.

        :param listed: the pools of :meth:`aggregates` of others, and the whole trees of the others
            of those of pools
        :raises CountedTwice: if a class would be counted at a pool and in a tree that has it there
        """
        found = {one.uuid: one for one in listed if one.uuid not in self.changed}
        after = self.after.definitions
        if not found and not any(SHARES in one.traits for one in after.values()):
            return ()
        others = (Member.of_listed(one) for uuid, one in found.items() if uuid not in after)
        members = self.check(others)
        return tuple((uuid, members[uuid].generation) for uuid in found)

    def check(self, others: Iterable[Member]) -> Mapping[str, Member]:
        """Raise if a class would be counted at a pool and in a tree that has it there.

        :param others: pools, and whole trees, that do not change, as for :meth:`unchanged`
        :returns: all of them by uuid
        :raises CountedTwice: naming both
        """
        members = {**_linked(others), **self.after.members(self.generations)}
        _check_once(members, self.gaining)
        return members


def gains_of(kept: StoredDefinitions, changes: DefinitionChanges) -> Gains:
    """Return who gains by changes of some kept trees. Cost: linear in those that change."""
    wanted = {one.uuid: one for one in changes.creates}
    wanted.update((update.definition.uuid, update.definition) for update in changes.updates)
    gone = {removal.uuid for removal in changes.removals}
    changed = frozenset({*wanted, *gone})
    if not any(_may_gain(kept.get(uuid), one) for uuid, one in wanted.items()):
        return Gains(frozenset(), _Trees({}, {}), changed, {})
    touched = {*changed, *(one.parent_uuid for one in wanted.values())}
    trees = {kept[uuid].root_uuid for uuid in touched if uuid is not None and uuid in kept}
    read = {uuid: one for uuid, one in kept.items() if one.root_uuid in trees}
    before = _Trees(
        {uuid: one.definition for uuid, one in read.items()},
        {uuid: one.root_uuid for uuid, one in read.items()},
    )
    definitions = before.definitions | {
        uuid: one if uuid not in read else _said(read[uuid].definition, one)
        for uuid, one in wanted.items()
    }
    tops = _tops({uuid: one.parent_uuid for uuid, one in definitions.items()})
    after = _Trees({uuid: one for uuid, one in definitions.items() if uuid not in gone}, tops)
    gaining = frozenset(uuid for uuid in after.definitions if after.gain_over(before, uuid))
    return Gains(gaining, after, changed, {uuid: one.generation for uuid, one in read.items()})


def _said(had: ProviderDefinition, wanted: ProviderDefinition) -> ProviderDefinition:
    """Return what is wanted of one that is kept: aggregates of which nothing is said stay."""
    if wanted.aggregates is not None:
        return wanted
    return dataclasses.replace(wanted, aggregates=had.aggregates)


def _may_gain(kept: StoredDefinition | None, wanted: ProviderDefinition) -> bool:
    """Return whether a provider may count more, or link its tree to more, than before."""
    if kept is None:
        return True
    had = kept.definition
    return (
        (SHARES in wanted.traits) is not (SHARES in had.traits)
        or wanted.parent_uuid != had.parent_uuid
        or not (wanted.aggregates or frozenset()) <= (had.aggregates or frozenset())
        or not classes_of(wanted) <= classes_of(had)
    )


def classes_of(definition: ProviderDefinition) -> frozenset[str]:
    """Return the classes that the inventories of a provider are counted in."""
    return _set_of(tuple([record.resource_class for record in definition.inventories]))


_set_of: Callable[[tuple[str, ...]], frozenset[str]] = functools.lru_cache(1024)(frozenset)


def _tops(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return the root of each provider; of those that form a ring, one of them."""
    found: dict[str, str] = {}
    for uuid, parent in parents.items():
        if parent is None:
            found[uuid] = uuid
            continue
        if parent in found:  # parents come first, nearly always
            found[uuid] = found[parent]
            continue
        way: dict[str, None] = {}
        top = uuid
        while top not in found and top not in way:
            way[top] = None
            above = parents.get(top)
            if above is None or above not in parents:
                break
            top = above
        found.update(dict.fromkeys(way, found.get(top, top)))
    return found


def _check_once(members: Mapping[str, Member], gaining: Collection[str]) -> None:
    """Raise if a class is counted at a pool and in a tree that has it there, and one gains."""
    pools: dict[str, list[Member]] = defaultdict(list)
    for pool in members.values():
        for aggregate in pool.aggregates if pool.is_pool else ():
            pools[aggregate].append(pool)
    for host in members.values():
        for aggregate in () if host.is_pool else sorted(host.aggregates):
            for pool in pools[aggregate]:
                both = host.classes & pool.classes
                if both and (host.uuid in gaining or pool.uuid in gaining):
                    raise exceptions.CountedTwice(
                        ", ".join(sorted(both)), f"at {host.name}, which has it from {pool.name}"
                    )


def without_classes(host: ProviderDefinition, classes: Collection[str]) -> dict[str, Any]:
    """Return the fields of a host's definition without some classes, which a pool provides.

    The shares of these inventories are removed with them. Empty if the host has none of them.
    """
    kinds = tuple(kind for kind in host.kinds if not set(kind.classes) <= set(classes))
    stays = {name for kind in kinds for name in kind.classes}
    records = tuple(
        record
        for record in host.inventories
        if record.resource_class in stays or record.resource_class not in classes
    )
    if len(records) == len(host.inventories):
        return {}
    shares = tuple(share for share in host.shares if share.resource_class not in classes)
    return {"inventories": records, "kinds": kinds, "shares": shares}
