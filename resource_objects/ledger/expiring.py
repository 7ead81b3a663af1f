"""Claims that are confirmed, renewed, or whose time is over."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.records import pages_of
from resource_objects.ledger.taking import TakeMethods, patiently, write_of
from resource_objects.providers import Claim
from resource_objects.providers.allocation import CONFIRMED
from resource_objects.providers.given import expiry, now_or
from resource_objects.providers.listing import ConsumerFilter, check_limit
from resource_objects.providers.orders import (
    ClaimRecord,
    Operation,
    Release,
    Renewal,
    subject_of,
)


class ExpireMethods(TakeMethods):
    """The methods of a ledger about the time that claims last."""

    def confirm(
        self, consumer: str, *, claim: str | None = None, operation: str | None = None
    ) -> Claim:
        """Confirm a claim: it is in use, and expires no more.

        :param claim: the id of the claim that is meant; None: whichever the consumer has
        :raises ConsumerNotFound: if the consumer holds nothing (any more)
        :raises StaleConsumer: if it has another claim than the one that is meant
        """
        name = names.consumer_name(consumer)
        order = Renewal(name, None, CONFIRMED, _id(claim))
        doing = self._operation(operation)
        return claim_of(self.backend.commit(write_of(doing, "confirm", name, [order]))[0])

    def renew(
        self,
        consumer: str,
        *,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        claim: str | None = None,
        operation: str | None = None,
    ) -> Claim:
        """Give a claim another expiry, later or sooner; its state stays.

        :param expires_in, expires_at: one of them (a claim that expires no more: :meth:`confirm`)
        :param claim: the id of the claim that is meant; None: whichever the consumer has
        :raises ConsumerNotFound: if the consumer holds nothing (any more)
        :raises StaleConsumer: if it has another claim than the one that is meant
        """
        name, meant = names.consumer_name(consumer), _id(claim)
        until = expiry(expires_in, expires_at)
        if until is None:
            raise exceptions.InvalidField("renew", until, "expires_in or expires_at")
        doing, done = self._begin(operation, "renew", name)
        if done is not None and done.claim is not None:
            return claim_of(done.claim)

        def attempt() -> Claim:
            (kept,) = self._held_by(name)
            order = Renewal(name, until, kept.state, meant, kept.generation)
            return claim_of(self.backend.commit(write_of(doing, "renew", name, [order]))[0])

        return patiently(attempt, self.retries.definitions, exceptions.StaleConsumer)

    def expired(self, now: datetime.datetime | None = None, *, page: int = 500) -> Iterator[Claim]:
        """Yield the claims whose time is over and that are still held, by consumer.

        Cost: a few statements per page.

        :param now: the moment to judge by, with its time zone; None: this one
        """
        wanted, check = _before(now), check_limit(page)
        return (
            claim_of(record)
            for records in pages_of(self.backend, wanted, check)
            for record in records
        )

    def release_expired(
        self, now: datetime.datetime | None = None, *, page: int = 500
    ) -> tuple[Claim, ...]:
        """Release the claims whose time is over; return what was released.

        One that is renewed, confirmed or otherwise changed meanwhile stays. Cost: a few statements
        per page; each page is one transaction. If a page fails after others are done, what these
        released is returned, and the rest is still there: the next call goes on with it, and
        raises if it fails again. So call until nothing is returned; :meth:`changes` tells every
        release, also one whose acknowledgement was lost.

        :param now: the moment to judge by, with its time zone; None: this one
        :raises ResourceObjectsError: whatever the first page fails for; nothing is released then
        """
        wanted, check = _before(now), check_limit(page)
        released: list[Claim] = []
        try:
            for records in pages_of(self.backend, wanted, check):
                released += map(claim_of, self._released(records))
        except exceptions.ResourceObjectsError:
            if not released:
                raise
        return tuple(released)

    def _released(self, records: tuple[ClaimRecord, ...]) -> tuple[ClaimRecord, ...]:
        """Release those of some consumers that are as they were read."""
        left = {record.consumer: Release(record.consumer, record.generation) for record in records}
        while left:
            doing = Operation(actor=self.actor)
            write = write_of(doing, "release", subject_of(left), left.values())
            try:
                return self.backend.commit(write)
            except (exceptions.StaleConsumer, exceptions.ConsumerNotFound) as changed:
                if left.pop(changed.subject, None) is None:
                    raise
        return ()


def _before(now: datetime.datetime | None) -> ConsumerFilter:
    return ConsumerFilter(expires_before=now_or("now", now))


def _id(claim: str | None) -> str | None:
    return None if claim is None else names.uuid_text(claim)
