"""Pools: providers that share their inventories with several hosts.

A pool is a provider with the trait ``MISC_SHARES_VIA_AGGREGATE``. It shares its inventories with
all members of its aggregates.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, any_limit
from resource_objects.ledger.definitions import Definitions, Difference, SyncResult, find_stored
from resource_objects.providers.arguments import ago, any_generation
from resource_objects.providers.definition import (
    ProviderDefinition,
    StoredDefinitions,
    edited,
    subtree,
    to_records,
    tree_of,
)
from resource_objects.providers.listing import MOST_ROWS, ListedProvider, ProviderFilter
from resource_objects.providers.pools import SHARES, Pool, pools_of, without_classes
from resource_objects.resources import Inventories

#: The fields of definitions that change, by uuid.
_Edits: TypeAlias = dict[str, dict[str, Any]]


class Pools:
    """The pools of a ledger: ``ledger.pools``.

    ==================  =======================================================================
    :meth:`share`       make a provider a pool of some hosts
    :meth:`unshare`     end that, for some hosts or for all
    :meth:`report`      set the inventories of a pool, as its owner
    :meth:`list`        the pools, with their members
    ==================  =======================================================================
    """

    def __init__(self, context: LedgerContext, definitions: Definitions) -> None:
        self._context = context
        self._definitions = definitions

    def share(
        self,
        pool: str,
        *,
        hosts: Iterable[str],
        aggregate: str | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Make a provider a pool of some hosts, in one transaction.

        The pool gets its trait. The pool and the hosts become members of the aggregate, which is
        created if it does not exist. A class of the pool is not counted in the tree of a host too:
        unused inventories of it at these hosts and below are removed; elsewhere in their trees
        there must be none. A later call adds hosts.

        :param pool: name or uuid
        :param hosts: names or uuids of the hosts, at least one
        :param aggregate: the aggregate; None: the one with the name of the pool
        :raises NotFound: for a name or uuid of no provider
        :raises InUse: if a host's own inventory of a class of the pool is used
        :raises Conflict: if another member of the aggregates, or a provider in the tree of one,
            counts a class of the pool
        :raises InvalidInput: if there are no hosts
        """
        key, host_keys = names.provider_key(pool), _provider_keys(hosts)
        if not host_keys:
            raise exceptions.InvalidInput("field", "hosts", hosts, "at least one host")
        name = None if aggregate is None else names.aggregate_name(aggregate)

        def compare() -> Difference:
            stored = self._definitions.read(key, *host_keys)
            provider = stored[find_stored(stored, key)].definition
            uuids = dict.fromkeys(find_stored(stored, host) for host in host_keys)
            if provider.uuid in uuids:
                raise exceptions.InvalidTree("share", provider.name, "hosts other than the pool")
            return _compare(stored, _sharing(stored, provider, uuids, name or provider.name))

        return self._definitions.write("share", key, operation, compare)

    def unshare(
        self, pool: str, *, hosts: Iterable[str] | None = None, operation: str | None = None
    ) -> SyncResult:
        """End sharing: hosts leave all aggregates of the pool, in one transaction.

        Allocations of the pool remain, also those of consumers whose host is no member any more;
        :meth:`audit` lists these.

        :param pool: name or uuid
        :param hosts: names or uuids of the hosts; None: all, and the provider is no pool any more.
            Then hosts remain in those of its aggregates that another pool is in
        :raises NotFound: for a name or uuid of no provider
        """
        key = names.provider_key(pool)
        host_keys = None if hosts is None else _provider_keys(hosts)

        def compare() -> Difference:
            stored = self._definitions.read(key, *(host_keys or ()))
            provider = stored[find_stored(stored, key)].definition
            if host_keys is None:
                return self._dissolve(provider)
            uuids = [find_stored(stored, host) for host in host_keys]
            return _compare(stored, _leaving(stored, uuids, _aggregates_of(provider)))

        return self._definitions.write("unshare", key, operation, compare)

    def _dissolve(self, pool: ProviderDefinition) -> Difference:
        """Return the changes that end sharing, with the trees of all members."""
        aggregates = _aggregates_of(pool)
        members = list(self._members(aggregates, forbidden=frozenset()))
        other_pools = (m for m in members if SHARES in m.traits and m.uuid != pool.uuid)
        ended = aggregates.difference(*(other.aggregates for other in other_pools))
        leaving = {member.uuid for member in members if member.aggregates & ended}
        stored = self._definitions.read(pool.uuid, *leaving)
        traits = stored[find_stored(stored, pool.uuid)].definition.traits - {SHARES}
        edits = _leaving(stored, (uuid for uuid in leaving if uuid in stored), ended)
        edits[pool.uuid] = {"traits": traits, "aggregates": frozenset()}
        return _compare(stored, edits)

    def _members(
        self, aggregates: frozenset[str], *, forbidden: frozenset[str] = frozenset({SHARES})
    ) -> Iterator[ListedProvider]:
        """Yield the members of some aggregates that have none of some traits."""
        members = ProviderFilter(aggregates=(aggregates,), forbidden=forbidden)
        return self._context.providers(members, page=MOST_ROWS) if aggregates else iter(())

    def report(
        self,
        pool: str,
        inventories: Any,
        *,
        generation: int | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Set the inventories of a pool, as its owner; the time of the report is stored too.

        Its traits, aggregates and shares do not change. Without a change it is a report too.

        :param pool: name or uuid
        :param inventories: :class:`Inventories`, or a value that these are made from
        :param generation: the generation at which it was read; None accepts every one
        :raises NotFound: for a name or uuid of no provider
        :raises InUse: if an inventory that would be removed is used
        :raises Conflict: if a class of the pool is counted in the tree of a host that uses it
        :raises Stale: if the provider has another generation
        """
        key, expected = names.provider_key(pool), any_generation(generation)
        records, kinds = to_records(Inventories(inventories))

        def compare() -> Difference:
            stored = self._definitions.read(key)
            uuid = find_stored(stored, key, expected)
            edits = {uuid: {"inventories": records, "kinds": kinds}}
            return dataclasses.replace(_compare(stored, edits), reported=(uuid,))

        return self._definitions.write("report", key, operation, compare)

    def list(
        self,
        *,
        older_than: datetime.timedelta | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Iterator[Pool]:
        """Yield the pools, with their members, in the order of their creation.

        Cost: a few statements per page of pools.

        :param older_than: only pools whose last report is older, or that have none
        :param limit: the maximum number of pools
        :param after: only pools created after this one (name or uuid)
        """
        if older_than is not None:
            ago("older_than", older_than, self._context.backend.now())
        most = any_limit(limit)
        pages = self._context.provider_pages(
            ProviderFilter(required=frozenset({SHARES})), after=after
        )
        pools = (
            pool
            for page in pages
            for pool in self._with_members(page)
            if older_than is None or pool.is_older_than(older_than)
        )
        return itertools.islice(pools, most)

    def _with_members(self, page: Iterable[ListedProvider]) -> Iterator[Pool]:
        hosts = self._members(frozenset().union(*(pool.aggregates for pool in page)))
        return pools_of(page, hosts, self._context.backend.now())


def _provider_keys(hosts: Iterable[str]) -> list[str]:
    if isinstance(hosts, str) or not isinstance(hosts, Iterable):
        raise exceptions.InvalidInput("field", "hosts", hosts, "a list of providers")
    return list(dict.fromkeys(names.provider_key(host) for host in hosts))


def _sharing(
    stored: StoredDefinitions, pool: ProviderDefinition, hosts: Iterable[str], aggregate: str
) -> _Edits:
    """Return the changes by which hosts share a pool."""
    classes = {record.resource_class for record in pool.inventories}
    edits: _Edits = defaultdict(dict)
    edits[pool.uuid]["traits"] = pool.traits | {SHARES}
    for uuid in (pool.uuid, *hosts):
        edits[uuid]["aggregates"] = _aggregates_of(stored[uuid].definition) | {aggregate}
    for uuid in dict.fromkeys(uuid for host in hosts for uuid in subtree(stored, host)):
        provider = stored[uuid].definition
        if SHARES not in provider.traits and uuid != pool.uuid:
            edits[uuid].update(without_classes(provider, classes))
    return edits


def _leaving(stored: StoredDefinitions, hosts: Iterable[str], aggregates: frozenset[str]) -> _Edits:
    """Return the changes by which hosts leave some aggregates."""
    return {
        uuid: {"aggregates": _aggregates_of(stored[uuid].definition) - aggregates} for uuid in hosts
    }


def _aggregates_of(definition: ProviderDefinition) -> frozenset[str]:
    return definition.aggregates or frozenset()


def _compare(stored: StoredDefinitions, edits: _Edits) -> Difference:
    roots = dict.fromkeys(provider.root_uuid for provider in stored.values())
    changes = tuple(edited(tree_of(stored, root), edits)[0] for root in roots)
    return Difference(stored, changes)
