"""What all parts of a ledger share: the backend, retries, operations, and how claims are read."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection
from types import TracebackType
from typing import Self

from resource_objects import exceptions, names
from resource_objects.ledger.retries import RetryPolicy
from resource_objects.providers import Allocation, Backend, Claim, Consumer
from resource_objects.providers.orders import ClaimRecord, Held, Operation, Outcome
from resource_objects.requests import Request
from resource_objects.resources import resource


class LedgerBase:
    """A ledger that can be opened and closed; what can be done with it, the parts above say."""

    def __init__(
        self, backend: Backend, *, retries: RetryPolicy | None = None, actor: str | None = None
    ) -> None:
        if retries is not None and not isinstance(retries, RetryPolicy):
            raise exceptions.InvalidField("retries", retries, "a RetryPolicy")
        self._backend = backend
        #: how often a write is tried again after somebody else was faster
        self.retries = retries or RetryPolicy()
        #: who writes, as the change feed tells it
        self.actor = None if actor is None else names.label(actor, "actor")
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

    def _operation(self, given: str | None) -> Operation:
        """Return the operation of a write: of the id given, or of one made up."""
        if given is None:
            return Operation(actor=self.actor)
        return Operation(names.uuid_text(given), self.actor)

    def _begin(
        self, given: str | None, kind: str, subject: str
    ) -> tuple[Operation, Outcome | None]:
        """Return the operation of a write, and what it did if it is a repetition.

        An id that was made up just now is not looked for.

        :raises OperationConflict: if the id was used for something else
        """
        doing = self._operation(given)
        known = None if given is None else self.backend.outcome(doing)
        if known is not None:
            known.require(doing.id, kind, subject)
        return doing, known


def new_operation() -> str:
    """Return an operation id for a write that may have to be repeated."""
    return Operation().id


@functools.lru_cache(maxsize=256)
def request_text(request: Request | None) -> str | None:
    """Return a request as JSON; the same one is often claimed for many consumers."""
    return None if request is None else json.dumps(request.obj_to_primitive())


def claim_of(record: ClaimRecord, request: Request | None = None) -> Claim:
    """Return a kept claim as an object; ``request`` is the one it was made for, where known."""
    if request is None and record.request is not None:
        request = Request.obj_from_primitive(json.loads(record.request))
    return Claim(
        request=request,
        id=record.id,
        consumer=record.consumer,
        consumer_uuid=record.consumer_uuid,
        state=record.state,
        created_at=record.created_at,
        generation=record.generation,
        project=record.project,
        user=record.user,
        consumer_type=record.consumer_type,
        expires_at=record.expires_at,
        allocations=tuple([_allocation(held) for held in record.held]),
    )


@functools.lru_cache(maxsize=4096)
def _allocation(held: Held) -> Allocation:
    """Return a kept allocation as an object; many consumers hold the same of the same provider."""
    return Allocation(
        provider=held.provider,
        provider_uuid=held.provider_uuid,
        resource_class=held.resource_class,
        amount=resource(held.resource_class).make_amount(held.amount),
        units=held.units,
    )


def consumer_of(record: ClaimRecord) -> Consumer:
    """Return a kept consumer, with what it holds, as an object."""
    return Consumer(
        name=record.consumer,
        uuid=record.consumer_uuid,
        generation=record.generation,
        project=record.project,
        user=record.user,
        consumer_type=record.consumer_type,
        claim=claim_of(record),
    )
