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
    KeptDefinition,
    KeptDefinitions,
    ProviderDefinition,
)
from resource_objects.providers.listing import ListedProvider
from resource_objects.providers.provider import Provider
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
    count: of a pool its own, of another those of all that are no pools in its tree
    (:func:`_linked`).
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
        """Return one of a provider as it was listed."""
        return cls(
            kept.uuid,
            kept.name,
            kept.generation,
            kept.root_uuid,
            frozenset(record.resource_class for record in kept.records),
            kept.aggregates,
            SHARES in kept.traits,
        )

    @classmethod
    def of_definition(cls, wanted: ProviderDefinition, generation: int, tree: str) -> Member:
        """Return one of a provider as it shall be, kept at a generation."""
        return cls(
            wanted.uuid,
            wanted.name,
            generation,
            tree,
            classes_of(wanted),
            wanted.aggregates or frozenset(),
            SHARES in wanted.traits,
        )

    def gains_over(self, before: Member | None) -> bool:
        """Return whether it may be counted twice, or lead to that, as it was not before."""
        if not self.aggregates or not self.classes:
            return False
        return (
            before is None
            or before.is_pool != self.is_pool
            or not self.aggregates <= before.aggregates
            or not self.classes <= before.classes
        )


def _linked(members: Iterable[Member]) -> dict[str, Member]:
    """Return members of whole trees by uuid, with the links that count of each."""
    given = list(members)
    links: dict[str, frozenset[str]] = {}
    for one in given:
        if not one.is_pool:
            found = links.setdefault(one.tree, one.aggregates)
            if not one.aggregates <= found:
                links[one.tree] = found | one.aggregates
    return {
        one.uuid: one
        if one.is_pool or one.aggregates == links[one.tree]
        else one._replace(aggregates=links[one.tree])
        for one in given
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Gains:
    """Those of some changes that count more, or have more links, than before.

    ``after`` are all of the trees that change, as they will be; ``changed`` the uuids of those that
    the changes make, update or remove.
    """

    gaining: frozenset[str]
    after: Mapping[str, Member]
    changed: frozenset[str]

    def aggregates(self, *, of_pools: bool) -> frozenset[str]:
        """Return the aggregates of those that gain: of the pools, or of the others."""
        found = (self.after[uuid] for uuid in self.gaining)
        return frozenset().union(*(one.aggregates for one in found if one.is_pool is of_pools))

    def unchanged(self, listed: Iterable[ListedProvider]) -> tuple[tuple[str, int], ...]:
        """Return what must stay as it was read, ``(uuid, generation)``: the changes rely on it.

        :param listed: the pools of :meth:`aggregates` of others, and the whole trees of the others
            of those of pools
        :raises CountedTwice: if a class would be counted at a pool and in a tree that has it there
        """
        found = {one.uuid: one for one in listed if one.uuid not in self.changed}
        others = (Member.of_listed(one) for uuid, one in found.items() if uuid not in self.after)
        members = {**_linked(others), **self.after}
        _check_once(members, self.gaining)
        return tuple((uuid, members[uuid].generation) for uuid in found)


def gains_of(kept: KeptDefinitions, changes: DefinitionChanges) -> Gains:
    """Return who gains by changes of some kept trees. Cost: linear in those that change."""
    wanted = {one.uuid: one for one in changes.creates}
    wanted.update((update.definition.uuid, update.definition) for update in changes.updates)
    gone = {removal.uuid for removal in changes.removals}
    changed = frozenset({*wanted, *gone})
    if not any(_may_gain(kept.get(uuid), one) for uuid, one in wanted.items()):
        return Gains(frozenset(), {}, changed)
    touched = {*changed, *(one.parent_uuid for one in wanted.values())}
    trees = {kept[uuid].root_uuid for uuid in touched if uuid is not None and uuid in kept}
    read = {uuid: one for uuid, one in kept.items() if one.root_uuid in trees}
    before = _linked(
        Member.of_definition(one.definition, one.generation, one.root_uuid) for one in read.values()
    )
    parents = {uuid: one.definition.parent_uuid for uuid, one in read.items()}
    parents.update((uuid, one.parent_uuid) for uuid, one in wanted.items())
    tops = _tops(parents)
    after = _linked(
        _after(read.get(uuid), wanted.get(uuid), tops[uuid]) for uuid in parents if uuid not in gone
    )
    gaining = frozenset(uuid for uuid, one in after.items() if one.gains_over(before.get(uuid)))
    return Gains(gaining, after, changed)


def _may_gain(kept: KeptDefinition | None, wanted: ProviderDefinition) -> bool:
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


def _after(kept: KeptDefinition | None, wanted: ProviderDefinition | None, tree: str) -> Member:
    """Return what one of them is in the end: at least one of both is given."""
    if kept is None or wanted is None:
        only = wanted if kept is None else kept.definition
        assert only is not None
        return Member.of_definition(only, 0 if kept is None else kept.generation, tree)
    member = Member.of_definition(wanted, kept.generation, tree)
    if wanted.aggregates is None:  # nothing is said: they stay
        return member._replace(aggregates=kept.definition.aggregates or frozenset())
    return member


def _tops(parents: Mapping[str, str | None]) -> dict[str, str]:
    """Return the root of each provider; of those that form a ring, one of them."""
    found: dict[str, str] = {}
    for uuid in parents:
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


def counted_elsewhere(host: Provider, classes: Collection[str]) -> dict[str, Any]:
    """Return what changes of a host once a pool gives it some classes, as fields of a provider.

    Its inventories of these go, and with them the shares of what is taken there.
    """
    goes = {
        name
        for name, inventory in host.inventories.by_name()
        if {record.resource_class for record in inventory.to_records()} <= set(classes)
    }
    if not goes:
        return {}
    left = {name: one for name, one in host.inventories.by_name() if name not in goes}
    shares = [share for share in host.shares if share.resource_class not in classes]
    return {"inventories": left, "shares": shares}
