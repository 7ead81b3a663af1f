"""The context of a ledger: its backend, retries and operations, and stored claims as objects.

A part of a ledger gets the backend from the :class:`LedgerContext` for each call and stores no
reference to it, so that a closed ledger is refused in one place.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from resource_objects import exceptions, names
from resource_objects.backends.retries import RetryPolicy
from resource_objects.providers import Allocation, Backend, Claim, Consumer
from resource_objects.providers.arguments import moment
from resource_objects.providers.listing import ConsumerFilter, ListedProvider, ProviderFilter
from resource_objects.providers.orders import ConsumerRecord, Operation, Outcome, Use
from resource_objects.resources import resource

_A = TypeVar("_A")
_T = TypeVar("_T")


def new_operation() -> str:
    """Return a new operation id, for a write that may have to be repeated."""
    return Operation().id


class LedgerContext:
    """The backend of a ledger, its retry policy and its actor."""

    def __init__(
        self, backend: Backend, retries: RetryPolicy | None = None, actor: str | None = None
    ) -> None:
        if retries is not None and not isinstance(retries, RetryPolicy):
            raise exceptions.InvalidInput("field", "retries", retries, "a RetryPolicy")
        self._backend = backend
        self.retries = retries or RetryPolicy()
        self.page, self.tree_page = 500, 100  #: the number of rows, and of trees, in a page
        self.actor = None if actor is None else names.label(actor, "actor")
        self._closed = False

    @property
    def backend(self) -> Backend:
        """The backend that stores the ledger.

        :raises DatabaseError: after :meth:`close`
        """
        if self._closed:
            raise exceptions.DatabaseError("closed", "ledger")
        return self._backend

    def close(self) -> None:
        """Close every connection; closing twice is allowed."""
        self._closed = True
        self._backend.close()

    # --- reading ---

    def now_or(self, now: datetime.datetime | None) -> datetime.datetime:
        """Return a checked time, or the time of the ledger's clock for None.

        :raises InvalidInput: for a time without its time zone
        """
        return self.backend.now() if now is None else moment("now", now)

    def uuids(self, keys: Collection[str]) -> dict[str, str]:
        """Return the uuid of each name or uuid. Cost: a statement if there are names.

        :raises NotFound: if there is no provider of a name
        """
        uuids = {key: key for key in keys if names.is_uuid(key)}
        named = [key for key in keys if key not in uuids]
        if not named:
            return uuids
        uuids |= self.backend.uuids(named)
        for key in named:
            if key not in uuids:
                raise exceptions.NotFound("provider", key)
        return uuids

    def held_by(self, *consumers: str) -> tuple[ConsumerRecord, ...]:
        """Return the stored records of consumers, in their order and of one moment.

        :raises NotFound: for a consumer without allocations
        """
        records = self.backend.held_by(consumers)
        for name in consumers:
            if name not in records:
                raise exceptions.NotFound("consumer", name)
        return tuple(records[name] for name in consumers)

    def providers(
        self,
        criteria: ProviderFilter,
        limit: int | None = None,
        after: str | None = None,
        page: int | None = None,
    ) -> Iterator[ListedProvider]:
        """Yield the providers of a filter, in the order of their creation."""
        pages = self.provider_pages(criteria, any_limit(limit), after, page)
        return itertools.chain.from_iterable(pages)

    def provider_pages(
        self,
        criteria: ProviderFilter,
        limit: int | None = None,
        after: str | None = None,
        page: int | None = None,
    ) -> Iterator[tuple[ListedProvider, ...]]:
        """Yield the providers of a filter in pages, in the order of their creation.

        :param after: the name or uuid of the last provider before the first page
        :raises NotFound: if that provider does not exist
        """
        backend = self.backend  # a closed ledger is refused now, and not by the first page
        return pages_of(
            lambda count, number: backend.list_providers(criteria, count, number or 0),
            lambda listed: listed.number,
            page or self.page,
            limit,
            0 if after is None else self.listed(names.provider_key(after)).number,
        )

    def listed(self, key: str) -> ListedProvider:
        """Return a provider, by name or uuid, as a list has it. Cost: two statements.

        :raises NotFound: if it does not exist
        """
        uuid = self.uuids([key])[key]
        for listed in self.backend.list_providers(ProviderFilter(uuids=frozenset([uuid])), 1):
            return listed
        raise exceptions.NotFound("provider", key)

    def consumer_pages(
        self,
        criteria: ConsumerFilter,
        limit: int | None = None,
        after: str | None = None,
        page: int | None = None,
    ) -> Iterator[tuple[ConsumerRecord, ...]]:
        """Yield the consumers that match a filter in pages, ordered by name."""
        return pages_of(
            lambda count, last: self.backend.list_consumers(criteria, count, last),
            lambda record: record.consumer,
            page or self.page,
            limit,
            after,
        )

    # --- writing ---

    def operation(self, id: str | None) -> Operation:
        """Return the operation of a write; None: with a new id."""
        return Operation(None if id is None else names.uuid_text(id), self.actor)

    def recorded(self, id: str | None, kind: str, subject: str) -> Outcome | None:
        """Return the outcome of an operation that was carried out before, else None.

        :param id: None is a new operation, which needs no read
        :raises Conflict: if the id was used for another operation
        """
        if id is None:
            return None
        operation = self.operation(id)
        outcome = self.backend.outcome(operation)
        if outcome is not None:
            outcome.require(operation.id, kind, subject)
        return outcome


def pages_of(
    read: Callable[[int, _A | None], tuple[_T, ...]],
    last: Callable[[_T], _A],
    page: int,
    limit: int | None = None,
    after: _A | None = None,
) -> Iterator[tuple[_T, ...]]:
    """Yield the pages of a list.

    :param read: ``read(count, after)`` returns the next ``count`` entries after a key
    :param last: returns the key of an entry
    :param page: the number of entries of a page
    :param limit: the maximum number of entries in total
    """
    remaining = limit
    while remaining is None or remaining > 0:
        count = page if remaining is None else min(page, remaining)
        entries = read(count, after)
        if entries:
            yield entries
            after = last(entries[-1])
        if len(entries) < count:
            return
        remaining = None if remaining is None else remaining - len(entries)


def any_limit(limit: object) -> int | None:
    """Return the maximum number of entries of a list; None for no maximum.

    :raises InvalidInput: if it is neither None nor an integer from 1
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise exceptions.InvalidInput("field", "limit", limit, "an integer from 1, or None")
    return limit if limit is None else min(limit, sys.maxsize)  # the most that islice() accepts


# --- stored claims as objects ---


def claim_of(record: ConsumerRecord, *, is_checked: bool = True) -> Claim:
    """Return a stored claim as an object.

    :param is_checked: whether the fields are checked
    :raises InvalidInput: for invalid rows, which another program or version wrote
    """
    make: Callable[..., Claim] = Claim if is_checked else Claim._construct
    return make(
        request=None if record.request is None else record.request.request,
        id=record.uuid,
        consumer=record.consumer,
        consumer_uuid=record.uuid,
        state=record.state,
        created_at=record.created_at,
        generation=record.generation,
        project=record.project,
        user=record.user,
        consumer_type=record.consumer_type,
        expires_at=record.expires_at,
        group=record.group,
        allocations=tuple([_allocation(use, is_checked) for use in record.held]),
    )


def written_claim_of(record: ConsumerRecord) -> Claim:
    """Return a claim that was just written or released as an object, without checking it again.

    A claim was checked when it was ordered. A release has already happened, whatever its rows
    contain: it must not look refused.
    """
    return claim_of(record, is_checked=False)


@functools.lru_cache(maxsize=4096)  # many consumers have the same amount of the same provider
def _allocation(use: Use, is_checked: bool) -> Allocation:
    make: Callable[..., Allocation] = Allocation if is_checked else Allocation._construct
    return make(
        provider=use.provider,
        provider_uuid=use.provider_uuid,
        resource_class=use.resource_class,
        amount=resource(use.resource_class).make_amount(use.amount),
        units=use.units,
    )


def consumer_of(record: ConsumerRecord) -> Consumer:
    """Return a stored consumer with its claim as an object; see :func:`claim_of`."""
    claim = claim_of(record)
    shared = ("generation", "project", "user", "consumer_type", "group")
    fields = {name: getattr(claim, name) for name in shared}
    return Consumer(name=claim.consumer, uuid=claim.consumer_uuid, claim=claim, **fields)
