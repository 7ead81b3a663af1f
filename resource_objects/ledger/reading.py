"""Reading: trees, claims, figures, and the picture that a search asks."""

from __future__ import annotations

from collections.abc import Iterator

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.fresh import Fresh
from resource_objects.ledger.listing import ListMethods
from resource_objects.ledger.retries import RetryPolicy
from resource_objects.providers import Backend, Claim, Provider
from resource_objects.providers.columns import find, trees
from resource_objects.providers.listing import ProviderFilter, check_limit
from resource_objects.providers.usage import Usage, Use, usage_of
from resource_objects.search.snapshot import Snapshot

#: How many trees are read at once.
PAGE = 100


class ReadMethods(ListMethods):
    """The methods of a ledger that read."""

    def __init__(
        self, backend: Backend, *, retries: RetryPolicy | None = None, actor: str | None = None
    ) -> None:
        super().__init__(backend, retries=retries, actor=actor)
        self._fresh = Fresh()

    def close(self) -> None:
        """Give back every connection. Closing twice is allowed; any other use is refused."""
        super().close()
        self._fresh.forget()

    def provider(self, name: str) -> Provider:
        """Return a provider (by name or uuid) with all below it, and what is used.

        :raises ProviderNotFound: if there is none
        """
        key = names.provider_key(name)
        found = find(self.backend.read(key, allocations=False), key)
        if found is None:
            raise exceptions.ProviderNotFound(name)
        return self._adopted(found[1])

    def trees(self, *given: str, page: int = PAGE) -> Iterator[Provider]:
        """Yield the roots, each with its tree, and what is used, in the order they were made.

        Each tree is of one moment. Cost: a few statements per page.

        :param given: only the trees of these providers (names or uuids), in this order, each once
        :param page: how many trees are read at once
        :raises ProviderNotFound: if one given is not there
        """
        keys = [names.provider_key(name) for name in given]
        check_limit(page)
        return self._trees_of(keys, page) if keys else self._all_trees(page)

    def _all_trees(self, page: int) -> Iterator[Provider]:
        for found in self._pages(ProviderFilter(roots_only=True), page):
            roots = [one.uuid for one in found]
            kept = {root.uuid: root for root in trees(self.backend.read(*roots, allocations=False))}
            # one that went below another meanwhile comes with that one
            yield from (self._adopted(kept[uuid]) for uuid in roots if uuid in kept)

    def _trees_of(self, keys: list[str], page: int) -> Iterator[Provider]:
        seen: set[str | None] = set()
        for start in range(0, len(keys), page):
            some = keys[start : start + page]
            kept = by_key(trees(self.backend.read(*some, allocations=False)))
            for key in some:
                root, _ = located(kept, key)
                if root.uuid not in seen:
                    seen.add(root.uuid)
                    yield self._adopted(root)

    def _adopted(self, root: Provider) -> Provider:
        for provider in root.walk():
            provider._context = self
        return root

    def usage(self, tree: str | None = None) -> Usage:
        """Return what is used and by whom, everywhere or in the tree of one provider.

        Cost: one read of it all; :meth:`totals` and :meth:`over_capacity` do not read it.

        :raises ProviderNotFound: if the provider is not there
        """
        if tree is None:
            return usage_of(self.backend.read())
        columns = self.backend.read(names.provider_key(tree))
        if not columns.providers.uuid:
            raise exceptions.ProviderNotFound(tree)
        return usage_of(columns)

    def over_capacity(self) -> Iterator[Use]:
        """Yield what is used beyond its capacity, with who holds it there: after a shrink.

        Cost: a few statements per page of providers that are over-full; the others are not read.
        """
        for found in self._pages(ProviderFilter(over_capacity=True), PAGE):
            over = {one.name for one in found}
            usage = usage_of(self.backend.read(*(one.uuid for one in found)))
            yield from (use for use in usage.over_capacity if use.provider in over)

    def held(self, consumer: str) -> Claim:
        """Return what a consumer holds.

        :raises ConsumerNotFound: if it holds nothing
        """
        record = self.backend.held(names.consumer_name(consumer))
        if record is None:
            raise exceptions.ConsumerNotFound(consumer)
        return claim_of(record)

    def snapshot(self, at: str | None = None) -> Snapshot:
        """Return an immutable picture of the ledger, to search in.

        It shows everything that was committed before the call, by whichever thread, process or
        machine. The first one reads everything. It is kept, and the next is made of it: if nothing
        was written meanwhile it is the same one again, at the cost of one small statement; else the
        trees that were touched are read, in one transaction, and put in the place of what was
        there. ``snapshot.refreshed`` says how a snapshot came to be. Those given out before do not
        change. Any number of threads may call this at once.

        Everything is read again after a change that names no provider (a class, trait or aggregate
        was made, renamed or removed), when the feed was pruned beyond the last snapshot, and when
        more than a quarter of the trees were touched.

        On Galera a node may lag behind what another one has acknowledged. It needs
        ``wsrep_sync_wait=1`` for the program's sessions to show that too: each reading transaction
        then waits until its node has applied what was committed in the cluster when it began, also
        the one that finds nothing new. Without it a snapshot shows what the node has; a claim is
        right all the same. A replica of PostgreSQL lags likewise.

        :param at: a provider (by name or uuid): then only that one and what is below it, of which
            the whole tree is read each time
        :raises ProviderNotFound: if ``at`` is not there
        :raises LedgerClosed: if the ledger is closed
        """
        if at is None:
            return self._fresh.snapshot(self.backend)
        key = names.provider_key(at)
        return Snapshot(self.backend.read(key), at=key)


#: Providers by name and by uuid, each with the root of its tree.
Kept = dict[str, tuple[Provider, Provider]]


def by_key(roots: list[Provider]) -> Kept:
    """Return the providers of some trees by name and by uuid, each with its root: (root, it)."""
    return {
        key: (root, provider)
        for root in roots
        for provider in root.walk()
        for key in (provider.name, provider.uuid or "")
    }


def located(kept: Kept, key: str) -> tuple[Provider, Provider]:
    """Return (root, provider) of a name or uuid.

    :raises ProviderNotFound: if it is not there
    """
    if key not in kept:
        raise exceptions.ProviderNotFound(key)
    return kept[key]
