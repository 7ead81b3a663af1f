"""Pools: what several hosts share."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

from resource_objects import exceptions, names
from resource_objects.ledger.defining import (
    Comparison,
    DefineMethods,
    SyncResult,
    at_generation,
    roots_of,
)
from resource_objects.ledger.reading import PAGE, Kept, located
from resource_objects.providers import DefinitionChanges, Provider, diff
from resource_objects.providers.edits import edited
from resource_objects.providers.given import ago, any_generation
from resource_objects.providers.listing import MOST_ROWS, ListedProvider, ProviderFilter
from resource_objects.providers.pools import SHARES, Pool, counted_elsewhere, pools_of
from resource_objects.providers.provider import kept_classes
from resource_objects.resources import Inventories

#: Other fields of some providers, by uuid.
_Edits = dict[str, dict[str, Any]]


class PoolMethods(DefineMethods):
    """The methods of a ledger about pools.

    A pool is a provider with the trait ``MISC_SHARES_VIA_AGGREGATE``; it gives what it has to all
    members of its aggregates.
    """

    def share(
        self,
        pool: str,
        with_: Iterable[str],
        *,
        aggregate: str | None = None,
        operation: str | None = None,
    ) -> SyncResult:
        """Make a provider a pool of some hosts, in one transaction.

        The pool gets its trait, the pool and the hosts become members of the aggregate, which is
        made if need be. A class that the pool gives is not counted in the tree of a host too: at
        the hosts named, and all below them, inventories of it go, if they are unused; elsewhere in
        these trees there may be none. Sharing with more hosts later adds them.

        :param pool: name or uuid
        :param with_: the hosts (names or uuids), at least one
        :param aggregate: the aggregate; None: the one called like the pool
        :raises ProviderNotFound: if one of them is not there
        :raises InventoryInUse: if a host's own inventory of what the pool gives is used
        :raises CountedTwice: if somebody else in the aggregates, or in the tree of such a one,
            counts what the pool gives
        :raises InvalidField: if no host is given
        """
        key, hosts = names.provider_key(pool), _hosts(with_)
        if not hosts:
            raise exceptions.InvalidField("with_", with_, "at least one host")
        joined = None if aggregate is None else names.aggregate_name(aggregate)
        doing, done = self._begin(operation, "share", key)
        if done is not None:
            return SyncResult(0, 0, 0)

        def compare() -> Comparison:
            kept = self._kept([key, *hosts])
            giver = located(kept, key)[1]
            takers = [located(kept, host)[1] for host in hosts]
            if any(taker is giver for taker in takers):
                raise exceptions.InvalidTree("share", giver.name, "hosts other than the pool")
            return _comparison(kept, _shared(giver, takers, joined or giver.name))

        return self._define(doing, "share", key, compare)

    def unshare(
        self, pool: str, with_: Iterable[str] | None = None, *, operation: str | None = None
    ) -> SyncResult:
        """End sharing: hosts leave all aggregates of the pool, in one transaction.

        What consumers hold of the pool stays held, also of those whose host has no part in it any
        more; :meth:`audit` lists them.

        :param pool: name or uuid
        :param with_: the hosts (names or uuids); None: all, and the pool is none any more. Then
            the members of those aggregates stay that another pool gives to
        :raises ProviderNotFound: if one of them is not there
        """
        key = names.provider_key(pool)
        hosts = None if with_ is None else _hosts(with_)
        doing, done = self._begin(operation, "unshare", key)
        if done is not None:
            return SyncResult(0, 0, 0)

        def compare() -> Comparison:
            kept = self._kept([key, *(hosts or ())])
            giver = located(kept, key)[1]
            if hosts is not None:
                takers = [located(kept, host)[1] for host in hosts]
                return _comparison(kept, _left(takers, giver.aggregates or frozenset()))
            return self._dissolved(giver)

        return self._define(doing, "unshare", key, compare)

    def _members(
        self, aggregates: frozenset[str], *, forbidden: frozenset[str] = frozenset({SHARES})
    ) -> Iterator[ListedProvider]:
        """Yield who is in one of some aggregates and does not have some traits."""
        wanted = ProviderFilter(aggregates=(aggregates,), forbidden=forbidden)
        return self._listed(wanted, MOST_ROWS) if aggregates else iter(())

    def _dissolved(self, giver: Provider) -> Comparison:
        """Return what makes a pool none, with the trees of all its members."""
        aggregates = giver.aggregates or frozenset()
        listed = list(self._members(aggregates, forbidden=frozenset()))
        others = (one for one in listed if SHARES in one.traits and one.uuid != giver.uuid)
        ended = aggregates.difference(*(one.aggregates for one in others))
        leaving = {one.uuid for one in listed if one.aggregates & ended}
        kept = self._kept({giver.uuid or "", *leaving})
        giver = located(kept, giver.uuid or "")[1]
        edits = _left((kept[uuid][1] for uuid in leaving if uuid in kept), ended)
        edits[giver.uuid or ""] = {"traits": giver.traits - {SHARES}, "aggregates": frozenset()}
        return _comparison(kept, edits)

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
        :raises ProviderNotFound: if it is not there
        :raises InventoryInUse: if one that would go is used
        :raises CountedTwice: if a class that it would give is counted in the tree of a host of it
        :raises StaleDefinition: if it was changed since it was read at ``generation``
        """
        key, wanted = names.provider_key(pool), Inventories(inventories)
        read_at = any_generation(generation)
        doing, done = self._begin(operation, "report", key)
        if done is not None:
            return SyncResult(0, 0, 0)

        def compare() -> Comparison:
            kept = self._kept([key])
            root, provider = at_generation(kept, key, read_at)
            uuid = provider.uuid or ""
            changes = diff(root, edited(root, {uuid: {"inventories": wanted}}))
            return Comparison((root,), (changes,), reported=(uuid,))

        return self._define(doing, "report", key, compare)

    def pools(self, *, stale_after: datetime.timedelta | None = None) -> Iterator[Pool]:
        """Yield the pools, with their members, in the order they were made.

        Cost: a few statements per page of pools.

        :param stale_after: only those whose owner did not report for so long, or never did
        """
        if stale_after is not None:
            ago("stale_after", stale_after, datetime.datetime.now(datetime.UTC))
        return self._pools(stale_after)

    def _pools(self, stale_after: datetime.timedelta | None) -> Iterator[Pool]:
        for page in self._pages(ProviderFilter(required=frozenset({SHARES})), PAGE):
            now = datetime.datetime.now(datetime.UTC)
            hosts = self._members(frozenset().union(*(pool.aggregates for pool in page)))
            for pool in pools_of(page, hosts, now):
                if stale_after is None or pool.is_older_than(stale_after):
                    yield pool


def _hosts(given: Iterable[str]) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise exceptions.InvalidField("with_", given, "a list of providers")
    return list(dict.fromkeys(names.provider_key(host) for host in given))


def _shared(giver: Provider, takers: Iterable[Provider], aggregate: str) -> _Edits:
    """Return how a pool and its hosts shall look."""
    gives = set(kept_classes(giver.inventories))
    edits: _Edits = {
        giver.uuid or "": {"traits": giver.traits | {SHARES}, **_joined(giver, aggregate)}
    }
    hosts = {taker.uuid or "": taker for taker in takers}
    below = {one.uuid or "": one for host in hosts.values() for one in host.walk()}
    for uuid, provider in below.items():
        joined = _joined(provider, aggregate) if uuid in hosts else {}
        is_pool = SHARES in provider.traits or provider is giver
        counted = {} if is_pool else counted_elsewhere(provider, gives)
        if joined or counted:
            edits[uuid] = {**edits.get(uuid, {}), **joined, **counted}
    return edits


def _joined(provider: Provider, aggregate: str) -> dict[str, Any]:
    return {"aggregates": (provider.aggregates or frozenset()) | {aggregate}}


def _left(takers: Iterable[Provider], aggregates: frozenset[str]) -> _Edits:
    """Return how hosts look that leave aggregates."""
    return {
        taker.uuid or "": {"aggregates": (taker.aggregates or frozenset()) - aggregates}
        for taker in takers
    }


def _comparison(kept: Kept, edits: _Edits) -> Comparison:
    roots = roots_of(kept)
    changes: list[DefinitionChanges] = [diff(root, edited(root, edits)) for root in roots]
    return Comparison(roots, tuple(changes))
