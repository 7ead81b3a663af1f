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
from typing import Any

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers.definition import (
    DefinitionChanges,
    ProviderDefinition,
    StoredDefinition,
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


_NOTHING = frozenset[str]()
#: Most providers count the same classes as others.
_set_of: Callable[[tuple[str, ...]], frozenset[str]] = functools.lru_cache(1024)(frozenset)


def _is_pool(provider: StoredDefinition) -> bool:
    return SHARES in provider.definition.traits


def _classes(definition: ProviderDefinition) -> frozenset[str]:
    return _set_of(tuple([record.resource_class for record in definition.inventories]))


def _links(providers: Collection[StoredDefinition]) -> dict[str, frozenset[str]]:
    """Return the aggregates that link each provider of whole trees, by uuid.

    They are of a pool its own, of another provider those of all providers in its tree that are no
    pools.
    """
    links = {p.definition.uuid: p.definition.aggregates or _NOTHING for p in providers}
    of_trees: dict[str, frozenset[str]] = {}
    hosts = [provider for provider in providers if not _is_pool(provider)]
    for host in hosts:
        tree = host.root_uuid
        of_trees[tree] = of_trees.get(tree, _NOTHING) | links[host.definition.uuid]
    links.update((host.definition.uuid, of_trees[host.root_uuid]) for host in hosts)
    return links


@dataclasses.dataclass(frozen=True, slots=True)
class NewlyCounted:
    """The providers that count more classes, or have more links, after some changes."""

    changed: frozenset[str]  #: uuids of the providers that are created, updated or removed
    uuids: frozenset[str] = _NOTHING
    #: all providers of the trees that change, by uuid
    after: Mapping[str, StoredDefinition] = FrozenDict()

    def aggregates(self, *, of_pools: bool) -> frozenset[str]:
        """Return the aggregates of these providers: of the pools, or of the others."""
        links = _links(self.after.values())
        return _NOTHING.union(
            *(links[uuid] for uuid in self.uuids if _is_pool(self.after[uuid]) is of_pools)
        )

    def unchanged(self, listed: Iterable[ListedProvider]) -> tuple[tuple[str, int], ...]:
        """Return the providers on which the changes rely, ``(uuid, generation)``.

        :param listed: the pools in the :meth:`aggregates` of others, and the whole trees of the
            others in those of pools
        :raises Conflict: if a class would be counted at a pool and in a tree that uses the pool
        """
        unchanged = {p.uuid: p for p in listed if p.uuid not in self.changed}
        if unchanged or any(map(_is_pool, self.after.values())):
            self.check(
                StoredDefinition(provider.definition(), provider.generation, provider.root_uuid)
                for uuid, provider in unchanged.items()
                if uuid not in self.after
            )
        return tuple((uuid, self.after.get(uuid, p).generation) for uuid, p in unchanged.items())

    def check(self, unchanged: Iterable[StoredDefinition]) -> None:
        """Raise if a class would be counted at a pool and in a tree that uses the pool.

        :param unchanged: pools, and whole trees, that do not change, as for :meth:`unchanged`
        :raises Conflict: with both providers
        """
        unchanged = list(unchanged)
        links = _links(unchanged) | _links(self.after.values())
        providers = {**{p.definition.uuid: p for p in unchanged}, **self.after}
        pools: dict[str, list[ProviderDefinition]] = defaultdict(list)
        for uuid, provider in providers.items():
            for aggregate in links[uuid] if _is_pool(provider) else ():
                pools[aggregate].append(provider.definition)
        for uuid, host in providers.items():
            for aggregate in () if _is_pool(host) else sorted(links[uuid]):
                for pool in pools[aggregate]:
                    both = _classes(host.definition) & _classes(pool)
                    if both and not self.uuids.isdisjoint((uuid, pool.uuid)):
                        raise exceptions.Conflict(
                            "pool",
                            ", ".join(sorted(both)),
                            f"at {host.definition.name}, which has it from {pool.name}",
                        )


def newly_counted(stored: StoredDefinitions, changes: DefinitionChanges) -> NewlyCounted:
    """Return the providers that count more after changes. Cost: linear in the trees that change."""
    defined = {definition.uuid: definition for definition in changes.definitions}
    removed = {removal.uuid for removal in changes.removals}
    unlinked = NewlyCounted(frozenset({*defined, *removed}))
    if all(
        uuid in stored and _facts(stored[uuid].definition) == _facts(definition)
        for uuid, definition in defined.items()
    ):
        return unlinked
    touched = {*unlinked.changed, *(definition.parent_uuid for definition in defined.values())}
    trees = {stored[uuid].root_uuid for uuid in touched if uuid is not None and uuid in stored}
    before = {uuid: provider for uuid, provider in stored.items() if provider.root_uuid in trees}
    definitions = {uuid: provider.definition for uuid, provider in before.items()}
    for uuid, definition in defined.items():
        if definition.aggregates is None and uuid in before:  # they are not changed
            aggregates = definitions[uuid].aggregates
            definition = dataclasses.replace(definition, aggregates=aggregates)
        definitions[uuid] = definition
    if not any(definition.aggregates for definition in definitions.values()):
        return unlinked  # without links nothing counts twice
    roots = roots_of({uuid: definition.parent_uuid for uuid, definition in definitions.items()})
    after = {
        uuid: StoredDefinition(
            definition, before[uuid].generation if uuid in before else 0, roots[uuid]
        )
        for uuid, definition in definitions.items()
        if uuid not in removed
    }
    links_before, links = _links(before.values()), _links(after.values())

    def counts_more(uuid: str) -> bool:
        """Return True if a class may be counted twice because of a provider, unlike before."""
        classes, previous = _classes(after[uuid].definition), before.get(uuid)
        return bool(classes and links[uuid]) and (
            previous is None
            or _is_pool(previous) is not _is_pool(after[uuid])
            or not links[uuid] <= links_before[uuid]
            or not classes <= _classes(previous.definition)
        )

    return NewlyCounted(unlinked.changed, frozenset(filter(counts_more, after)), after)


def _facts(
    definition: ProviderDefinition,
) -> tuple[bool, str | None, frozenset[str], frozenset[str]]:
    """Return the facts by which classes count twice: is a pool, parent, links, classes."""
    is_pool, links = SHARES in definition.traits, definition.aggregates or _NOTHING
    return is_pool, definition.parent_uuid, links, _classes(definition)


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
