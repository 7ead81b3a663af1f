"""The front door: :func:`connect` and the :class:`Ledger` it returns.

    >>> import resource_objects as ro
    >>> ledger = ro.connect("memory://")
    >>> ledger.sync(ro.Provider("host0", "VCPU=8,MEMORY_MB=16384"))
    SyncResult(created=1, updated=0, removed=0)
    >>> print(ledger.claim("job-1", ledger.snapshot().candidates(ro.Request("VCPU=6"))))
    job-1 holds VCPU=6 of host0
    >>> print(ledger.snapshot().candidates(ro.Request("VCPU=3")).explain())
    host0: VCPU asked 3, free 2 of 8 (job-1 holds 6)
    >>> print(ledger.release("job-1"))
    job-1 released VCPU=6 of host0

A ledger is safe for use by several threads. It blocks while it talks to its database; from asyncio
call it through ``asyncio.to_thread``. Reading never writes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from resource_objects import exceptions, names, plugins
from resource_objects.providers import Allocation, Backend, Claim, DefinitionChanges, Provider, diff
from resource_objects.providers.backend import (
    Adjustment,
    ClaimOrder,
    ClaimRecord,
    Delta,
    Operation,
    Outcome,
)
from resource_objects.providers.columns import find, subtree, trees
from resource_objects.providers.definition import ProviderRemoval
from resource_objects.providers.usage import Usage, usage_of
from resource_objects.requests import Request
from resource_objects.resources import Amounts, resource
from resource_objects.search.candidates import Candidate, Candidates
from resource_objects.search.snapshot import Snapshot

BACKEND_NAMESPACE = "resource_objects.backends"


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a write is tried again after somebody else was faster.

    ``searches``: how many times ``claim`` looks for candidates afresh after all it was given are
    gone. ``definitions``: how many times ``sync`` compares again after the tree changed meanwhile.
    """

    searches: int = 3
    definitions: int = 5

    def __post_init__(self) -> None:
        for name in ("searches", "definitions"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise exceptions.InvalidField(f"RetryPolicy.{name}", value, "an integer from 0")


@dataclasses.dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync did, in providers; :attr:`changes` tells which. True if anything changed.

    A repeated operation did everything the first time; the repetition does nothing and says so.
    """

    created: int
    updated: int
    removed: int
    changes: tuple[DefinitionChanges, ...] = dataclasses.field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.created or self.updated or self.removed)

    def __str__(self) -> str:
        return "\n".join(str(change) for change in self.changes if change) or "nothing changed"


def connect(url: str = "memory://", *, retries: RetryPolicy | None = None) -> Ledger:
    """Open the ledger that ``url`` names.

    ===================================  =========================================================
    ``memory://``                        a new one in this process, gone when closed
    ``sqlite:///lab.db``                 a file (four slashes for an absolute path), made and
                                         upgraded by opening it
    ``postgresql+psycopg://host/name``   a server's database; ``resource-objects db upgrade`` makes
                                         and upgrades it
    ``mysql+pymysql://host/name``        the same on MariaDB, Galera or MySQL
    ===================================  =========================================================

    More come from plug-ins (namespace ``resource_objects.backends``).

    :raises InvalidURL: if it is no URL, or not one of its backend's
    :raises BackendNotFound: if no backend of its name is installed
    :raises DatabaseUnavailable: if it cannot be opened; nothing is left behind
    :raises SchemaTooNew: if a newer library made it
    :raises SchemaTooOld: if it needs ``db upgrade``
    """
    return Ledger(backend_for(url).open(url), retries=retries)


def backend_for(url: str) -> type[Backend]:
    """Return the backend class that serves a URL.

    :raises InvalidURL: if it is no URL
    :raises BackendNotFound: if no backend of that name is installed

    >>> backend_for("memory://").__name__
    'MemoryBackend'
    """
    if not isinstance(url, str) or "://" not in url:
        raise exceptions.InvalidURL("ledger URL", url, "a URL such as sqlite:///lab.db")
    name = url.partition("://")[0].partition("+")[0]
    if name not in plugins.names(BACKEND_NAMESPACE):
        known = ", ".join(plugins.names(BACKEND_NAMESPACE))
        raise exceptions.BackendNotFound(name, f"installed: {known}")
    backend: type[Backend] = plugins.load(BACKEND_NAMESPACE, name)
    return backend


class Ledger:
    """Providers, what they have, and who uses it, kept in a backend.

    ==============  ===============================================================================
    declare         :meth:`sync`, :meth:`remove`
    read            :meth:`provider`, :meth:`providers`, :meth:`usage`, :meth:`held`
    search          :meth:`snapshot`, then ``candidates``
    take, give      :meth:`claim`, :meth:`adjust`, :meth:`release`
    end             :meth:`close`, or use it in a ``with`` statement
    ==============  ===============================================================================

    Every writing method takes an ``operation`` id (a uuid, made up if not given): after a lost
    acknowledgement call again with the same id, and it happens once.
    """

    def __init__(self, backend: Backend, *, retries: RetryPolicy | None = None) -> None:
        if retries is not None and not isinstance(retries, RetryPolicy):
            raise exceptions.InvalidField("retries", retries, "a RetryPolicy")
        self._backend = backend
        #: how often a write is tried again after somebody else was faster
        self.retries = retries or RetryPolicy()
        self._closed = False

    @property
    def backend(self) -> Backend:
        """Where this ledger is kept."""
        if self._closed:
            raise exceptions.LedgerClosed("ledger")
        return self._backend

    def close(self) -> None:
        """Give back every connection. Closing twice is allowed; any other use is refused."""
        self._closed = True
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- declare ---

    def sync(self, *roots: Provider, operation: str | None = None) -> SyncResult:
        """Make the kept trees look like ``roots``, each tree in one transaction.

        What a tree does not have any more goes, unless it is used. What consumers hold is not
        touched: shrinking below use is allowed and shows as a negative ``free``.

        :raises InvalidTree: if a root is named twice
        :raises StaleDefinition: if a provider was read at an older generation
        :raises ProviderExists: if a name or uuid belongs to another tree
        :raises ProviderInUse: if a provider that would go has allocations
        :raises InventoryInUse: if an inventory that would go has allocations
        """
        for root in roots:
            if not isinstance(root, Provider):
                raise exceptions.InvalidTree("sync", root, "providers, each the root of a tree")
        seen = [root.name for root in roots]
        if operation is not None and len(roots) > 1:
            raise exceptions.InvalidTree("sync", operation, "one tree per operation id")
        if len(set(seen)) != len(seen):
            raise exceptions.InvalidTree("sync", seen, "each root once")
        done = tuple(self._sync_tree(root, operation) for root in roots)
        return SyncResult(
            created=sum(len(changes.creates) for changes in done),
            updated=sum(not one.only_children for changes in done for one in changes.updates),
            removed=sum(len(changes.removals) for changes in done),
            changes=done,
        )

    def _sync_tree(self, wanted: Provider, operation: str | None) -> DefinitionChanges:
        """Compare and write, again if somebody changed the tree in between."""
        doing, done = self._begin(operation, "define", wanted.name)
        if done is not None:
            return DefinitionChanges(wanted.name)
        tries = self.retries.definitions
        while True:
            kept = trees(self.backend.read(wanted.uuid or wanted.name))
            if kept and wanted.name != kept[0].name and wanted.uuid != kept[0].uuid:
                raise exceptions.ProviderExists(wanted.name, f"in the tree of {kept[0].name}")
            changes = diff(kept[0] if kept else None, wanted)
            if not changes:
                return changes
            try:
                self.backend.define(doing, changes)
            except (exceptions.StaleDefinition, exceptions.ProviderExists):
                # somebody changed the tree, or made it at the same moment: look again
                if tries <= 0:
                    raise
                tries -= 1
            else:
                return changes

    def remove(self, name: str, *, operation: str | None = None) -> SyncResult:
        """Remove a provider (by name or uuid) and all below it, in one transaction.

        :raises ProviderNotFound: if it is not there
        :raises ProviderInUse: if it or one below has allocations
        :raises StaleDefinition: if somebody changes it at this moment
        """
        key = names.provider_key(name)
        doing, done = self._begin(operation, "define", key)
        if done is not None:
            return SyncResult(0, 0, 0)
        gone = list(self.provider(key).walk())
        changes = DefinitionChanges(
            key,
            removals=tuple(
                ProviderRemoval(one.uuid or "", one.name, one.generation or 0)
                for one in reversed(gone)
            ),
        )
        self.backend.define(doing, changes)
        return SyncResult(0, 0, len(gone), (changes,))

    # --- read ---

    def provider(self, name: str) -> Provider:
        """Return a provider (by name or uuid) with all below it, and what is used.

        :raises ProviderNotFound: if there is none
        """
        key = names.provider_key(name)
        found = find(self.backend.read(key), key)
        if found is None:
            raise exceptions.ProviderNotFound(name)
        self._adopt(found[1])
        return found[1]

    def providers(self) -> Iterator[Provider]:
        """Yield the roots, each with its tree, by name."""
        for root in trees(self.backend.read()):
            self._adopt(root)
            yield root

    def _adopt(self, root: Provider) -> None:
        for provider in root.walk():
            provider._context = self

    def usage(self, tree: str | None = None) -> Usage:
        """Return what is used, everywhere or in the tree of one provider.

        :raises ProviderNotFound: if the provider is not there
        """
        columns = self.backend.read(None if tree is None else names.provider_key(tree))
        if tree is not None and not columns.providers.uuid:
            raise exceptions.ProviderNotFound(tree)
        return usage_of(columns)

    def held(self, consumer: str) -> Claim:
        """Return what a consumer holds.

        :raises ConsumerNotFound: if it holds nothing
        """
        record = self.backend.held(names.consumer_name(consumer))
        if record is None:
            raise exceptions.ConsumerNotFound(consumer)
        return _claim(record)

    # --- search ---

    def snapshot(self, at: str | None = None) -> Snapshot:
        """Return an immutable picture of the ledger, to search in. Cost: one read of all of it.

        :param at: a provider (by name or uuid): then only that one and what is below it
        :raises ProviderNotFound: if ``at`` is not there
        """
        if at is None:
            return Snapshot(self.backend.read())
        key = names.provider_key(at)
        return Snapshot(subtree(self.backend.read(key), key), at=key)

    # --- take and give ---

    def claim(
        self,
        consumer: str,
        found: Candidates | Candidate | Sequence[Candidate] | Mapping[str, Any],
        *,
        operation: str | None = None,
    ) -> Claim:
        """Take what a search found for a consumer that holds nothing yet; all or nothing.

        :param found: candidates (the next one on a lost race, then a fresh search, as often as the
            ledger's :class:`RetryPolicy` says); one candidate, or several of one's own choice, of
            which the first that is still free is taken; or ``{provider: amounts}``, providers by
            name or uuid, by whoever decides elsewhere
        :raises NoCandidates: if the search found nothing
        :raises SearchLimitReached: if the search was cut short before it found anything
        :raises CapacityException: if it does not fit (any more), with who holds what
        :raises ConsumerExists: if the consumer holds something already
        :raises ProviderNotFound: if a provider named directly is not there
        """
        name = names.consumer_name(consumer)
        doing, done = self._begin(operation, "claim", name)
        if done is not None and done.claim is not None:
            return _claim(done.claim)
        if isinstance(found, Candidates):
            return self._claim_searched(name, found, doing)
        if isinstance(found, Candidate):
            found = (found,)
        if isinstance(found, list | tuple) and found:
            return self._claim_first(name, found, None, doing)
        order = ClaimOrder(name, self._deltas(found, give_back=False))
        return _claim(self.backend.claim(doing, order))

    def _claim_searched(self, consumer: str, found: Candidates, doing: Operation) -> Claim:
        """Claim the first candidate that is still free, searching again when all are gone."""
        for searches_left in range(self.retries.searches, -1, -1):
            if not found:
                break
            try:
                return self._claim_first(consumer, found, found.request, doing)
            except (exceptions.CapacityException, exceptions.ProviderNotFound):
                if not searches_left:
                    raise
            limit = len(found)
            found = self.snapshot(found.at).candidates(
                found.request, limit=limit, budget=found.budget
            )
        raise exceptions.NoCandidates(f"no candidate for {consumer}: {found.explain()}")

    def _claim_first(
        self,
        consumer: str,
        candidates: Iterable[Candidate],
        request: Request | None,
        doing: Operation,
    ) -> Claim:
        """Claim the first candidate that is still free, or raise why the last one is not."""
        lost: exceptions.ResourceObjectsError | None = None
        for candidate in candidates:
            if not isinstance(candidate, Candidate):
                raise exceptions.InvalidAmount("claim", candidate, "a candidate")
            try:
                return self._claim_one(consumer, candidate, request, doing)
            except (exceptions.CapacityException, exceptions.ProviderNotFound) as gone:
                lost = gone
        assert lost is not None, "there is at least one candidate"
        raise lost

    def _claim_one(
        self, consumer: str, candidate: Candidate, request: Request | None, doing: Operation
    ) -> Claim:
        unnamed = {one.provider for one in candidate.allocations if one.provider_uuid is None}
        uuids = self._uuids(unnamed) if unnamed else {}
        deltas = tuple(
            Delta(one.provider_uuid or uuids[one.provider], record.resource_class, record.amount)
            for one in candidate.allocations
            for record in one.amount.to_records(one.resource_class)
        )
        order = ClaimOrder(consumer, deltas, request=_request_text(request))
        return _claim(self.backend.claim(doing, order), request)

    def adjust(
        self,
        consumer: str,
        changes: Mapping[str, Any],
        *,
        aggregate: bool = False,
        operation: str | None = None,
    ) -> Claim:
        """Change what a consumer holds by ``{provider name: amounts}``; negative gives back.

        All or nothing. A consumer that held nothing is made, one that holds nothing afterwards is
        forgotten. What others hold is never touched. Unit rules bind all that the consumer will
        hold, unless it is an ``aggregate``, which stands for many.

        :raises CapacityException: if it does not fit, or gives back more than the consumer holds
        :raises ProviderNotFound: if a provider is not there
        """
        name = names.consumer_name(consumer)
        doing, done = self._begin(operation, "adjust", name)
        if done is not None and done.claim is not None:
            return _claim(done.claim)
        deltas = self._deltas(changes, give_back=True)
        order = Adjustment(name, deltas, aggregate=aggregate)
        return _claim(self.backend.adjust(doing, order))

    def release(self, consumer: str, *, operation: str | None = None) -> Claim:
        """Give back all that a consumer holds; return what it held.

        :raises ConsumerNotFound: if it holds nothing
        """
        doing = _operation(operation)
        return _claim(self.backend.release(doing, names.consumer_name(consumer)))

    def _deltas(self, given: Any, *, give_back: bool) -> tuple[Delta, ...]:
        """Return what ``{provider name: amounts}`` changes, checked before anything is asked."""
        if not isinstance(given, Mapping):
            raise exceptions.InvalidAmount(
                "claim", given, "candidates, or a mapping of provider names to amounts"
            )
        wanted: dict[str, Amounts] = {}
        for name, asked in given.items():
            key = names.provider_key(name)
            if key in wanted:
                raise exceptions.DuplicateKey("claim", name, "each provider once")
            wanted[key] = Amounts.of(asked)
        if not any(wanted.values()):
            raise exceptions.InvalidAmount("claim", given, "something to take or give back")
        return tuple(self._resolved(wanted, give_back))

    def _resolved(self, by_provider: dict[str, Amounts], give_back: bool) -> Iterator[Delta]:
        uuids = self._uuids(by_provider)
        for name, amounts in by_provider.items():
            for kind, amount in amounts.by_name():
                if amount.is_negative and not give_back:
                    raise exceptions.NegativeAmount(kind, amount, "0 or more; give back by release")
                for record in amount.to_records(kind):
                    yield Delta(uuids[name], record.resource_class, record.amount)

    def _uuids(self, keys: Collection[str]) -> dict[str, str]:
        """Return the uuid of each name or uuid, in one look."""
        found = {key: key for key in keys if names.is_uuid(key)}
        asked = [key for key in keys if key not in found]
        if asked:
            found |= self.backend.uuids(asked)
        for key in keys:
            if key not in found:
                raise exceptions.ProviderNotFound(key)
        return found

    def _begin(
        self, given: str | None, kind: str, subject: str
    ) -> tuple[Operation, Outcome | None]:
        """Return the operation of a write, and what it did if it is a repetition.

        An id that was made up just now is not looked for.

        :raises OperationConflict: if the id was used for something else
        """
        doing = _operation(given)
        known = None if given is None else self.backend.outcome(doing)
        if known is not None:
            known.require(doing.id, kind, subject)
        return doing, known


@functools.lru_cache(maxsize=256)
def _request_text(request: Request | None) -> str | None:
    """Return a request as JSON; the same one is often claimed for many consumers."""
    return None if request is None else json.dumps(request.obj_to_primitive())


def _operation(given: str | None) -> Operation:
    return Operation() if given is None else Operation(names.uuid_text(given))


def _claim(record: ClaimRecord, request: Request | None = None) -> Claim:
    if request is None and record.request is not None:
        request = Request.obj_from_primitive(json.loads(record.request))
    return Claim(
        request=request,
        id=record.id,
        consumer=record.consumer,
        consumer_uuid=record.consumer_uuid,
        state=record.state,
        created_at=record.created_at,
        allocations=tuple(
            Allocation(
                provider=held.provider,
                provider_uuid=held.provider_uuid,
                resource_class=held.resource_class,
                amount=resource(held.resource_class).make_amount(held.amount),
            )
            for held in record.held
        ),
    )


def new_operation() -> str:
    """Return an operation id for a write that may have to be repeated."""
    return Operation().id
