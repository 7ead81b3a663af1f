"""Moving: what a consumer holds goes elsewhere, or to another consumer, without a gap."""

from __future__ import annotations

from resource_objects import exceptions, names
from resource_objects.ledger.base import claim_of
from resource_objects.ledger.found import Choice, Found
from resource_objects.ledger.taking import (
    Own,
    TakeMethods,
    Taking,
    Unchanged,
    lost_by,
    patiently,
    requested,
    write_of,
)
from resource_objects.providers import Claim
from resource_objects.providers.orders import (
    ClaimOrder,
    ClaimRecord,
    Delta,
    Operation,
    Order,
    Replacement,
    subject_of,
)


class MoveMethods(TakeMethods):
    """The methods of a ledger that move what is held."""

    def move(
        self,
        consumer: str,
        found: Found,
        leaving: str | None = None,
        *,
        unchanged: Unchanged = False,
        operation: str | None = None,
    ) -> Claim:
        """Let a consumer hold what was found instead of what it holds, in one transaction.

        With ``leaving`` what it held goes to that consumer, which is made: a migration, of which
        the old place stays taken until it is done. ``release(leaving)`` then confirms it;
        :meth:`swap` of both and ``release(leaving)`` takes it back.

        :param found: where to, as for :meth:`claim`
        :param leaving: who is to hold what the consumer held; it gets its project, user and type
        :returns: what the consumer holds now
        :raises ConsumerNotFound: if it holds nothing
        :raises ConsumerExists: if ``leaving`` holds something already
        :raises CapacityException: if it does not fit, with who holds what; nothing moved then
        :raises StaleConsumer: if others write the consumer again and again
        """
        name = names.consumer_name(consumer)
        other = None if leaving is None else names.consumer_name(leaving)
        subject = subject_of([name] if other is None else [name, other])
        doing, done = self._begin(operation, "move", subject)
        if done is not None:
            return claim_of(done.claims[0])
        relied = self._demanded(unchanged)

        def attempt() -> Claim:
            (kept,) = self._held_by(name)

            def orders(choice: Choice) -> list[Order]:
                return _moved(kept, choice, other)

            own = Own.GOES if other is None else Own.STAYS
            taking = Taking(doing, "move", subject, name, own, orders, relied)
            return claim_of(self._take(taking, found, lost_by(unchanged))[0])

        return patiently(attempt, self.retries.definitions, exceptions.StaleConsumer)

    def swap(
        self, consumer: str, other: str, *, operation: str | None = None
    ) -> tuple[Claim, Claim]:
        """Let two consumers hold what the other holds, in one transaction; also on full hosts.

        The request each was made for goes along; who they are (project, state, expiry) stays.

        :returns: what the first and what the second holds now
        :raises ConsumerNotFound: if one of them holds nothing
        :raises StaleConsumer: if others write them again and again
        """
        pair = [names.consumer_name(consumer), names.consumer_name(other)]
        if pair[0] == pair[1]:
            raise exceptions.DuplicateKey("swap", pair[0], "two consumers")
        subject = subject_of(pair)
        doing, done = self._begin(operation, "swap", subject)
        if done is not None:
            by_name = {record.consumer: record for record in done.claims}
            return claim_of(by_name[pair[0]]), claim_of(by_name[pair[1]])

        def attempt() -> tuple[Claim, Claim]:
            return self._swap(doing, subject, *self._held_by(*pair))

        return patiently(attempt, self.retries.definitions, exceptions.StaleConsumer)

    def _swap(
        self, doing: Operation, subject: str, one: ClaimRecord, other: ClaimRecord
    ) -> tuple[Claim, Claim]:
        orders = [_gets(one, other), _gets(other, one)]
        first, second = self.backend.commit(write_of(doing, "swap", subject, orders))
        return claim_of(first), claim_of(second)


def _moved(kept: ClaimRecord, choice: Choice, leaving: str | None) -> list[Order]:
    orders: list[Order] = [
        Replacement(
            kept.consumer,
            choice.deltas,
            request=requested(choice),
            generation=kept.generation,
        )
    ]
    if leaving is not None:
        left = ClaimOrder(
            leaving,
            _deltas(kept),
            request=kept.request,
            project=kept.project,
            user=kept.user,
            consumer_type=kept.consumer_type,
        )
        orders.append(left)
    return orders


def _gets(one: ClaimRecord, other: ClaimRecord) -> Replacement:
    return Replacement(
        one.consumer, _deltas(other), request=other.request, generation=one.generation
    )


def _deltas(kept: ClaimRecord) -> tuple[Delta, ...]:
    return tuple(Delta(*held.key, held.amount, held.units) for held in kept.held)
