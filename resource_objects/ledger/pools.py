"""Pools: what several hosts share.

A pool is a provider with the trait ``MISC_SHARES_VIA_AGGREGATE``; it gives what it has to all
members of its aggregates.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.definitions import (
    Comparison,
    Definitions,
    SyncResult,
    find_stored,
)
from resource_objects.ledger.reading import Reader
from resource_objects.ledger.store import any_limit
from resource_objects.providers.definition import (
    ProviderDefinition,
    StoredDefinitions,
    subtree,
    to_records,
    tree_of,
    with_changes,
)
from resource_objects.providers.given import ago, any_generation
from resource_objects.providers.listing import ListedProvider, ProviderFilter
from resource_objects.providers.pools import SHARES, Pool, pools_of, without_classes
from resource_objects.resources import Inventories

#: Other fields of some providers, by uuid.
_Edits = dict[str, dict[str, Any]]


class Pools:
    """The pools of a ledger: ``ledger.pools``.

    ==================  =======================================================================
    :meth:`share`       make a provider a pool of some hosts
    :meth:`unshare`     end that, for some or for all
    :meth:`report`      say what a pool has now, as its owner
    :meth:`list`        the pools, with their members
    ==================  =======================================================================
    """

    def __init__(self, definitions: Definitions, reader: Reader) -> None:
        self._definitions = definitions
        self._reader = reader

    def share(
        self,
        pool: str,
        *,
        hosts: Iterable[str],
        aggregate: str | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Make a provider a pool of some hosts, in one transaction.

        The pool gets its trait, the pool and the hosts become members of the aggregate, which is
        made if need be. A class that the pool gives is not counted in the tree of a host too: at
        the hosts named, and all below them, inventories of it go, if they are unused; elsewhere in
        these trees there may be none. Sharing with more hosts later adds them.

        :param pool: name or uuid
        :param hosts: the hosts (names or uuids), at least one
        :param aggregate: the aggregate; None: the one called like the pool
        :raises NotFound: if one of them is not there
        :raises InUse: if a host's own inventory of what the pool gives is used
        :raises Conflict: if somebody else in the aggregates, or in the tree of such a one,
            counts what the pool gives
        :raises InvalidInput: if no host is given
        """
        key, wanted = names.provider_key(pool), _hosts(hosts)
        if not wanted:
            raise exceptions.InvalidInput("field", "hosts", hosts, "at least one host")
        joined = None if aggregate is None else names.aggregate_name(aggregate)

        def compare() -> Comparison:
            stored = self._definitions.read(key, *wanted)
            giver = stored[find_stored(stored, key)].definition
            takers = [find_stored(stored, host) for host in wanted]
            if giver.uuid in takers:
                raise exceptions.InvalidTree("share", giver.name, "hosts other than the pool")
            return _comparison(stored, _shared(stored, giver, takers, joined or giver.name))

        return self._definitions.write("share", key, operation, compare)

    def unshare(
        self, pool: str, *, hosts: Iterable[str] | None = None, operation: str | None = None
    ) -> SyncResult:
        """End sharing: hosts leave all aggregates of the pool, in one transaction.

        What consumers hold of the pool stays held, also of those whose host has no part in it any
        more; :meth:`audit` lists them.

        :param pool: name or uuid
        :param hosts: the hosts (names or uuids); None: all, and the pool is none any more. Then
            the members of those aggregates stay that another pool gives to
        :raises NotFound: if one of them is not there
        """
        key = names.provider_key(pool)
        wanted = None if hosts is None else _hosts(hosts)

        def compare() -> Comparison:
            stored = self._definitions.read(key, *(wanted or ()))
            giver = stored[find_stored(stored, key)].definition
            if wanted is not None:
                takers = [find_stored(stored, host) for host in wanted]
                return _comparison(stored, _left(stored, takers, giver.aggregates or frozenset()))
            return self._dissolved(giver)

        return self._definitions.write("unshare", key, operation, compare)

    def _members(
        self, aggregates: frozenset[str], *, forbidden: frozenset[str] = frozenset({SHARES})
    ) -> Iterator[ListedProvider]:
        """Yield the providers that are in one of some aggregates and lack some traits."""
        wanted = ProviderFilter(aggregates=(aggregates,), forbidden=forbidden)
        return self._definitions.listed(wanted) if aggregates else iter(())

    def _dissolved(self, giver: ProviderDefinition) -> Comparison:
        """Return the changes that end sharing, with the trees of all members."""
        aggregates = giver.aggregates or frozenset()
        listed = list(self._members(aggregates, forbidden=frozenset()))
        others = (one for one in listed if SHARES in one.traits and one.uuid != giver.uuid)
        ended = aggregates.difference(*(one.aggregates for one in others))
        leaving = {one.uuid for one in listed if one.aggregates & ended}
        stored = self._definitions.read(giver.uuid, *leaving)
        giver = stored[find_stored(stored, giver.uuid)].definition
        edits = _left(stored, (uuid for uuid in leaving if uuid in stored), ended)
        edits[giver.uuid] = {"traits": giver.traits - {SHARES}, "aggregates": frozenset()}
        return _comparison(stored, edits)

    def report(
        self,
        pool: str,
        inventories: Any,
        *,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Tell what a pool (by name or uuid) has now, as its owner; the time is kept too.

        Its traits, aggregates and shares stay. Also where nothing changed it is a report.

        :param inventories: :class:`Inventories`, or what these are made from
        :param generation: the one it was read at; None demands none
        :raises NotFound: if it is not there
        :raises InUse: if one that would go is used
        :raises Conflict: if a class that it would give is counted in the tree of a host of it
        :raises Stale: if it was changed since it was read at ``generation``
        """
        key, read_at = names.provider_key(pool), any_generation(generation)
        records, kinds = to_records(Inventories(inventories))

        def compare() -> Comparison:
            stored = self._definitions.read(key)
            uuid = find_stored(stored, key, read_at)
            edits = {uuid: {"inventories": records, "kinds": kinds}}
            return dataclasses.replace(_comparison(stored, edits), reported=(uuid,))

        return self._definitions.write("report", key, operation, compare)

    def list(
        self,
        *,
        older_than: datetime.timedelta | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Iterator[Pool]:
        """Yield the pools, with their members, in the order they were made.

        Cost: a few statements per page of pools.

        :param older_than: only those whose owner did not report for so long, or never did
        :param limit: at most so many
        :param after: only those made after this one (name or uuid)
        """
        if older_than is not None:
            ago("older_than", older_than, self._reader.now())
        found = self._found(older_than, after)
        most = any_limit(limit)
        return (
            found if most is None else (pool for _, pool in zip(range(most), found, strict=False))
        )

    def _found(self, older_than: datetime.timedelta | None, after: str | None) -> Iterator[Pool]:
        pools = ProviderFilter(required=frozenset({SHARES}))
        for page in self._reader.pages(pools, after=after):
            now = self._reader.now()
            hosts = self._members(frozenset().union(*(pool.aggregates for pool in page)))
            for pool in pools_of(page, hosts, now):
                if older_than is None or pool.is_older_than(older_than):
                    yield pool


def _hosts(given: Iterable[str]) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise exceptions.InvalidInput("field", "hosts", given, "a list of providers")
    return list(dict.fromkeys(names.provider_key(host) for host in given))


def _shared(
    stored: StoredDefinitions, giver: ProviderDefinition, hosts: Iterable[str], aggregate: str
) -> _Edits:
    """Return the changes of a pool and of its hosts by which the hosts share it."""
    classes = {record.resource_class for record in giver.inventories}
    edits: _Edits = {giver.uuid: {"traits": giver.traits | {SHARES}, **_joined(giver, aggregate)}}
    joining = set(hosts)
    for uuid in {uuid: None for host in joining for uuid in subtree(stored, host)}:
        provider = stored[uuid].definition
        joined = _joined(provider, aggregate) if uuid in joining else {}
        is_pool = SHARES in provider.traits or uuid == giver.uuid
        fewer = {} if is_pool else without_classes(provider, classes)
        if joined or fewer:
            edits[uuid] = {**edits.get(uuid, {}), **joined, **fewer}
    return edits


def _joined(provider: ProviderDefinition, aggregate: str) -> dict[str, Any]:
    return {"aggregates": (provider.aggregates or frozenset()) | {aggregate}}


def _left(stored: StoredDefinitions, hosts: Iterable[str], aggregates: frozenset[str]) -> _Edits:
    """Return the changes by which hosts leave some aggregates."""
    return {
        uuid: {"aggregates": (stored[uuid].definition.aggregates or frozenset()) - aggregates}
        for uuid in hosts
    }


def _comparison(stored: StoredDefinitions, edits: _Edits) -> Comparison:
    roots = dict.fromkeys(one.root_uuid for one in stored.values())
    return Comparison(stored, tuple(with_changes(tree_of(stored, root), edits) for root in roots))
