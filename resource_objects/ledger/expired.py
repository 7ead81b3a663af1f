"""Expired claims: list and release the claims whose time is over."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Iterable, Iterator

from resource_objects import exceptions, names
from resource_objects.ledger.context import LedgerContext, any_limit, claim_of, written_claim_of
from resource_objects.providers import Claim
from resource_objects.providers.backend import Capability
from resource_objects.providers.holders import MOST_HOLDERS
from resource_objects.providers.listing import ConsumerFilter
from resource_objects.providers.orders import ConsumerOrder, ConsumerRecord, Write, subject_of
from resource_objects.reasons import Reason


class ExpiredClaims:
    """The expired claims of a ledger; :class:`~resource_objects.ledger.Ledger` documents them."""

    def __init__(self, context: LedgerContext) -> None:
        self._context = context

    def expired(
        self,
        now: datetime.datetime | None,
        limit: int | None,
        after: str | None,
        reasons: Iterable[Reason] | None = None,
    ) -> Iterator[Claim]:
        last = None if after is None else names.consumer_name(after)
        expired, most = self._filter(now), any_limit(limit)
        if reasons is None:
            pages = self._context.consumers(expired, most, last)
            return (claim_of(record) for records in pages for record in records)
        checked = list(reasons) if isinstance(reasons, Iterable) else [reasons]
        if not all(isinstance(reason, Reason) for reason in checked):
            raise exceptions.InvalidInput("field", "reasons", reasons, "the reasons of a refusal")
        can_expire = Capability.EXPIRY not in self._context.backend.unsupported
        consumers = self._consumers_of(checked, expired) if can_expire else set()
        pages = self._context.consumers(expired, None, last) if consumers else iter(())
        records = (record for page in pages for record in page if record.consumer in consumers)
        return map(claim_of, itertools.islice(records, most))

    def release(
        self,
        now: datetime.datetime | None,
        limit: int | None,
        tree: str | None = None,
        excluding: str | None = None,
    ) -> tuple[Claim, ...]:
        excluded = None if excluding is None else names.consumer_name(excluding)
        released: list[Claim] = []
        pages = self._context.consumers(self._filter(now, tree), any_limit(limit))
        try:
            for records in pages:
                released += map(written_claim_of, self._release(records, excluded))
        except exceptions.ResourceObjectsError:
            if not released:
                raise
        return tuple(released)

    def _filter(self, now: datetime.datetime | None, tree: str | None = None) -> ConsumerFilter:
        key = None if tree is None else names.provider_key(tree)
        return ConsumerFilter(expires_before=self._context.now_or(now), tree=key)

    def _release(
        self, records: tuple[ConsumerRecord, ...], excluding: str | None
    ) -> tuple[ConsumerRecord, ...]:
        """Release the consumers that are unchanged since they were read."""
        orders = {
            record.consumer: ConsumerOrder.release(record.consumer, record.generation)
            for record in records
            if record.consumer != excluding
        }
        while orders:
            released = tuple(orders.values())
            write = Write(
                self._context.operation(None), "release", subject_of(orders), orders=released
            )
            try:
                return self._context.backend.commit(write)
            except (exceptions.Stale, exceptions.NotFound) as changed:
                if not changed.is_about("consumer") or orders.pop(changed.name, None) is None:
                    raise
        return ()

    def _consumers_of(self, reasons: Iterable[Reason], expired: ConsumerFilter) -> set[str]:
        """Return the consumers of a refusal.

        A reason names at most ``MOST_HOLDERS`` consumers. If it names that many, all consumers of
        its tree with an expired claim are included.
        """
        consumers: set[str] = set()
        for reason in reasons:
            consumers.update(name for name, _ in reason.holders)
            if len(reason.holders) >= MOST_HOLDERS:
                in_tree = dataclasses.replace(expired, tree=reason.where)
                for records in self._context.consumers(in_tree):
                    consumers.update(record.consumer for record in records)
        return consumers
