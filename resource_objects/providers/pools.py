"""Pools: providers that share their inventories with the members of their aggregates. Pure.

A provider with the trait ``MISC_SHARES_VIA_AGGREGATE`` shares each class that it counts with every
other member of its aggregates. (Sources: os-traits for the trait; Placement's "shared resource
providers" for its meaning.)

Shared inventories are counted at the pool alone. A search allocates a class of the tree of a host,
or of a pool in an aggregate with any provider of that tree. So the rule applies to the whole tree:
except for pools, no provider in it may count that class too.
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
    StoredDefinitions,
    roots_of,
)
from resource_objects.providers.listing import ListedProvider
from resource_objects.resources import Inventories

#: The trait of a pool.
SHARES = "MISC_SHARES_VIA_AGGREGATE"


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """A pool, with the providers that it shares its inventories with.

    ``reported_at`` is the time of the last report of its owner, ``age`` the time since then; None
    without a report. ``members`` are the names of these providers, sorted.
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
        """Return True if the last report is older than an age, or there was none."""
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
        names = set().union(*(inside[aggregate] for aggregate in pool.aggregates))
        yield Pool(
            pool.name,
            pool.uuid,
            pool.generation,
            pool.inventories,
            pool.aggregates,
            tuple(sorted(names - {pool.name})),
            pool.reported_at,
            None if pool.reported_at is None else now - pool.reported_at,
        )


# --- nothing is counted twice ---------------------------------------------------------------------


class Member(NamedTuple):
    """The properties of a provider that matter for pools.

    ``aggregates`` are the links that count: of a pool its own, of another provider those of all
    providers in its tree that are no pools.
    """

    uuid: str
    name: str
    generation: int
    tree: str  #: uuid of the root
    classes: frozenset[str]  #: the resource classes that it counts
    aggregates: frozenset[str]
    is_pool: bool

    @classmethod
    def of(cls, definition: ProviderDefinition, generation: int, tree: str) -> Member:
        """Return a provider with its own links."""
        is_pool, _, aggregates, classes = _links(definition)
        name = definition.name
        return cls(definition.uuid, name, generation, tree, classes, aggregates, is_pool)

    def counts_more(self, before: Member | None) -> bool:
        """Return True if a class may be counted twice because of this provider, unlike before."""
        if not self.classes or not self.aggregates:
            return False
        return (
            before is None
            or before.is_pool is not self.is_pool
            or not self.aggregates <= before.aggregates
            or not self.classes <= before.classes
        )


_NOTHING = frozenset[str]()


def _with_links(members: Iterable[Member]) -> dict[str, Member]:
    """Return the providers of whole trees by uuid, each with the links that count."""
    members = list(members)
    links: dict[str, frozenset[str]] = {}
    for member in members:
        if not member.is_pool:
            links[member.tree] = links.get(member.tree, _NOTHING) | member.aggregates
    return {
        member.uuid: member if member.is_pool else member._replace(aggregates=links[member.tree])
        for member in members
    }


@dataclasses.dataclass(frozen=True, slots=True)
class NewlyCounted:
    """The providers that count more classes, or have more links, after some changes."""

    uuids: frozenset[str]
    after: Mapping[str, Member]  #: all providers of the trees that change, by uuid
    changed: frozenset[str]  #: uuids of the providers that are created, updated or removed

    def aggregates(self, *, of_pools: bool) -> frozenset[str]:
        """Return the aggregates of these providers: of the pools, or of the others."""
        members = (self.after[uuid] for uuid in self.uuids)
        return _NOTHING.union(
            *{member.aggregates for member in members if member.is_pool is of_pools}
        )

    def unchanged(self, listed: Iterable[ListedProvider]) -> tuple[tuple[str, int], ...]:
        """Return the providers on which the changes rely, ``(uuid, generation)``.

        :param listed: the pools in the :meth:`aggregates` of others, and the whole trees of the
            others in those of pools
        :raises Conflict: if a class would be counted at a pool and in a tree that uses the pool
        """
        unchanged = {p.uuid: p for p in listed if p.uuid not in self.changed}
        if not unchanged and not any(member.is_pool for member in self.after.values()):
            return ()
        members = self.check(
            Member.of(provider.definition(), provider.generation, provider.root_uuid)
            for uuid, provider in unchanged.items()
            if uuid not in self.after
        )
        return tuple((uuid, members[uuid].generation) for uuid in unchanged)

    def check(self, unchanged: Iterable[Member]) -> Mapping[str, Member]:
        """Raise if a class would be counted at a pool and in a tree that uses the pool.

        :param unchanged: pools, and whole trees, that do not change, as for :meth:`unchanged`
        :returns: all of them by uuid
        :raises Conflict: with both providers
        """
        members = {**_with_links(unchanged), **self.after}
        pools: dict[str, list[Member]] = defaultdict(list)
        for pool in members.values():
            for aggregate in pool.aggregates if pool.is_pool else ():
                pools[aggregate].append(pool)
        for host in members.values():
            for aggregate in () if host.is_pool else sorted(host.aggregates):
                for pool in pools[aggregate]:
                    both = host.classes & pool.classes
                    if both and not self.uuids.isdisjoint((host.uuid, pool.uuid)):
                        raise exceptions.Conflict(
                            "pool",
                            ", ".join(sorted(both)),
                            f"at {host.name}, which has it from {pool.name}",
                        )
        return members


def newly_counted(stored: StoredDefinitions, changes: DefinitionChanges) -> NewlyCounted:
    """Return the providers that count more after changes. Cost: linear in the trees that change."""
    defined = {definition.uuid: definition for definition in changes.definitions}
    removed = {removal.uuid for removal in changes.removals}
    changed = frozenset({*defined, *removed})
    if all(
        uuid in stored and _links(stored[uuid].definition) == _links(definition)
        for uuid, definition in defined.items()
    ):
        return NewlyCounted(frozenset(), {}, changed)
    touched = {*changed, *(definition.parent_uuid for definition in defined.values())}
    trees = {stored[uuid].root_uuid for uuid in touched if uuid is not None and uuid in stored}
    before = {uuid: provider for uuid, provider in stored.items() if provider.root_uuid in trees}
    definitions = {uuid: provider.definition for uuid, provider in before.items()}
    for uuid, definition in defined.items():
        if definition.aggregates is None and uuid in before:  # they are not changed
            aggregates = definitions[uuid].aggregates
            definition = dataclasses.replace(definition, aggregates=aggregates)
        definitions[uuid] = definition
    if not any(definition.aggregates for definition in definitions.values()):
        return NewlyCounted(frozenset(), {}, changed)  # without links nothing counts twice
    roots = roots_of({uuid: definition.parent_uuid for uuid, definition in definitions.items()})
    members_before = _with_links(
        Member.of(provider.definition, provider.generation, provider.root_uuid)
        for provider in before.values()
    )
    after = _with_links(
        Member.of(definition, before[uuid].generation if uuid in before else 0, roots[uuid])
        for uuid, definition in definitions.items()
        if uuid not in removed
    )
    counting = (u for u, member in after.items() if member.counts_more(members_before.get(u)))
    return NewlyCounted(frozenset(counting), after, changed)


def _links(
    definition: ProviderDefinition,
) -> tuple[bool, str | None, frozenset[str], frozenset[str]]:
    """Return the facts by which classes count twice: is a pool, parent, links, classes."""
    classes = _set_of(tuple([record.resource_class for record in definition.inventories]))
    aggregates = definition.aggregates or _NOTHING
    return SHARES in definition.traits, definition.parent_uuid, aggregates, classes


#: Most providers count the same classes as others.
_set_of: Callable[[tuple[str, ...]], frozenset[str]] = functools.lru_cache(1024)(frozenset)


def without_classes(host: ProviderDefinition, classes: Collection[str]) -> dict[str, Any]:
    """Return the fields of a host's definition without some classes, which a pool provides.

    The shares of these inventories are removed with them. Empty if the host has none of them.
    """
    kinds = tuple(kind for kind in host.kinds if not set(kind.classes) <= set(classes))
    removed = set(classes).difference(*(kind.classes for kind in kinds))
    records = tuple(record for record in host.inventories if record.resource_class not in removed)
    if len(records) == len(host.inventories):
        return {}
    shares = tuple(share for share in host.shares if share.resource_class not in classes)
    return {"inventories": records, "kinds": kinds, "shares": shares}
